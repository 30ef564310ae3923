"""The port `Cluster` (`port`) and its adapters, one package each."""
