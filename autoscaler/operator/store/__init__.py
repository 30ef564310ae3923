"""What the controllers share: the job store, the objects that it reads, queues of jobs, the recorder of events."""
