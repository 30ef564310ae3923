"""A whole `edl run`, started and stopped as one, and what other terminals see of it."""
