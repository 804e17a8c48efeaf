"""Kubernetes' own benchmark of its scheduler (scheduler_perf), with the plugin and with dra-extender in its place."""
