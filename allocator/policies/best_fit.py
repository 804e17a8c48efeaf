"""Best-fit: first devices of tight groups, then partitions of hardware that is in use already, then small devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from allocator.checks.counters import counter_demand
from allocator.model.quantity import Format, Quantity
from allocator.outcome import Merit
from allocator.policies.policy import DeviceKind, K, Orders, Policy, Sizes, View, in_bands, published, sizes_of
from allocator.search.candidates import SUITS, UNJUDGED, Alternative, Candidates
from allocator.search.constraints import constraint_class

_CAPACITY, _FREE, _BROKEN = 3, 2, 2
"""Weights of the parts of waste: excess capacity, nodes with free devices, hardware newly broken up."""

_BINARY_FROM: Final = 1024 * 10**9


# --- order -------------------------------------------------------------------------------------------------


def _orders(view: View) -> Orders:
    """Least waste first; the published order if an error may be raised or the order decides, so that yes stays yes."""
    if view.plan.constrains_all:
        return published(view)
    try:
        orders = {id(a): _by_waste(view, a) for slot in view.plan.slots for a in slot.alternatives}
    except UNJUDGED:
        return published(view)
    return lambda alternative: orders[id(alternative)]


def _by_waste(view: View, alternative: Alternative) -> Sequence[int]:
    candidates = view.candidates
    suits = [i for i in range(candidates.count) if candidates.judge(alternative, i) is SUITS]
    if len(suits) < 2:
        return suits
    groups = _group_sizes(view, alternative, suits)
    sizes = {i: sizes_of(candidates.all[i].device) for i in suits}
    largest = _largest(sizes.values())
    wastes = {i: _waste(_left_of(candidates, i, of_device), largest) for i, of_device in sizes.items()}
    return sorted(suits, key=lambda i: (groups.get(i, 0), _breakage(view, i), wastes[i]))


def _group_sizes(view: View, alternative: Alternative, suits: Sequence[int]) -> dict[int, int]:
    """How many candidates constraints would leave beside each; tight groups are used up first."""
    sizes: dict[int, int] = {}
    for _, spec in alternative.covering:
        values = {i: view.candidates.values(alternative, i, spec.attribute) for i in suits}
        for index, size in constraint_class(spec).group_sizes(values).items():
            sizes[index] = sizes.get(index, 0) + size
    return sizes


def _breakage(view: View, index: int) -> int:
    """1 for a device whose counter sets have nothing taken yet, else 0."""
    device = view.candidates.all[index].device
    if not device.consumes_counters:
        return 0
    left = view.counters.left(device.id.pool_id)
    full = view.counters.full(device.id.pool_id)
    return int(all(left[key] == full[key] for key, _ in counter_demand(device)))


def _largest(devices: Iterable[Sizes]) -> dict[str, int]:
    """The most that a device has of each capacity."""
    largest: dict[str, int] = {}
    for sizes in devices:
        for name, size in sizes:
            largest[name] = max(largest.get(name, 0), size)
    return largest


def _left_of(candidates: Candidates, index: int, sizes: Sizes) -> Sizes:
    """The capacities of a device; of a shared device, what is left of them."""
    if not candidates.is_shared(index):
        return sizes
    used = candidates.usage.device(candidates.all[index].device.id).consumed
    return tuple([(name, size - (used.get(name, 0) or used.get(name.partition("/")[2], 0))) for name, size in sizes])


def _waste(left: Sizes, largest: Mapping[str, int]) -> float:
    """The capacities of a device as shares of the largest ones, summed up."""
    return sum([size / largest[name] for name, size in left if largest[name] > 0])


# --- one device --------------------------------------------------------------------------------------------


def _least_waste(positions: Mapping[DeviceKind, int]) -> DeviceKind | None:
    left = [kind for kind in positions if not kind.is_short]
    if len(left) < 2:
        return left[0] if left else None
    largest = _largest(kind.sizes for kind in positions)
    return min(left, key=lambda kind: (kind.breaks, _waste(kind.sizes, largest), positions[kind]))


# --- score -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Range:
    """The least and the most of an amount among the nodes."""

    least: float
    most: float

    @classmethod
    def of(cls, amounts: Iterable[float]) -> "_Range":
        known = list(amounts)
        return cls(min(known, default=0.0), max(known, default=0.0))

    def excess(self, amount: float) -> float:
        """0 for the least, up to 1 for the most."""
        return (amount - self.least) / self.most if self.most > 0 else 0.0


def _scores(merits: Mapping[K, Merit]) -> dict[K, int]:
    """Least waste scores highest: excess capacity, devices left free, partitioned hardware newly broken up.

    Waste is what a node takes beyond the node that takes least, as a share of what the node that takes most takes.
    """
    all_merits = merits.values()
    names = {name for each in all_merits for name in each.capacity}
    capacities = {name: _Range.of(each.capacity.get(name, 0) for each in all_merits) for name in names}
    free = _Range.of(each.free for each in all_merits)
    broken = _Range.of(each.broken for each in all_merits)

    def fitness(each: Merit) -> float:
        excess = [capacities[name].excess(each.capacity.get(name, 0)) for name in names]
        capacity = sum(excess) / len(excess) if excess else 0.0
        waste = _CAPACITY * capacity + _FREE * free.excess(each.free) + _BROKEN * broken.excess(each.broken)
        return 1.0 - waste / (_CAPACITY + _FREE + _BROKEN)

    return in_bands(merits, fitness)


# --- words -------------------------------------------------------------------------------------------------


def _why(merit: Merit, every: Sequence[Merit]) -> Iterator[str]:
    for name in sorted({name for each in every for name in each.capacity}):
        amounts = {each.capacity.get(name, 0) for each in every}
        if len(amounts) > 1:
            least, most = _shown(min(amounts)), _shown(max(amounts))
            amount = _shown(merit.capacity.get(name, 0))
            yield f"devices with {amount} of {name.rpartition('/')[2]} (all nodes: {least} to {most})"
    if len({each.broken for each in every}) > 1:
        yield "breaks up a whole device" if merit.broken else "breaks up no whole device"
    if len({each.free for each in every}) > 1:
        yield f"leaves {merit.free:.0%} of its pools free"


def _shown(nano: int) -> str:
    """In binary units if the amount is round in them."""
    is_binary = nano >= _BINARY_FROM and nano % _BINARY_FROM == 0
    return str(Quantity.from_nano(nano, Format.BINARY_SI if is_binary else Format.DECIMAL_SI))


BEST_FIT: Final = Policy("best-fit", _orders, _least_waste, _scores, _why)
