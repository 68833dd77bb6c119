# twinlog in a container: any of its commands, as a user without rights, on a root file system that may be read-only.
#
#   docker build -t twinlog:dev .                                what it needs comes from PyPI
#   scripts/image                                                the same with wheels made before, where containers reach no network
#   docker build --build-arg BASE=twinlog-base:bookworm .        on another base: Python 3.11 or later is all that it has to have
#
# Data belongs into a volume at /var/lib/twinlog.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
COPY . /src
WORKDIR /src
RUN set -eu; \
    venv=/opt/twinlog; \
    python3 -m venv --without-pip "$venv"; \
    if ls dist/wheels/twinlog-*.whl >/dev/null 2>&1; then \
        pip=$(ls dist/wheels/pip-*.whl); \
        PIP_NO_INDEX=1 PIP_FIND_LINKS=dist/wheels "$venv/bin/python" "$pip/pip" --no-cache-dir install --quiet 'twinlog[server]'; \
    else \
        pip="python3 -m pip --python $venv/bin/python --no-cache-dir --quiet"; \
        $pip install --require-hashes -r requirements/runtime.lock; \
        $pip install --no-deps --no-build-isolation .; \
        $pip uninstall --yes setuptools; \
    fi; \
    find "$venv" -depth -type d \( -path '*/numpy/*/tests' -o -path '*/psutil/tests' \) -exec rm -rf {} +; \
    "$venv/bin/twinlog" --version; \
    for each in broker namesrv up; do env -u PYTHONDONTWRITEBYTECODE "$venv/bin/twinlog" "$each" --help >/dev/null; done  # Compiles what attrs writes, once.

FROM ${BASE}
LABEL org.opencontainers.image.title="twinlog" \
      org.opencontainers.image.description="A RocketMQ-compatible broker, name server and replica" \
      org.opencontainers.image.licenses="Apache-2.0"
# Nothing in here needs to become somebody else.
RUN find / -xdev -type f -perm /6000 -exec chmod a-s {} + \
    && groupadd --system --gid 10911 twinlog \
    && useradd --system --uid 10911 --gid twinlog --home-dir /var/lib/twinlog --create-home --shell /usr/sbin/nologin twinlog
COPY --from=build /opt/twinlog /opt/twinlog
COPY deploy/docker/probe /usr/local/bin/twinlog-probe
# Bytecode is there already. Machines read a container's log.
ENV PATH=/opt/twinlog/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 TWINLOG_LOG=json
USER twinlog
WORKDIR /var/lib/twinlog
VOLUME /var/lib/twinlog
ENTRYPOINT ["twinlog"]
CMD ["--help"]
