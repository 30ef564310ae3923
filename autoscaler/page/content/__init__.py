"""What stands on each page: its view, the planner's answers beside it, samples over time, and HTML of them."""
