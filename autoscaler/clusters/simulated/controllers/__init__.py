"""Controllers of the simulated cluster other than EDL: replica controllers, HPAs, training jobs, failing nodes."""
