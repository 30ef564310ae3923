"""The trainer's side of the data protocol, as a pure state machine (rules 9 to 14 and 33 to 35 of docs/protocol.md).

A trainer holds leases, cuts them into batches, and may say that a position is done only when *every* bucket has
confirmed it at one lineage.  Whatever goes wrong in between (a broken stream, a roll-back, a bucket that has part of
a batch already, a drain) must end in one of two ways: the position is confirmed, or it is trained again.

`transitions.handle` decides; it never waits, sends or computes.  `trainer_events` has the events and effects,
`trainer_state` what is remembered, `leasing` the leases, `batches` what becomes of a batch and its push.  Not here:
threads, time, streams (`runtime`), the record numbers behind the positions (`record_order`).
"""
