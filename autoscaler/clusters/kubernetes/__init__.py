"""A real API server as a `clusters.port.Cluster` (ADR 0150): `api` is the door to it.

Above the door stand raw objects: `reading` and `building` turn them into the domain and back, `store` and `watching`
keep them fresh.  Read `api.port` first.
"""
