"""Node sizes that the published sums allow: `mixes` holds those in use, `search` finds them, `packing` filters."""
