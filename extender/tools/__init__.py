"""Tools for all rooms of the service and for the programs beside it: files, YAML, logs, threads, memory."""
