"""The devices that are held for nominated pods, and what another pod finds beside them.

Room was made for a nominated pod on its node, perhaps by evictions. If dra-extender made the room, the nomination
names the devices (`extender.cluster.objects.pods.Keeping`). So each of several pods gets the devices that were freed
for it, in whatever order they become free. If a scheduler made the room, the devices that the pod would get on its
node count.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

from allocator import (
    Allocation,
    AllocationMode,
    AllocatorError,
    Claim,
    DeviceId,
    DeviceResult,
    Features,
    Quantity,
    Reason,
)
from allocator.policies import FIRST_FIT
from allocator.reason import Cause
from allocator.usage import FREE
from extender.cluster.consumers import after_departures, claim_keys, is_left, left_behind, without_pods
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import Cycle, fits, holding, open_cycle
from extender.framework.decisions.solver import No, Remembered, Solver
from extender.framework.pods.claims import Blocked
from extender.framework.pods.extended_resources import NO_SPECIAL, special_of
from extender.framework.pods.negotiated_claims import names_controller
from extender.framework.pods.node_resources import is_counted
from extender.kube.api import ObjectKey

WAITING: Final = Reason(Cause("terminating", "waiting for devices of terminating pods"))


def found_on(node: NodeObject, pod: Pod, snapshot: Snapshot, solver: Solver) -> Allocation | No:
    """What a pod would get on a node, beside the devices that are held for other pods.

    A pod gets the devices that are kept for it, if it can. A pod that may take what is kept for others takes it only if
    it finds nothing else.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    cycles = _cycles(node, pod, snapshot, solver)
    found = _at(node, next(cycles))
    while isinstance(found, No) and (cycle := next(cycles, None)) is not None:
        found = _at(node, cycle)
    return found


def _at(node: NodeObject, cycle: Cycle | Blocked) -> Allocation | No:
    return No(cycle.reason) if isinstance(cycle, Blocked) else cycle.at(node)


def confirmed(cycle: Cycle, node: NodeObject, before: Cycle, found: Allocation) -> Allocation | None:
    """An allocation that was found for a pod, in a later snapshot: the same devices; None if that takes a search.

    Args:
        cycle: the pod's cycle in the later snapshot.
        node: the node, as it is there.
        before: the pod's cycle when the allocation was found.
        found: the allocation.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    needs, asked = cycle.claims.on(node), before.claims.on(node)
    if isinstance(needs, Reason) or isinstance(asked, Reason):
        return None
    claims = tuple([each.claim for each in needs.pending])
    if [claim.uid for claim in claims] != [each.claim.uid for each in asked.pending]:
        return None
    if cycle.snapshot.nominated:
        others = nominated_near(node, cycle.snapshot, cycle.solver.features)
        if cycle.pod.kept.devices or any(other.uid != cycle.pod.uid for other in others):
            return None
    again = cycle.solver.confirmed(needs.world(cycle.snapshot), node.node, claims, found)
    checked = None if again is None else cycle.checked(node, needs, again)
    return checked if isinstance(checked, Allocation) else None


def _cycles(node: NodeObject, pod: Pod, snapshot: Snapshot, solver: Solver) -> Iterator[Cycle | Blocked]:
    """The ways in which the pod may get devices, the best way first."""
    held = held_for_nominated(pod, snapshot, solver, on=node.name, now=True)
    if pod.kept.devices:
        if pod.kept.node == node.name:
            yield open_cycle(pod, held, replace(solver, among=frozenset(pod.kept.devices)))
            if awaits_kept(pod, held, solver):
                yield Blocked(WAITING)
                return
    elif any(
        other.kept.devices and other.priority < pod.priority
        for other in nominated_near(node, snapshot, solver.features)
    ):
        spared = held_for_nominated(pod, snapshot, solver, spares=True, on=node.name, now=True)
        yield open_cycle(pod, spared, solver)
    yield open_cycle(pod, held, solver)


def awaits_kept(pod: Pod, held: Snapshot, solver: Solver) -> bool:
    """Whether a pod waits for the devices that are kept for it: it gets them once terminating pods have gone.

    Its victims are gone or terminating, so the pod spares none of them if it takes other devices. It leaves these to
    the pods for which no devices are kept: other preemptions were chosen on the assumption that each pod takes its own.

    Args:
        pod: a pending pod.
        held: the cluster in which nominated pods have what they need (`held_for_nominated`).
        solver: the allocator.

    Raises:
        InvalidClaimError, SelectorError: the pod can run on no node.
        TimeoutError: the solver's time is up.
    """
    node = held.nodes.get(pod.kept.node)
    if node is None or not (pod.kept.devices and pod.kept.victims and are_leaving(pod.kept, held)):
        return False
    own = replace(solver, among=frozenset(pod.kept.devices))
    return not fits(pod, node, held, own) and fits(pod, node, after_departures(held, node, solver.features), own)


def are_leaving(keeping: Keeping, snapshot: Snapshot) -> bool:
    """Whether all victims of a nomination are gone or terminating."""
    victims = (snapshot.pod(uid) for uid in keeping.victims)
    return all(each is None or each.deleting or each.is_finished for each in victims)


def held_for_nominated(
    pod: Pod, snapshot: Snapshot, solver: Solver, *, spares: bool = False, on: str = "", now: bool = False
) -> Snapshot:
    """The cluster in which nominated pods have what they need on their nodes, if this pod may not take it.

    What is kept by name is held from pods of lower or equal priority, and from any pod that has other devices kept.
    What a pod would get that its scheduler has nominated is held from pods of lower or equal priority. Of two nominated
    pods of equal priority the older one goes first, so that they do not wait for each other.

    Together they may take half of the solver's time. Nothing is held for a pod that is not decided by then, nor for one
    that no longer fits.

    Args:
        pod: the pod from which devices are held.
        snapshot: the cluster.
        solver: the allocator.
        spares: what is kept by name is held whatever the pod's priority.
        on: a node; what is kept by name is held only if the node reaches it. Empty: for all nodes.
        now: no pod is thought away from the result. So the capacity that victims still hold is not held once more for
            the pods for which they are evicted.
    """
    there = snapshot.nodes.get(on)
    found = _everywhere(snapshot) if there is None else nominated_near(there, snapshot, solver.features)
    shared = frozenset(claim_keys(pod))
    others = [other for other in found if other.uid != pod.uid and not _is_served(other, shared, snapshot)]
    if not others:
        return snapshot
    room = Room(shared, snapshot, solver.within(_middle(solver)), now)
    is_kept = [other for other in others if other.kept.devices and (spares or _is_kept_from(other, pod))]
    for other in room.share(is_kept):
        room.hold_kept(other)
    before = [other for other in others if not other.kept.devices and _is_before(other, pod)]
    for other in room.share(before):
        room.hold_needed(other, pod)
    return room.held


def nominated_near(node: NodeObject, snapshot: Snapshot, features: Features) -> Sequence[Pod]:
    """The nominated pods, in their order, that may get devices which the node reaches.

    They have such a device kept; or they are nominated to the node, and have no device kept by name. If there are pods
    of the second kind, and the node shares a pool with others, all nominated pods decide what is left of that pool.
    """
    inventory, kept = snapshot.inventory, snapshot.kept
    near = inventory.for_node(node.node, features)
    devices = (each.device.id for view in near for each in view.candidates)
    users = (uid for each in devices for uid in kept.users.get(each, ()))
    if kept.unnamed and any(view.id in inventory.roaming for view in near):
        return _everywhere(snapshot)
    unnamed = (uid for uid in snapshot.nominated.get(node.name, ()) if uid in kept.unnamed)
    return _in_order({*unnamed, *users}, snapshot)


def _everywhere(snapshot: Snapshot) -> Sequence[Pod]:
    """The nominated pods, in their order."""
    return _in_order((uid for there in snapshot.nominated.values() for uid in there), snapshot)


def _in_order(uids: Iterable[str], snapshot: Snapshot) -> Sequence[Pod]:
    """The nominated pods that wait for a node that exists."""
    pods = (snapshot.nominee(found) for uid in uids if (found := snapshot.pod(uid)) is not None)
    here = (pod for pod in pods if pod.nominated_node in snapshot.nodes and not pod.deleting and not pod.is_finished)
    return sorted(here, key=attrgetter("order"))


def _is_kept_from(other: Pod, pod: Pod) -> bool:
    """Whether the devices that are kept for the other pod by name are held from this pod."""
    has_own = bool(pod.kept.devices) and set(pod.kept.devices).isdisjoint(other.kept.devices)
    return has_own or other.priority >= pod.priority


def _is_before(other: Pod, pod: Pod) -> bool:
    """Whether a nominated pod goes before this one."""
    return other.order < pod.order if pod.nominated_node else other.priority >= pod.priority


def _is_served(other: Pod, shared: Collection[ObjectKey], snapshot: Snapshot) -> bool:
    """Whether nothing is to be held for a nominated pod: its claims are allocated, or are those of the pod that asks.

    A scheduler nominates each pod that it binds. Many pods of a PodGroup, with one claim, are nominated at a time.
    """
    if other.kept.victims or special_of(other, snapshot) is not NO_SPECIAL:
        return False
    keys = claim_keys(other)
    claims = [snapshot.claims.get(key) for key in keys if key not in shared]
    return len(keys) == len(other.claims) and all(
        each is not None and each.claim.allocation is not None and not is_left(each.claim, snapshot) for each in claims
    )


def _middle(solver: Solver) -> float:
    """The time at which half of the solver's time is over."""
    return solver.until if solver.until == math.inf else (solver.clock() + solver.until) / 2


class _KeptDevices(Remembered[tuple[Allocation, ...]]):
    """The devices that pods get of those that are kept for them, by uid of the pod; empty: a pod gets none."""


@dataclass(slots=True)
class Room:
    """The cluster while one pod after the other gets what is held for it.

    Attributes:
        shared: claims that the asking pod uses, too.
        held: the cluster so far.
        solver: the allocator, with the time for all pods together.
        is_now: as ``now`` of `held_for_nominated`.
        found: what is held, in the order in which it was found.
        is_undecided: something is not held because of an error or a limit.
    """

    shared: Collection[ObjectKey]
    held: Snapshot
    solver: Solver
    is_now: bool = False
    found: list[Allocation] = field(default_factory=list, init=False)
    is_undecided: bool = field(default=False, init=False)
    _part: Solver = field(init=False)
    _counted: set[str] = field(default_factory=set, init=False)

    def share(self, pods: Collection[Pod]) -> Iterator[Pod]:
        """The pods; each has an equal share of the time that is left."""
        for place, each in enumerate(pods):
            self._part = self.solver.share(len(pods) - place)
            yield each

    def hold_kept(self, other: Pod) -> None:
        """Hold what is kept for a pod by name. A pod that can't have it any more will be chosen for again."""
        found = self._kept(other, self.shared)
        self._hold(self._beside_victims(found, other) if found and self.is_now and other.kept.victims else found)

    def hold_needed(self, other: Pod, pod: Pod) -> None:
        """Hold what a pod would get on its node, if possible beside what is kept by name for the pod that asks."""
        own = self._kept(pod, ()) if pod.kept.devices else None
        found = self._needed(other, self.shared, self.held if own is None else holding(own, self.held), self._part)
        if found is None and own is not None and other.priority > pod.priority:
            found = self._needed(other, self.shared, self.held, self._part)
        self._hold(found)

    def _beside_victims(self, found: Allocation, other: Pod) -> Allocation:
        """What has to be held of an allocation while victims hold theirs. Each victim counts for one pod."""
        uids = [uid for uid in other.kept.victims if uid not in self._counted]
        self._counted.update(uids)
        victims = [pod for uid in uids if (pod := self.held.pod(uid)) is not None]
        before, after = self.held.usage, without_pods(self.held, victims).usage
        left: dict[tuple[DeviceId, str], int] = {}

        def rest(device: DeviceId, name: str, amount: Quantity) -> Quantity:
            held, kept = (each.device(device).consumed.get(name, 0) for each in (before, after))
            released = left.setdefault((device, name), held - kept)
            left[device, name] = max(0, released - amount.nano)
            return Quantity.from_nano(max(0, amount.nano - released), amount.format)

        def held_of(each: DeviceResult) -> DeviceResult:
            amounts = (each.consumed_capacity or {}).items()
            return replace(each, consumed_capacity={name: rest(each.device, name, amount) for name, amount in amounts})

        results = (
            replace(got, results=tuple(each if each.share_id is None else held_of(each) for each in got.results))
            for got in found.results
        )
        return replace(found, results=tuple(results))

    def _hold(self, found: Allocation | None) -> None:
        if found is not None:
            self.found.append(found)
            self.held = holding(found, self.held)

    def _kept(self, other: Pod, shared: Collection[ObjectKey]) -> Allocation | None:
        """What a pod gets of the devices that are kept for it, once its victims have gone."""
        victims = [pod for uid in other.kept.victims if (pod := self.held.pod(uid)) is not None]
        is_apart = not shared or set(shared).isdisjoint(claim_keys(other))
        is_own = is_apart and not victims and other.nominated_node == other.kept.node
        basis = kept_reads(other, self.held, self.solver) if is_own else None
        memory = self.solver.memories.of(_KeptDevices)
        known = None if basis is None else memory.find(other.uid, basis)
        if known is not None:
            return known[0] if known else None
        was_undecided, self.is_undecided = self.is_undecided, False
        # Which of its own devices serves which request makes no difference to others. The default policy knows more
        # after each decision: what one search found would not be known to the next.
        only = replace(self._part, among=frozenset(other.kept.devices), policy=FIRST_FIT)
        found = self._needed(other, shared, without_pods(self.held, victims), only)
        if basis is not None and not self.is_undecided:
            memory.keep(other.uid, basis, () if found is None else (found,))
        self.is_undecided |= was_undecided
        return found

    def _needed(
        self, other: Pod, shared: Collection[ObjectKey], snapshot: Snapshot, solver: Solver
    ) -> Allocation | None:
        """What a nominated pod gets on its node for the claims that it does not share, once others have departed."""
        node, was_undecided = snapshot.nodes[other.nominated_node], self.is_undecided
        found: Allocation | No | None = None
        self.is_undecided = True  # if an error ends this
        with solver.faults.of(f"pod {other}"), suppress(AllocatorError, TimeoutError):
            cycle = open_cycle(other, after_departures(snapshot, node, solver.features), solver)
            if isinstance(cycle, Cycle):
                own = tuple(each for each in cycle.claims.pending if each.key not in shared)
                found = replace(cycle, claims=replace(cycle.claims, pending=own)).at(node)
            self.is_undecided = was_undecided or (isinstance(found, No) and found.stopped)
        return found if isinstance(found, Allocation) else None


_SHARED: Final = frozenset({"consumes_counters", "allow_multiple_allocations"})
"""Fields of devices that others may use a part of: what one pod gets depends on what the others have."""


def kept_reads(pod: Pod, snapshot: Snapshot, solver: Solver) -> tuple[object, ...] | None:
    """The objects on which alone it depends what a pod gets of the devices that are kept for it.

    They are the same objects in two snapshots in which nothing has changed for the pod. None if it depends on more:
    somebody who leaves has devices of the node, or devices are shared, or a claim of the pod is not simply to be
    allocated.

    Args:
        pod: nothing but its claims needs devices, and none of its victims is left.
        snapshot: the cluster.
        solver: its features count.
    """
    claims = [snapshot.claims.get(key) for key in claim_keys(pod)]
    if pod.containers or pod.extended_claim or not all(each and _is_simple(each.claim, snapshot) for each in claims):
        return None
    if is_counted(snapshot, solver.features):
        return None
    node = snapshot.nodes[pod.kept.node]
    free = [snapshot.usage.device(each) == FREE for each in pod.kept.devices]
    if not all(free) and left_behind(snapshot, node, solver.features):
        return None
    views = snapshot.inventory.for_node(node.node, solver.features)
    if not all(_SHARED.isdisjoint(view.fields) for view in views):
        return None
    return (pod, node, snapshot.classes, snapshot.taint_rules, solver.features, *free, *claims, *views)


def _is_simple(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether a claim asks for a number of devices, and has none yet, and no controller decides about it."""
    ways = (way for request in claim.spec.requests for way in request.alternatives)
    is_free = claim.allocation is None and claim.uid not in snapshot.assumed and not claim.spec.optional
    is_ours = is_free and not claim.deleting and not names_controller(claim, snapshot)
    return is_ours and all(way.mode is not AllocationMode.ALL for way in ways)
