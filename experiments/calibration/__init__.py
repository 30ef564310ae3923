"""Node sizes that the published sums allow: `mixes` holds those in use, `search` found them, `packing` is its filter."""
