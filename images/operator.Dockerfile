# syntax=docker/dockerfile:1
# The operator, and the default image of masters and parameter servers: everything of EDL.
#   docker build -f images/operator.Dockerfile -t registry.example/edl/operator:0.1.0 --build-arg PYTHON_DIGEST=sha256:... .
ARG PYTHON_DIGEST
FROM python:3.12-slim-bookworm@${PYTHON_DIGEST} AS build
COPY requirements/build.txt requirements/image-operator.txt /requirements/
RUN python -m venv /opt/edl && \
    /opt/edl/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: -r /requirements/build.txt && \
    /opt/edl/bin/pip install --no-cache-dir --require-hashes --no-deps --no-build-isolation --only-binary :all: \
        --no-binary etcd3 -r /requirements/image-operator.txt
COPY pyproject.toml README.md LICENSE /source/
COPY autoscaler /source/autoscaler
COPY master /source/master
COPY trainer_sdk /source/trainer_sdk
COPY docs/reports/experiments.html /source/docs/reports/
COPY docs/reports/experiments /source/docs/reports/experiments
RUN /opt/edl/bin/pip install --no-cache-dir --no-deps --no-build-isolation /source && \
    /opt/edl/bin/pip uninstall --yes setuptools wheel packaging pip

FROM python:3.12-slim-bookworm@${PYTHON_DIGEST}
COPY --from=build /opt/edl /opt/edl
ENV PATH=/opt/edl/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG REVISION=""
LABEL org.opencontainers.image.title="edl/operator" \
    org.opencontainers.image.description="Operator, masters and parameter servers of EDL" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
WORKDIR /tmp
CMD ["edl", "operator"]
