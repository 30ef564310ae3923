"""What elastic groups need of PyTorch: a replica's whole state on the host.

Nothing else of the SDK imports torch: a script in NumPy runs without it.  `replica_state` carries models, optimisers,
schedules and scalers between members.
"""
