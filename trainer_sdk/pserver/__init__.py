"""Parameter servers of a job, and the trainer's client.

The problem: trainers come and go, messages are lost and repeated, servers die, and still every checkpoint must hold
each sample's gradient exactly once.  The idea (`docs/protocol.md`): tables are spread over virtual buckets, and a
bucket is parameters *and* its marks, the set of positions applied to them, changed, copied and written as one.

From the decisions to the process; the packages marked * are pure, and each imports only what stands above it:

- `core`*: state and decisions of a server.  Begin with `pushes` (verdicts by rule 6), then `event_table` and `fork`.
- `tables`*: the numbers.  `layout` (tables on buckets), `model` (all tables of one server), `bucket_codec` (one bucket
  as bytes).
- `wire`*: heads and bodies of messages as bytes.
- `shell`: core and tables under one lock.
- `transfer`: buckets to other servers and to files; pushes to backups.
- `process`: the server with its data port and its stream to the master; `__main__` runs it, `alive` is its probe.
- `client`: pull and push for a trainer.

Not here: who trains what (`master`), what a trainer does with an answer (`trainer_sdk.protocol`), frames, handshake and
connections (`trainer_sdk.transport`).
"""
