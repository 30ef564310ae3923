"""Vocabulary that readers and writers of objects share: names, labels, fields, amounts, node affinity and size limits.

The lowest package of the adapter: `parsing` and `builders` import it and it imports neither.
"""
