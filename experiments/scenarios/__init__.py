"""Experiments as data: one YAML file each, parsed by `loading` into the values of `schema`."""
