"""Report of kept passes: `statistics` over passes and mixes, `goals`, `plots`, `page`, written by `write_report`."""
