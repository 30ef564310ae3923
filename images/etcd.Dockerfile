# syntax=docker/dockerfile:1
# etcd and etcdctl for the chart's etcd, out of a Go module whose go.sum names every byte; a shell for the one script
# that turns authentication on.
#   docker build -f images/etcd.Dockerfile -t registry.example/edl/etcd:0.1.0 --build-arg GO_DIGEST=sha256:... --build-arg DEBIAN_DIGEST=sha256:... .
ARG GO_DIGEST
ARG DEBIAN_DIGEST
FROM golang:1.26-bookworm@${GO_DIGEST} AS build
WORKDIR /source
COPY images/etcd/go.mod images/etcd/go.sum ./
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly
RUN go mod download && \
    go build -trimpath -ldflags "-s -w" -o /out/etcd go.etcd.io/etcd/server/v3 && \
    go build -trimpath -ldflags "-s -w" -o /out/etcdctl go.etcd.io/etcd/etcdctl/v3

FROM debian:bookworm-slim@${DEBIAN_DIGEST}
COPY --from=build /out/etcd /out/etcdctl /usr/local/bin/
ARG REVISION=""
LABEL org.opencontainers.image.title="edl/etcd" \
    org.opencontainers.image.description="etcd and etcdctl for the EDL chart" \
    org.opencontainers.image.version="0.1.0" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
WORKDIR /tmp
CMD ["etcd"]
