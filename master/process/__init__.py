"""The master as a process: settings, gRPC server, metrics, standby, and one term after another (`leader_terms`)."""
