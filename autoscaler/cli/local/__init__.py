"""A run on this machine: the place that its control socket answers for, and the foreground of `edl run`."""
