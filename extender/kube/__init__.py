"""A client of the Kubernetes API: lists, watches and writes over HTTP."""
