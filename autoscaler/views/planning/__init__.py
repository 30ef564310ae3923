"""The planner's answers: why a job has its size, and what if."""
