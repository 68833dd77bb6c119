"""etcd as an image: Debian's programs on the image that twinlog's is based on, since no image registry can be reached."""

import io
import shutil
import tarfile
from pathlib import Path

import docker

from tests.docker.prometheus_image import add

DOCKERFILE = """FROM twinlog:dev
USER root
COPY etcd etcdctl /usr/local/bin/
RUN install -d /etcd-data
WORKDIR /
ENTRYPOINT []
CMD ["/usr/local/bin/etcd"]
"""
TAG = "twinlog-test-etcd:debian"


def etcd_image(daemon: docker.DockerClient) -> str:
    """Its tag. User, directory of the programs and command are those of the image that docker-compose.yml names."""
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        add(tar, "Dockerfile", DOCKERFILE.encode(), 0o644)
        for name in ("etcd", "etcdctl"):
            program = shutil.which(name)
            assert program, "needs Debian's etcd-server and etcd-client"
            add(tar, name, Path(program).read_bytes(), 0o755)
    context.seek(0)
    daemon.images.build(fileobj=context, custom_context=True, tag=TAG, rm=True)
    return TAG
