"""Simulated calls: a filter or prioritize of the scheduler's protocol that cannot come from a scheduler's own work.

A Cluster Autoscaler that calls scheduler extenders (kubernetes/autoscaler#9786) sends whole nodes, and some of them are
made up. A kube-scheduler with ``nodeCacheCapable: false`` sends whole nodes as well, but only those that exist. So the
objects tell. An object that our watch does not know may just be new: then its resourceVersion is newer than everything
that the watch has shown.
"""

from extender.cluster.cluster_state import ClusterState
from extender.kube.raw import revision_of
from extender.kube.resources import NODES
from extender.verbs.json.wire import FilterArgs


def is_simulated(args: FilterArgs, state: ClusterState) -> bool:
    """Whether whole nodes were sent, and the pod or one of the nodes does not exist."""
    if args.nodes is None or not args.pod.needs_devices or state.not_ready:
        return False
    if state.is_made_up(args.pod):
        return True
    unknown = (node for name, node in args.nodes.items() if name not in state.snapshot.nodes)
    return any(revision_of(dict(node)) <= state.seen(NODES) for node in unknown)
