"""The commit of a checkpoint: HOLD, CUT, files, manifest, head (rules 19 to 25, 32, 36)."""
