"""State that the controllers share: the job store, the objects that it reads, job queues, the event recorder."""
