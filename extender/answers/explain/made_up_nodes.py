"""The new nodes of a plan, which do not exist: their devices, their pods, and the devices that nobody takes.

Answers to what-ifs and the console's view of sessions tell of such nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from allocator import Features, PoolId
from allocator.tools import JSON
from extender.answers.explain.explanation import OfferedDevice, placed_as_json
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.fleet import STATES, Fleet
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.extended_resources import request_words
from extender.planning.node_room import stranded_devices


@dataclass(frozen=True, slots=True)
class MadeUpNode:
    """A node that does not exist, and what happens there.

    Attributes:
        origin: where it is known from what it brings; empty: from nowhere, so that it brings nothing.
        pools: that it brings.
        devices: how many it brings.
        stranded: how many of them nothing is taken from; what can be had in parts counts once.
        pods: that run there, with their devices.
    """

    name: str
    origin: str
    pools: tuple[PoolId, ...]
    devices: int
    stranded: int
    pods: tuple[tuple[str, tuple[OfferedDevice, ...]], ...]


def made_up_node(name: str, origin: str, snapshot: Snapshot, features: Features) -> MadeUpNode:
    """A node of a fork.

    Args:
        name: of the node.
        origin: where it is known from what the node brings.
        snapshot: the fork, with the pods that are there.
        features: that decide which devices count.
    """
    pools = tuple(sorted(snapshot.inventory.local.get(name, ())))
    views = [snapshot.inventory.pools[pool].at(snapshot.nodes[name].node, features) for pool in pools]
    return MadeUpNode(
        name,
        origin,
        pools,
        devices=sum(len(each.candidates) for each in views if each is not None),
        stranded=stranded_devices(snapshot, name, features),
        pods=tuple((str(pod), devices_of(pod, snapshot)) for pod in snapshot.pods_on(name)),
    )


def node_as_json(node: MadeUpNode) -> Mapping[str, object]:
    """A node that does not exist, with its pods."""
    return {
        "node": node.name,
        "origin": node.origin,
        "pools": [each._asdict() for each in node.pools],
        "devices": node.devices,
        "stranded": node.stranded,
        "pods": [{"pod": pod, "devices": [placed_as_json(each) for each in devices]} for pod, devices in node.pods],
    }


def picture_of(pools: Iterable[PoolId], snapshot: Snapshot, features: Features) -> Mapping[str, JSON]:
    """The states of the devices of some pools of a fork, as ``/console/fleet`` has those of all pools."""
    states: list[JSON] = [each.value for each in STATES]
    return {"states": states, **Fleet(DeviceStates(features)).document(snapshot, pools)}


def devices_of(pod: Pod, snapshot: Snapshot) -> tuple[OfferedDevice, ...]:
    """The devices that the claims of a pod hold, with the words by which people know the requests."""
    now = snapshot.pods.get(pod.key, pod)
    words = request_words(now)
    found = ((key, snapshot.claims.get(key)) for key in claim_keys(now))
    return tuple(
        OfferedDevice(key.name, words.get(result.request, result.request), result.device, result.consumed_capacity)
        for key, claim in found
        if claim is not None and claim.claim.allocation is not None
        for result in claim.claim.allocation.results
    )
