"""GPUs that nobody uses, on Kubernetes: whose they are by the agents' reports, and how they are given back.

`gpu_use` joins reports with pods, `idle_reclaimer` carries out what the planner decides (ADR 0288).
"""
