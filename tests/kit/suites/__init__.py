"""Kubernetes' own tests, built from its Go module with an extender in place of the plugin."""
