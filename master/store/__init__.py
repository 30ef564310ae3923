"""The few durable values of a job, and the right to write them.

`port` is the contract and the page to read first; `keys` names the values; `memory` and `etcd` keep them;
`settlement` finds out what became of a write whose answer was lost.
"""
