"""Trainers: message handlers, loss, declaration, model holder."""
