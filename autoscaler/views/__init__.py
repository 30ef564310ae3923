"""What people are shown of a cluster, as plain values: the command line prints them, the page draws them.  Pure.

A view is a function of the cluster's objects (`documents`), the planner's answer, or samples.
It stands in one of these rooms, each of which knows those before it: `cluster` (who has what), `jobs`, `history`,
`pages` (what a page and its JSON show) and `planning`.  Text, tables and colours are made elsewhere:
`autoscaler.cli.output` for the terminal, `autoscaler.page` for the browser.
"""
