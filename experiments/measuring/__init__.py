"""Metrics of a pass: `series` are step functions, `pass_record` the record, `pass_metrics` is computed from it."""
