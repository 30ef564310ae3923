"""Calibration of node mixes: `packing` filters candidates, `mix_search` finds mixes, `verify` simulates them."""
