"""Durable state: records in the store (`transactions`, `refounding`) and the checkpoint folder with HEAD."""
