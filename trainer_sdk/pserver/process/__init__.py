"""The process of a parameter server: the server itself, its data port, its stream to the master."""
