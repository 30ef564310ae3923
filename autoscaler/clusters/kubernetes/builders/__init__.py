"""Objects that a TrainingJob owns, built from it: request bodies for the API server, without nulls.

`member_pods` builds trainers and servers, `master_deployment` a Deployment and its Service, `disruption_budget` the
budget over the core pods, `job_identity` the job's Secrets.  `job_identity` alone draws random numbers.
"""
