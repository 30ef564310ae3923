"""What came of a pass, as numbers: `series` are step functions, `take` the record, `metrics` is read off it."""
