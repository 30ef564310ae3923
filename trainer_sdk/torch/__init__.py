"""What elastic groups need of PyTorch: a replica's whole state on the host, and its gradients in fixed buckets.

Nothing else of the SDK imports torch: a script in NumPy runs without it.  `replica_state` carries models, optimisers,
schedules and scalers between members; `gradient_buckets` sums gradients over them during the backward pass,
`model_buffers` agrees on what forward passes change.
"""
