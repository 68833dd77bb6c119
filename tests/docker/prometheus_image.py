"""Prometheus as an image: Debian's program on the image that twinlog's is based on, since no image registry can be reached."""

import io
import shutil
import tarfile
from pathlib import Path

import docker

DOCKERFILE = """FROM twinlog:dev
USER root
COPY prometheus /bin/prometheus
RUN install -d -o 65534 -g 65534 /prometheus
USER 65534:65534
VOLUME /prometheus
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
"""
TAG = "twinlog-test-prometheus:debian"


def prometheus_image(daemon: docker.DockerClient) -> str:
    """Its tag. User, volume and command are those of the image that docker-compose.yml names."""
    program = shutil.which("prometheus")
    assert program, "needs Debian's prometheus"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        add(tar, "Dockerfile", DOCKERFILE.encode(), 0o644)
        add(tar, "prometheus", Path(program).read_bytes(), 0o755)
    context.seek(0)
    daemon.images.build(fileobj=context, custom_context=True, tag=TAG, rm=True)
    return TAG


def add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
