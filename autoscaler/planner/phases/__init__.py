"""The phases of a plan, one file each, numbered in the order in which `plan` calls them.

A phase writes on the working copy and its records; it reads what the phases before it have written.
"""
