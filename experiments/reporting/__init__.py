"""From kept passes to what is told: `statistics` over passes and mixes, `goals`, `figures`, `page`, all by `report`."""
