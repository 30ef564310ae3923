"""Entitlements of jobs, and limits of voluntary changes, for the phases that grow, shrink and transfer."""
