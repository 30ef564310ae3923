"""Experiments as data: a YAML file each, parsed by `loading` into the values of `schema`; and `node_mixes`."""
