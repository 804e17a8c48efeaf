"""A policy: the order in which devices are tried, which decides who gets which, and the scores of nodes.

Every policy finds an allocation exactly when first-fit finds one.

Companions are the devices that may be taken with a device, where a constraint wants equal values. A search that begins
with a device without enough companions ends at a dead end, or at a later alternative of a request. Example: four CPUs
are to be on one NUMA node if possible, one NUMA node has three free CPUs, and another has eight. The three come last in
the order, so all four are found together. No policy loses a solution: where the constraint has to be met, there is none
with these devices.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol, TypeAlias, TypeVar

from allocator.model.slices.device import Device
from allocator.policies.merit import Merit
from allocator.policies.policy_view import PolicyView
from allocator.search.candidates import SUITS, UNJUDGED, Alternative
from allocator.search.constraints import constraint_class


class Companions:
    """Knows of the devices of one node which of them have enough companions for the claims of a plan."""

    def __init__(self, view: PolicyView) -> None:
        self._view = view
        self._enough: dict[tuple[int, int], Collection[Hashable] | None] = {}
        self._suitable: dict[int, Sequence[int]] = {}

    def suitable(self, alternative: Alternative) -> Sequence[int]:
        """The candidates that suit an alternative, in the published order. Raises one of `UNJUDGED`."""
        found = self._suitable.get(id(alternative))
        if found is None:
            candidates = self._view.candidates
            found = [i for i in range(candidates.count) if candidates.judge(alternative, i) is SUITS]
            self._suitable[id(alternative)] = found
        return found

    def last(self, alternative: Alternative, order: Sequence[int]) -> Sequence[int]:
        """The order, with the candidates at its end that lack companions: those that lack them most come last."""
        lacking: dict[int, int] = dict.fromkeys(order, 0)
        for number, spec in alternative.covering:
            enough = self._enough_of(alternative.claim, number)
            if enough is not None:
                for index in order:
                    values = self._view.candidates.values(alternative, index, spec.attribute)
                    lacking[index] += values.isdisjoint(enough)
        return sorted(order, key=lacking.__getitem__) if any(lacking.values()) else order

    def _enough_of(self, claim: int, number: int) -> Collection[Hashable] | None:
        """The values that enough devices have for all requests of a constraint; None: any."""
        if (claim, number) not in self._enough:
            self._enough[claim, number] = self._find_enough(claim, number)
        return self._enough[claim, number]

    def _find_enough(self, claim: int, number: int) -> Collection[Hashable] | None:
        spec = self._view.plan.constraints[claim][number]
        needs: dict[str, int] = {}
        having: dict[str, list[frozenset[Hashable]]] = {}
        for slot in self._view.plan.slots:
            ways = [each for each in slot.alternatives if each.claim == claim and (number, spec) in each.covering]
            for first in ways[:1]:
                name = first.request.device_class
                needs[name] = needs.get(name, 0) + min(each.need for each in ways)
                if name not in having:  # requests of one class rarely differ in more than their numbers
                    values = self._view.candidates.values
                    having[name] = [values(first, index, spec.attribute) for index in self.suitable(first)]
        return constraint_class(spec).enough([(needs[name], having[name]) for name in needs])


MAX_SCORE = 10

K = TypeVar("K", bound=Hashable)

Orders: TypeAlias = Callable[[Alternative], Sequence[int]]
"""The candidates of an alternative, in the order in which they are tried."""

Sizes: TypeAlias = tuple[tuple[str, int], ...]
"""Each capacity of a device, in units of 10**-9."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKind:
    """The kind of a free device that suits, in a request for one device, as a policy reads it.

    Attributes:
        breaks: the device consumes counters, and all its counter sets are untouched: nothing is taken from them yet.
        is_short: its counters don't suffice.
        merit: as `merit_of_one`.
    """

    sizes: Sizes
    breaks: bool
    is_short: bool
    merit: Merit


class Scores(Protocol):
    """Turns merits into scores. Only the set of merits decides, not how many nodes have each."""

    def __call__(self, merits: Mapping[K, Merit], /) -> dict[K, int]:
        """The score, 0 to 10, of each node or of any other key."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Which devices are taken, and how nodes compare.

    Attributes:
        orders: the order in which candidates are tried; called once per search.
        single: a shortcut for a request of one device. It gets the kinds of free devices, each with the position of the
            first device of that kind. It returns the kind that a search by `orders` would take, or None if the search
            would take no device. If a policy has no such function, a search decides.
        scores: how nodes compare.
        why: phrases that say why one allocation scores higher or lower than the others. None if `scores` depends only
            on the preference of alternatives.
        weigh: adds to a merit what only this policy compares, given the candidates that were taken. None: nothing. A
            policy with this function has no shortcut.
        weighs_classes: the policy reads classes that the claims do not name.
        weighs_leftover: the policy compares what allocations leave, so an allocation has `Merit.before` and
            `Merit.after`.
        reads: the attributes by which the policy tells devices apart in what is left; qualified names, sorted.
        compares: nodes are compared, so allocations have merits.
    """

    name: str
    orders: Callable[[PolicyView], Orders]
    single: Callable[[Mapping[DeviceKind, int]], DeviceKind | None] | None
    scores: Scores
    why: Callable[[Merit, Sequence[Merit]], Iterator[str]] | None = None
    weigh: Callable[[PolicyView, Sequence[int], Merit], Merit] | None = None
    weighs_classes: bool = False
    weighs_leftover: bool = False
    reads: tuple[str, ...] = ()
    compares: bool = True

    def of_one_node(self) -> "Policy":
        """The policy where the node is given: it takes the same devices, and works out nothing to compare nodes."""
        return replace(self, compares=False, weigh=None, weighs_leftover=False, reads=())


def published(view: PolicyView) -> Orders:
    """The order of pools, slices and devices, as upstream has it."""
    order = range(view.candidates.count)
    return lambda _: order


def sorted_orders(
    view: PolicyView, arrange: Callable[[PolicyView, Alternative, Sequence[int]], Sequence[int]]
) -> Orders:
    """The candidates that suit each alternative, in the order of a policy; those without companions come last.

    The candidates keep their published order if judging one of them raises an error, or if a violated constraint is an
    error. A search in another order could meet an error that upstream's search does not meet.

    Args:
        view: the node.
        arrange: sorts the suitable candidates; it gets them in the published order.
    """
    if view.plan.constrains_all:
        return published(view)
    companions = Companions(view)
    try:
        alternatives = [each for slot in view.plan.slots for each in slot.alternatives]
        arranged = {id(each): arrange(view, each, companions.suitable(each)) for each in alternatives}
        orders = {id(each): companions.last(each, arranged[id(each)]) for each in alternatives}
    except UNJUDGED:
        return published(view)
    return lambda alternative: orders[id(alternative)]


def sizes_of(device: Device) -> Sizes:
    """Each capacity of a device, in units of 10**-9."""
    return tuple([(name, quantity.nano) for name, quantity in device.quantities.items()])


_level: Callable[[Merit], tuple[int, int]] = attrgetter("optional", "preference")
"""What counts more than anything else, with every policy: optional requests, then preferred alternatives."""


def in_bands(
    merits: Mapping[K, Merit], fitness: Callable[[Merit], float] | None, rounded: Callable[[float], int] = round
) -> dict[K, int]:
    """Turns fitness, from 0.0 to 1.0, into scores from 0 to 10. If there is no fitness, all are as fit as can be.

    Each level has a band of scores. So one more optional request counts more than anything else, and then an
    earlier alternative of `firstAvailable`, as in upstream's scorer.
    """
    levels = sorted(set(map(_level, merits.values())))
    bands = {}
    for number, level in enumerate(levels):
        low = -(-(MAX_SCORE + 1) * number // len(levels))
        high = -(-(MAX_SCORE + 1) * (number + 1) // len(levels)) - 1
        bands[level] = (min(low, MAX_SCORE), max(low, high))
    scores = {}
    for name, each in merits.items():
        low, high = bands[_level(each)]
        scores[name] = min(MAX_SCORE, high if fitness is None else low + rounded(fitness(each) * (high - low)))
    return scores


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the most of an amount among the nodes."""

    least: float
    most: float

    @classmethod
    def of(cls, amounts: Iterable[float]) -> "Range":
        """The range of some amounts."""
        known = list(amounts)
        return cls(min(known, default=0.0), max(known, default=0.0))

    def excess(self, amount: float) -> float:
        """0 for the least, up to 1 for the most."""
        return (amount - self.least) / self.most if self.most > 0 else 0.0


def use_in_words(merit: Merit, every: Sequence[Merit]) -> Iterator[str]:
    """What a node keeps free and whole, where nodes differ."""
    if len({each.broken for each in every}) > 1:
        yield "breaks up a whole device" if merit.broken else "breaks up no whole device"
    if len({each.free for each in every}) > 1:
        yield f"leaves {merit.free:.0%} of its pools free"
