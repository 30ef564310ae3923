"""The command `edl`: `main` is the door, one module per kind of command, `view` the live picture of a run.

Commands import what they need when they run, so that `edl --help` and shell completion answer at once.
"""
