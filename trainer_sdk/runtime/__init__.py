"""What runs a trainer beneath its script: the protocol between two threads, signals, and children of a script alone."""
