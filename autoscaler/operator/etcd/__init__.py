"""Accounts and space of jobs in the etcd that their masters share."""
