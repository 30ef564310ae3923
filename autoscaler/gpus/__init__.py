"""GPUs by use: what each GPU of a node does, and for which pod (`edl agent`).

The problem: a GPU that is allocated is not a GPU that computes, and each of the driver's counters is known to be wrong
at times (`signals` lists them).  So a verdict rests on several of them, and missing data never makes a GPU idle.

| room | what it does |
|---|---|
| `agent` | the process: a sample every few seconds, and metrics |
| `driver` | the only door to NVML: a shell |
| `pods` | which pods have which device: the kubelet's socket, and the processes' control groups |
| `readings`, `owners` | what the driver says of each device at one instant, and which pods have it, as values |
| `signals`, `idle_power` | what each source says about work between two readings |
| `sample_outcomes` | whether the sources of one sample, taken together, say that nobody computes |
| `verdicts`, `pod_verdicts` | the verdict on a device, and on each pod that has it, after a window of samples |
| `pod_uses` | which pods use none of their GPUs, by the newest reports of all nodes |

It knows neither the planner nor Kubernetes' API server.  Begin at `verdicts`.
"""
