"""Messages of the data path as bytes: their heads and the arrays that follow.  Pure; sockets are in `transport`."""
