"""The numbers of a parameter server: tables spread over buckets, optimisers, forks, and one bucket as bytes.  Pure."""
