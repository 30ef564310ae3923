"""What a parameter server knows and decides: pushes, cuts, moves, roll-backs.  Pure: events in, effects out."""
