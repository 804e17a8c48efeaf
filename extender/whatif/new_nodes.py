"""What becomes of a node that does not exist: its devices, the pods on it, and the devices that nobody takes."""

from collections.abc import Iterable, Iterator, Mapping

from allocator import JSON, AllocationResult, Features, PoolId
from extender.autoscaler.counts import stranded_devices
from extender.console.fleet import STATES, Fleet
from extender.explain.explanation import PlacedDevice
from extender.observe.device_states import DeviceStates
from extender.pods.extended_resources.requests import request_words
from extender.state.consumers import claim_keys
from extender.state.objects import Pod
from extender.state.snapshot import Snapshot
from extender.whatif.answer import NodeAnswer


def node_answer(name: str, origin: str, snapshot: Snapshot, features: Features) -> NodeAnswer:
    """A node of a fork.

    Args:
        name: of the node.
        origin: where it is known from what the node brings.
        snapshot: the fork, with the pods that are there.
        features: that decide which devices count.
    """
    pools = tuple(sorted(snapshot.inventory.local.get(name, ())))
    views = [snapshot.inventory.pools[pool].at(snapshot.nodes[name].node, features) for pool in pools]
    return NodeAnswer(
        name,
        origin,
        pools,
        devices=sum(len(each.candidates) for each in views if each is not None),
        stranded=stranded_devices(snapshot, name, features),
        pods=tuple((str(pod), devices_of(pod, snapshot)) for pod in snapshot.pods_on(name)),
    )


def picture_of(pools: Iterable[PoolId], snapshot: Snapshot, features: Features) -> Mapping[str, JSON]:
    """The states of the devices of some pools of a fork, as ``/console/fleet`` has those of all pools."""
    states: list[JSON] = [each.value for each in STATES]
    return {"states": states, **Fleet(DeviceStates(features)).document(snapshot, pools)}


def allocations_of(pod: Pod, snapshot: Snapshot) -> Iterator[AllocationResult]:
    """What the claims of a pod hold."""
    for key in claim_keys(snapshot.pods.get(pod.key, pod)):
        claim = snapshot.claims.get(key)
        if claim is not None and claim.claim.allocation is not None:
            yield claim.claim.allocation


def devices_of(pod: Pod, snapshot: Snapshot) -> tuple[PlacedDevice, ...]:
    """The devices that the claims of a pod hold, with the words by which people know the requests."""
    now = snapshot.pods.get(pod.key, pod)
    words = request_words(now)
    found = ((key, snapshot.claims.get(key)) for key in claim_keys(now))
    return tuple(
        PlacedDevice(key.name, words.get(result.request, result.request), result.device, result.consumed_capacity)
        for key, claim in found
        if claim is not None and claim.claim.allocation is not None
        for result in claim.claim.allocation.results
    )
