"""Experiments as data: one YAML file each, read and checked by `reading` into the values of `schema`."""
