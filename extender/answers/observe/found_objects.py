"""Objects that a person looks for by a part of their name: pods, nodes, claims, devices, classes and gangs."""

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import Final, NamedTuple

from extender.cluster.snapshot import Snapshot
from extender.framework.pod_and_claim_states import state_of_claim, state_of_pod
from extender.kube.api import ObjectKey

MOST_OF_A_KIND: Final = 8
"""Of each kind, so many objects are told: a person types one more letter."""

LONGEST: Final = 253
"""Characters of what is looked for: a name of Kubernetes has no more."""

_PAUSE_AFTER: Final = 256
"""Names between two pauses for other work."""


class FoundObject(NamedTuple):
    """An object that matches.

    Attributes:
        kind: ``pod``, ``node``, ``claim``, ``device``, ``class`` or ``gang``.
        names: what names it: namespace and name; driver, pool and device; or a name alone.
        state: of a pod or a claim; empty for others.
    """

    kind: str
    names: tuple[str, ...]
    state: str = ""


def find_objects(text: str, snapshot: Snapshot, pause: Callable[[], None] = lambda: None) -> list[FoundObject]:
    """The objects whose names have a text in them, without regard to case: the best of each kind.

    A name that is the text comes before one that begins with it; then the shorter one comes first.

    Args:
        text: as a person types it, ``NAMESPACE/NAME`` for example. Without any letter, nothing is found.
        snapshot: the cluster.
        pause: called now and then.
    """
    wanted = text.strip().lower()
    if not wanted:
        return []
    found = [each for kind, names in _names(snapshot) for each in _best(kind, names, wanted, pause)]
    return [each._replace(state=_state_of(each, snapshot)) for each in found]


def _names(snapshot: Snapshot) -> Iterator[tuple[str, Iterable[tuple[str, ...]]]]:
    yield "pod", (tuple(key) for key in snapshot.pods)
    yield "gang", ((key.namespace, key.name) for key in snapshot.gangs.members)
    yield "claim", (tuple(key) for key in snapshot.claims)
    yield "node", ((name,) for name in snapshot.nodes)
    yield "class", ((name,) for name in snapshot.classes)
    yield (
        "device",
        (
            (each.id.driver, each.id.pool, each.id.device)
            for pool in snapshot.inventory.pools.values()
            for origin in pool.newest
            for each in origin.devices
        ),
    )


def _best(kind: str, names: Iterable[tuple[str, ...]], wanted: str, pause: Callable[[], None]) -> Iterator[FoundObject]:
    matching: set[tuple[str, ...]] = set()
    for number, each in enumerate(names):
        if number % _PAUSE_AFTER == 0:
            pause()
        if wanted in "/".join(each).lower():
            matching.add(each)
    for each in nsmallest(MOST_OF_A_KIND, matching, key=lambda each: (_rank(each, wanted), len("/".join(each)), each)):
        yield FoundObject(kind, each)


def _rank(names: tuple[str, ...], wanted: str) -> int:
    """0: the text is the last name, or all names; 1: one of these begins with it; 2: it is somewhere else."""
    texts = names[-1].lower(), "/".join(names).lower()
    if wanted in texts:
        return 0
    return 1 if any(each.startswith(wanted) for each in texts) else 2


def _state_of(found: FoundObject, snapshot: Snapshot) -> str:
    if found.kind == "pod" and (pod := snapshot.pods.get(ObjectKey(*found.names))) is not None:
        return state_of_pod(pod).value
    if found.kind == "claim" and (claim := snapshot.claims.get(ObjectKey(*found.names))) is not None:
        return state_of_claim(claim, snapshot).value
    return ""
