"""Pods as values in one table, and the processes behind them."""
