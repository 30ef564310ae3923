"""Messages on a member's stream, as values; `wire.message_codec` gives them their wire form.

Trainers and parameter servers keep one stream each with the master.  Members speak first (`RegisterTrainer`,
`RegisterServer`).  Every answer names what it answers by token, cut or lineage, so lost, repeated and reordered
messages mean the same as before.  The rules cited are those of docs/protocol.md and docs/protocol-moves.md.
"""
