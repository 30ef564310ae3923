"""Status of a job as users read it: conditions, status, events, resizes.  Pure."""
