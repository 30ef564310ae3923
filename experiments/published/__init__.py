"""What the system of 2017 published, as values: `curves` over time and single `figures`."""
