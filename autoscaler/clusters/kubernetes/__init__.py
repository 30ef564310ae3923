"""A real API server as a `clusters.port.Cluster` (ADR 0150): `api` is the door, everything above it is told raw objects.

`reading` and `building` turn those into the domain and back, `store` and `watching` keep them fresh.  Read
`api.port` first.
"""
