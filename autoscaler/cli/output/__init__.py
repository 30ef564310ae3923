"""Text for people and scripts, made of values: tables, reports, the live view.  Pure."""
