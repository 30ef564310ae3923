"""What users read of a job: conditions, status, events, resizes.  Pure."""
