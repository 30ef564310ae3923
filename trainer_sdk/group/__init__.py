"""Groups: trainers that each hold the whole model and all-reduce their gradients (rules 63 to 98).

- `port`: what a framework layer gives to a group, and what it gets.
- `core`: a member's decisions, pure.
- `captured_state`: a replica as a stream and as a checkpoint file.
- `collectives`: the connections of the generations that this process is in.
- `step_times`: what is reported of its steps.
- `member_shell`: a member's state behind its lock, between the master's stream and the collectives.
- `replica_work`: loads, exchanges and copies of the replica.
- `member_runtime`: the calls of the script's thread.
"""
