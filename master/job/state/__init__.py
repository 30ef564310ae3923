"""The master's state of one job, as frozen values, and the functions over its parts.

`job_state` puts the parts together; `dispatch_state` has every position, `bucket_table` every bucket, `members` every
process, `trainer_failures` the failures, `protocol_state` how far each protocol is.
"""
