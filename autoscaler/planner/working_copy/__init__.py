"""The working copy of one plan: nodes as arrays, jobs, quotas, ranks, and moves that can be undone.

Read `working_copy`, then `free_capacity` (where pods fit) and `memo` (how the last plan's copy becomes the next one's).
"""
