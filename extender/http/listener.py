"""Listeners: the ports of the service, by who may reach them."""

from enum import Enum, auto


class Listener(Enum):
    """A port of the service."""

    SERVER = auto()
    """For kube-scheduler and people on the same host."""
    OPERATIONS = auto()
    """For probes and Prometheus: open to the network, so nothing can be changed there, and nothing is secret."""
    API = auto()
    """For callers off the node. Each has to prove who it is, and needs a right for what it asks."""
