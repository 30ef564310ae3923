"""Everybody but EDL who acts on the simulated cluster: replica controllers, HPAs, training jobs, failing nodes."""
