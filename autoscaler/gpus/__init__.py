"""What each GPU of a node does, and for which pod: `edl agent`.

The problem: a GPU that is allocated is not a GPU that computes, and each of the driver's counters is known to be wrong
at times (`signals` lists them).  So a verdict rests on several of them, and missing data never makes a GPU idle.

| room | what it does |
|---|---|
| `readings` | what the driver says of each device at one instant, as values |
| `driver` | the only door to NVML: a shell |

It knows neither the planner nor Kubernetes' API server.  Begin at `readings`.
"""
