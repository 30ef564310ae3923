"""Groups: trainers that each hold the whole model and all-reduce their gradients (rules 63 to 98).

- `port`: what a framework layer gives to a group, and what it gets.
- `core`: a member's decisions, pure.
- `captured_state`: a replica as a stream and as a checkpoint file.
- `collectives`: the connections of the generations that this process is in.
- `step_times`: what is reported of its steps.
- `member_runtime`: the threads around them.
"""
