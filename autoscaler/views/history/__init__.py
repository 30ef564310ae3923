"""The past: samples of who had the cluster, and what was decided."""
