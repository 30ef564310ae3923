"""Passes as tasks: `tasks` lists them, `pool` runs them, `store` keeps results apart by `versions` of the code."""
