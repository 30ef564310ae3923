"""Moves of buckets between servers while training goes on (rules 37 to 60, docs/protocol-moves.md).

`rebalancing` plans moves, `move_admission` begins them, `move_lifecycle` ends them, `move_timeouts` undoes late ones,
`server_commands` sends orders to servers and routes to trainers, `promotion` replaces lost servers by their backups,
`server_scaling` sets the number of servers.
"""
