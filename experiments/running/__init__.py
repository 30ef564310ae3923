"""Passes as tasks: `tasks` lists them, `pool` runs them (`simulation`), `result_store` keeps results by version."""
