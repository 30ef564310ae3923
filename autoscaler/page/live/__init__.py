"""Open pages, kept current: one part for all who look at the same, and streams that send it."""
