"""Geometry of the page's pictures, as plain values that templates write as SVG.  Pure."""
