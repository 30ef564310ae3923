"""The process of `edl agent`: samples the devices of its node and serves what it found as Prometheus metrics.

`node_agent` takes one sample, `agent_process` repeats it, `gpu_metrics` draws the last one.
"""
