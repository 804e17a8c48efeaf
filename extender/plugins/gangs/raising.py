"""Gives the pods of a plan more than the plan has for them, one after the other, as far as there is more."""

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter

from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.reduced_claims import level
from extender.kube.api import ObjectKey
from extender.plugins.gangs.plan import Seat, Seating

Reseat = Callable[[Sequence[Pod], Snapshot], Seating | None]
"""The best seats for some pods in a fork; None if none are found. Raises TimeoutError: time is up."""


def raised(found: Seating, base: Snapshot, shared: Collection[ObjectKey], reseat: Reseat) -> Seating:
    """The seats with as much as there is: each pod in turn gives up its seat and gets the best one that is there.

    The most important pod comes first, then the oldest. Pods that share a claim take their turn together. The turns are
    repeated until nobody gets more, or the time is up.

    Args:
        found: the seats.
        base: the cluster in which no pod of the plan has a seat.
        shared: the claims that more than one of the pods uses.
        reseat: finds seats.
    """
    seats = {seat.pod.uid: seat for seat in found.seats}
    units, fork, is_better = _units(found.seats, base, shared), found.fork, True
    try:
        while is_better:
            is_better = False
            for pods in units:
                before = _level(seats[pod.uid] for pod in pods)
                again = reseat(pods, _without(pods, fork, base)) if any(before) else None
                if again is not None and _level(again.seats) < before:
                    seats |= {seat.pod.uid: seat for seat in again.seats}
                    fork, is_better = again.fork, True
    except TimeoutError:
        pass
    return Seating(tuple(seats.values()), fork)


def _units(seats: Iterable[Seat], base: Snapshot, shared: Collection[ObjectKey]) -> Sequence[Sequence[Pod]]:
    """The pods, those together that share claims."""
    units: list[tuple[set[ObjectKey], list[Pod]]] = []
    for pod in sorted((base.pods[seat.pod.key] for seat in seats), key=attrgetter("order")):
        own = {key for key in claim_keys(pod) if key in shared}
        same = [unit for unit in units if not unit[0].isdisjoint(own)]
        units = [unit for unit in units if unit not in same]
        pods = [each for _, members in same for each in members]
        units.append((own.union(*(keys for keys, _ in same)), [*pods, pod]))
    return sorted((pods for _, pods in units), key=lambda pods: pods[0].order)


def _level(seats: Iterable[Seat]) -> tuple[int, int]:
    return level([label for seat in seats for label in seat.keeping.without])


def _without(pods: Iterable[Pod], fork: Snapshot, base: Snapshot) -> Snapshot:
    """The fork in which some pods have no seat."""
    for pod in pods:
        special = (each.key for world in (fork, base) for each in world.special_claims(pod.uid))
        for key in dict.fromkeys((*claim_keys(pod), *special)):
            before = base.claims.get(key)
            fork = fork.without_claim(key) if before is None else fork.with_claim(before)
        fork = fork.with_pod(pod)
    return fork
