"""What a machine with a GPU tries in five minutes: `python -m tests.gpu`."""
