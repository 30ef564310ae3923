"""What jobs are entitled to and when it may change: used by the phases that grow, shrink and transfer."""
