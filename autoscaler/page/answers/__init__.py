"""Answers to single requests: pages as HTML and JSON, files, the report, and the one form that changes something."""
