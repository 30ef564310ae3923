"""Published results of the system of 2017: `curves` over time and single `figures`."""
