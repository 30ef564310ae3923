"""Parameter servers: message handlers, disconnect grace, release."""
