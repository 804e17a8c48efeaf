"""Kubernetes' own integration tests of DRA, with the plugin and with dra-extender in its place."""
