"""What people are shown of a cluster, as plain values: the command line prints them, the page draws them.  Pure.

A view is a function of the cluster's objects (`documents`), the planner's answer, or samples.  Text, tables and colours
are made elsewhere: `autoscaler.cli.output` for the terminal, `autoscaler.page` for the browser.
"""
