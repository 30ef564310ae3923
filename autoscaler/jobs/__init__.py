"""The life of a training job beside its sizes, wherever it runs: `lifecycle` decides, `master_connections` asks."""
