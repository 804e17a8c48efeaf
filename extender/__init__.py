"""The service around the allocator: kube-scheduler's extender over a cluster's state."""

__version__ = "0.1.0"
