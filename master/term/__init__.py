"""One term of the master: the writer task that owns the state, and the queues around it."""
