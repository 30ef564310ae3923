"""Placement of buckets on servers: owners (`owner_placement`) and second copies (`backup_placement`).  Pure."""
