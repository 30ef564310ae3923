"""Grafana dashboards of the chart, made out of short descriptions: `python -m tools.dashboards` writes them.

JSON for Grafana says the same of each panel a dozen times, and has a place on the grid for each.  Here a panel is its
question, its expressions, and what a reader does about a bad answer.  Read `panels` next, then `overview`.
"""
