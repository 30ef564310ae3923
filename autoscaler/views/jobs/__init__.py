"""One job: size, progress, throughput, what keeps it from more."""
