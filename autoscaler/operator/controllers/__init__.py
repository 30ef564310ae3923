"""The shell over all jobs: what reads the cluster, asks masters and writes objects."""
