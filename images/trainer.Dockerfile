# syntax=docker/dockerfile:1
# What training scripts start from: the SDK, the parameter server, and the examples.  pip stays, for libraries of one's own:
#   FROM registry.example/edl/trainer:0.1.0
#   USER 0
#   RUN pip install --require-hashes -r requirements.txt
#   USER 65532:65532
#   COPY train.py /work/
# docker build -f images/trainer.Dockerfile -t registry.example/edl/trainer:0.1.0 --build-arg PYTHON_DIGEST=sha256:... .
ARG PYTHON_DIGEST
FROM python:3.12-slim-bookworm@${PYTHON_DIGEST} AS build
COPY requirements/build.txt requirements/image-trainer.txt /requirements/
RUN python -m venv /opt/edl && \
    /opt/edl/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: -r /requirements/build.txt && \
    /opt/edl/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: \
        -r /requirements/image-trainer.txt
COPY pyproject.toml README.md LICENSE /source/
COPY master /source/master
COPY trainer_sdk /source/trainer_sdk
RUN /opt/edl/bin/pip install --no-cache-dir --no-deps --no-build-isolation /source

FROM python:3.12-slim-bookworm@${PYTHON_DIGEST}
COPY --from=build /opt/edl /opt/edl
COPY examples /work/examples
ENV PATH=/opt/edl/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG REVISION=""
LABEL org.opencontainers.image.title="edl/trainer" \
    org.opencontainers.image.description="What training scripts start from: SDK, parameter server, examples" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
WORKDIR /work
CMD ["python"]
