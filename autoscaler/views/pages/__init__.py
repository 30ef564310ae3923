"""What each page, and its JSON, shows beside the rooms before it."""
