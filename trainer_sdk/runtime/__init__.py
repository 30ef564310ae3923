"""Runtime of a trainer below its script: protocol driver, signals, child processes of a standalone script."""
