"""The member's side of a group, pure: events in, effects out, and what the script's thread does next.

`transitions` is the table, `member_state` the state and its invariants, `script_work` the script's next action.
"""
