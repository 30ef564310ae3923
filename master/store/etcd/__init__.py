"""The store on etcd: `store` ties the others together; `stubs` is the one door to the client library."""
