# syntax=docker/dockerfile:1
# The master of a job, and nothing that only the operator needs.
#   docker build -f images/master.Dockerfile -t registry.example/edl/master:0.1.0 --build-arg PYTHON_DIGEST=sha256:... .
ARG PYTHON_DIGEST
FROM python:3.12-slim-bookworm@${PYTHON_DIGEST} AS build
COPY requirements/build.txt requirements/image-master.txt /requirements/
RUN python -m venv /opt/edl && \
    /opt/edl/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: -r /requirements/build.txt && \
    /opt/edl/bin/pip install --no-cache-dir --require-hashes --no-deps --no-build-isolation --only-binary :all: \
        --no-binary etcd3 -r /requirements/image-master.txt
COPY pyproject.toml README.md LICENSE /source/
COPY master /source/master
RUN /opt/edl/bin/pip install --no-cache-dir --no-deps --no-build-isolation /source && \
    /opt/edl/bin/pip uninstall --yes setuptools wheel packaging pip

FROM python:3.12-slim-bookworm@${PYTHON_DIGEST}
COPY --from=build /opt/edl /opt/edl
ENV PATH=/opt/edl/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG REVISION=""
LABEL org.opencontainers.image.title="edl/master" \
    org.opencontainers.image.description="Masters of EDL jobs" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
WORKDIR /tmp
CMD ["python", "-m", "master"]
