"""What tests and load tests share: objects, servers that play an API server, a control plane, processes, and time."""
