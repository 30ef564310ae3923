"""What the page costs, and whom it delays."""
