"""The state store of a job: few durable values, and the right to write them.

`store_port` is the contract and the page to read first; `job_keys` names the values; `memory_store` and `etcd` keep
them; `settlement` finds out what became of a write whose answer was lost.
"""
