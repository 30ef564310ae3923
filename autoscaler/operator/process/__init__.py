"""The operator process: settings, leadership, probes, kopf."""
