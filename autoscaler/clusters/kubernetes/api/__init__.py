"""The one door to an API server: `port` says what it does, `errors` how it refuses, `kinds` what it holds.

Adapters: `client` (a real API server) and `memory` (the same semantics in memory).  `fenced` stands before the writes.
"""
