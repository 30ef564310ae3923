"""From a TrainingJob to the objects that it owns: bodies ready for the API server, without nulls.

`pods` are trainers and servers, `master` a Deployment and its Service, `disruption` the budget over the core,
`identity` the job's secrets (the one file here with chance in it).  Names and labels stand in one file each.  The other
way is `reading`.
"""
