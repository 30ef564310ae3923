"""Buckets on their way to other servers, to files and back; pushes on their way to backups."""
