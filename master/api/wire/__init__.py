"""gRPC and protobuf between a master and its callers: codec, versions, options, proof of the job's secret."""
