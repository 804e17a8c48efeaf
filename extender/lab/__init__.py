"""A cluster in this process: an API server in memory, its rules and its controllers."""
