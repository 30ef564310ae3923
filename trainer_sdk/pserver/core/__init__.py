"""Core of a parameter server: pushes, cuts, moves, roll-backs.  Pure: events in, effects out."""
