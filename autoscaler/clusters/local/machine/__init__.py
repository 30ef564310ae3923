"""Processes, ports, GPUs and logs of this machine; nothing here knows jobs."""
