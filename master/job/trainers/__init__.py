"""Trainers: what they say (`trainer_handlers`), how they are lost, what they declare, whose model it is."""
