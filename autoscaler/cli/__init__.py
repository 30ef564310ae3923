"""The command line `edl`: entry point, commands, and the two places where jobs run.

`main` is the entry point; each module of `commands` is a group of subcommands.  A command reads its `arguments`, opens
a place (`kubernetes`, or `local` for a run on this machine) and prints through `output`.  Commands import
what they need when they run, so that `edl --help` and shell completion answer at once.
"""
