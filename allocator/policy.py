"""Policies: in which order devices are tried, which decides who gets what, and how well a node suits.

An order never turns yes into no: every policy finds an allocation exactly when first-fit does.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from allocator.candidates import SUITS, UNJUDGED, Alternative, Candidates
from allocator.counters import Counters, demand
from allocator.model import ConstraintKind
from allocator.plan import Plan
from allocator.score import Scores, by_preference, by_waste


@dataclass(frozen=True, slots=True)
class View:
    """What a policy may look at."""

    plan: Plan
    candidates: Candidates
    counters: Counters


Orders = Callable[[Alternative], Sequence[int]]
"""Candidates of an alternative in the order in which they are to be tried."""


@dataclass(frozen=True, slots=True)
class Policy:
    """In which order candidates are tried (`orders` is asked once for a search), and how nodes compare."""

    name: str
    orders: Callable[[View], Orders]
    scores: Scores


def _first_fit(view: View) -> Orders:
    published = range(view.candidates.count)
    return lambda _: published


def _best_fit(view: View) -> Orders:
    """Least waste first; as published where an error might be met, or the order decides, so that yes stays yes."""
    alternatives = [a for slot in view.plan.slots for a in slot.alternatives]
    if view.plan.constrains_all:
        return _first_fit(view)
    try:
        orders = {id(a): _by_waste(view, a) for a in alternatives}
    except UNJUDGED:
        return _first_fit(view)
    return lambda alternative: orders[id(alternative)]


FIRST_FIT = Policy("first-fit", _first_fit, by_preference)
"""Upstream's choice, device for device."""

BEST_FIT = Policy("best-fit", _best_fit, by_waste)
"""Tight groups first, then devices of partitioned hardware that is broken already, then small ones."""

POLICIES: Mapping[str, Policy] = {p.name: p for p in (FIRST_FIT, BEST_FIT)}


def _by_waste(view: View, alternative: Alternative) -> Sequence[int]:
    candidates = view.candidates
    suits = [i for i in range(candidates.count) if candidates.judge(alternative, i) is SUITS]
    if len(suits) < 2:
        return suits
    groups = _group_sizes(view, alternative, suits)
    largest: dict[str, int] = {}
    for index in suits:
        for name, quantity in candidates.all[index].device.quantities.items():
            largest[name] = max(largest.get(name, 0), quantity.nano)
    return sorted(suits, key=lambda i: (groups.get(i, 0), _breakage(view, i), _waste(candidates, i, largest)))


def _group_sizes(view: View, alternative: Alternative, suits: Sequence[int]) -> dict[int, int]:
    """For matchAttribute: how many candidates have the device's value; a tight group is used up first."""
    sizes: dict[int, int] = {}
    for _, spec in view.plan.covering(alternative):
        values = {i: view.candidates.values(alternative, i, spec.attribute) for i in suits}
        if spec.kind is not ConstraintKind.MATCH:
            continue
        having = Counter(value for each in values.values() for value in each)
        for index, each in values.items():
            sizes[index] = sizes.get(index, 0) + min((having[v] for v in each), default=0)
    return sizes


def _breakage(view: View, index: int) -> int:
    """1 for a device that would break counter sets of which nothing is taken yet."""
    device = view.candidates.all[index].device
    if not device.consumes_counters:
        return 0
    left = view.counters.left(device.id.pool_id)
    full = view.counters.full(device.id.pool_id)
    return int(all(left[key] == full[key] for key, _ in demand(device)))


def _waste(candidates: Candidates, index: int, largest: Mapping[str, int]) -> float:
    """What the device has, by the largest of its kind; of a shared device, what is still free of it."""
    device = candidates.all[index].device
    used = candidates.usage.device(device.id).consumed if candidates.is_shared(index) else {}
    total = 0.0
    for name, quantity in device.quantities.items():
        if largest[name] > 0:
            taken = used.get(name, 0) or used.get(name.partition("/")[2], 0)
            total += (quantity.nano - taken) / largest[name]
    return total
