"""An etcd server for a laptop, a demo and the tests: found, or built once; started, stopped, killed and restarted.

`finder` chooses the binary among versions that `etcd_versions` accepts, `build` builds the pinned one, `etcd_members`
runs it.  A cluster in production brings its own etcd: then nothing here is used.  `python -m autoscaler.etcd_server
--ensure` prepares the binary, with its progress shown.
"""
