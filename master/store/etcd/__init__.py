"""The state store on etcd.  `etcd_store` is the adapter; `stubs` alone imports the client library's package."""
