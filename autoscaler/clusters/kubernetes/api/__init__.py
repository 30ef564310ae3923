"""Access to an API server: `api_port` is the interface, `errors` its refusals, `kinds` the resources that EDL uses.

`http_client` implements it for a real API server, `memory_api` (a package beside this one) in memory.  `decorators`
wraps every call, for fencing and metrics.
"""
