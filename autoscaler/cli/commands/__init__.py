"""Subcommands of `edl`, a module for each group of them."""
