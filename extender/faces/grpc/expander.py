"""Cluster Autoscaler's gRPC expander: ``grpcplugin.Expander``, which the flag ``--expander=grpc`` makes it ask.

The autoscaler sends its options: groups, the number of nodes that it would add to each, and the pending pods that it
would add them for. It keeps the options whose groups are in the answer. If several are left, its next expander chooses.
After an error it keeps all options.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.scale_up.demand import NodeRoom
from extender.autoscaler.scale_up.estimate import Expansion, expand
from extender.autoscaler.scale_up.plan import NodeGroup, PendingPod
from extender.autoscaler.simulated_cluster import World
from extender.autoscaler.verbs import as_pending, as_room
from extender.faces.grpc import messages
from extender.faces.grpc.messages import Pause, as_json, decoded, no_pause
from extender.framework.wire import WireError

SERVICE: Final = "grpcplugin.Expander"
METHOD: Final = "BestOptions"


@dataclass(frozen=True, slots=True)
class ExpansionArgs:
    """Pending pods, each with the groups that may take it, and the groups that may grow."""

    pods: tuple[PendingPod, ...]
    groups: tuple[NodeGroup, ...]


def decode_options(data: bytes, pause: Pause = no_pause) -> ExpansionArgs:
    """The options of a ``BestOptionsRequest``; ``pause`` is called between small pieces of the work.

    Raises:
        WireError: the bytes are something else; a group is there twice or has no node; a pod or node is invalid.
    """
    request = decoded("BestOptionsRequest", data, "", pause)
    nodes = {name: ("nodeMap", node) for name, node in request.nodeMap.items()}
    nodes |= {name: ("nodeBytesMap", node) for name, node in request.nodeBytesMap.items()}
    groups: dict[str, NodeGroup] = {}
    pods = _Pods()
    for index, option in enumerate(request.options):
        name, where = option.nodeGroupId, f"options[{index}]"
        if not name:
            raise WireError(f"{where}.nodeGroupId", "missing")
        if name in groups:
            raise WireError(f"{where}.nodeGroupId", f"node group {name} is there twice")
        if name not in nodes:
            raise WireError("nodeBytesMap", f"has no node of node group {name}")
        if option.nodeCount < 0:
            raise WireError(f"{where}.nodeCount", f"must not be negative, not {option.nodeCount}")
        groups[name] = NodeGroup(name, _room(nodes[name][1], f"{nodes[name][0]}[{name}]"), option.nodeCount)
        for field in ("pod", "podBytes"):
            for number, each in enumerate(getattr(option, field)):
                pause()
                pods.add(each, name, f"{where}.{field}[{number}]")
    return ExpansionArgs(tuple(pods.found()), tuple(groups.values()))


async def best_options(autoscaler: Autoscaler, args: ExpansionArgs, seconds: float) -> Expansion:
    """The group that a Cluster Autoscaler had best expand next, within the seconds that it waits.

    Raises:
        RefusedError: the cluster is not known well enough.
        TimeoutError: time was up.
    """
    solver = autoscaler.for_call(seconds)

    def choose(world: World) -> tuple[World, Expansion]:
        return world, expand(world, args.pods, args.groups, solver)

    ask = partial(autoscaler.negotiating.about_groups, pods=args.pods, groups=args.groups)
    return await InSession(autoscaler).within(choose, ask)


def encode_expansion(expansion: Expansion, args: ExpansionArgs) -> bytes:
    """A ``BestOptionsResponse``. The autoscaler reads only the ids of groups."""
    response: Any = messages.new("BestOptionsResponse")
    counts = {group.name: group.limit for group in args.groups}
    for name in expansion.groups:
        response.options.add(nodeGroupId=name, nodeCount=counts[name], debug=expansion.reason)
    return bytes(response.SerializeToString())


class _Pods:
    """The pods of all options. A pod is in several options, and is read once."""

    def __init__(self) -> None:
        self._uids: dict[bytes, str] = {}
        self._pods: dict[str, PendingPod] = {}
        self._groups: dict[str, set[str]] = {}

    def add(self, data: bytes, group: str, where: str) -> None:
        """A pod that a group may take."""
        uid = self._uids.get(data)
        if uid is None:
            message = decoded("Pod", data, where)
            metadata = message.metadata
            uid = metadata.uid or f"{metadata.namespace}/{metadata.name}"
            if uid not in self._pods:
                self._pods[uid] = as_pending(as_json(message), where)
                self._groups[uid] = set()
            self._uids[data] = uid
        self._groups[uid].add(group)

    def found(self) -> Iterator[PendingPod]:
        """Each pod with its groups."""
        shared: dict[frozenset[str], frozenset[str]] = {}
        for uid, pod in self._pods.items():
            groups = frozenset(self._groups[uid])
            yield replace(pod, groups=shared.setdefault(groups, groups))


def _room(data: bytes, where: str) -> NodeRoom:
    return as_room(as_json(decoded("Node", data, where)), where)
