"""Parameter servers of a job, and a trainer's way to them.

The problem: trainers come and go, messages are lost and repeated, servers die, and still every checkpoint must hold
each sample's gradient exactly once.  The idea (`docs/protocol.md`): tables are spread over virtual buckets, and a
bucket is parameters *and* the set of positions applied to them, changed as one, copied as one, written as one.

Not here: who trains what (`master`), what a trainer does with an answer (`trainer_sdk.protocol`).

From bucket to fork to file, the way to read it; pure modules are marked *:

- What a server knows and decides: `messages`* and `state`* (values), `bucket`* (a push judged by rule 6, and where
  every other event goes), `fork`* (a cut: held, forked, sealed, written), `skipping`*, `restoring`*.
- The numbers: `layout`* (tables on buckets), `tables`* (all parts of one server), `dense`* and `sparse`* with `rows`*
  (copied on the first write after a cut), `optimisers`*, `initialisers`*.
- The file of a cut: `bucket_bytes`* (one bucket), `checkpoint_file` (all of a server, and back), `loading`.
- The server process: `shell` (core and numbers under one lock), `errands`, `copies` with `couriers`, and `deadlines`
  (what goes on beside it), `service` (all of it, and its doors), `listener` (data port), `member` (the master's
  stream), `__main__`; `alive` (its liveness probe).
- Between the two: `wire` (frames), `wire_messages`* (heads), `bodies`* and `scratch` (arrays), `handshake`, `security`.
- The trainer's side: `client` (pull and push), `slices`* (what goes where), `exchange` (all servers at once),
  `connection`, `patience` (when waiting ends).
"""
