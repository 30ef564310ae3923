"""Servers come and go while everything that takes part is killed and paused, at every step of a move by name."""
