"""Who looks at the operator's page, and what the API server lets them see: `viewer_access` first (ADR 0285)."""
