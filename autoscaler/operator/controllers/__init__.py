"""Controllers of all jobs: they read the cluster, ask masters and write objects.  What they share is `store`."""
