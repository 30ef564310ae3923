"""Parameter servers: what they say (`server_handlers`), how long they are waited for, when they may end."""
