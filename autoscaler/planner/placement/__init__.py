"""Placement: on which node a pod goes, and which trainers leave a node so that one fits."""
