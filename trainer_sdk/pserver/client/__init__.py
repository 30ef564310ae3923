"""Pull and push for a trainer: tables split by server, requests to all servers at once."""
