"""Best-fit: first devices of tight groups, then partitions of hardware that is in use already, then small devices."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from allocator.model.quantity import Format, Quantity
from allocator.model.slices.device import Device
from allocator.policies.merit import Merit
from allocator.policies.policy import (
    DeviceKind,
    K,
    Policy,
    Range,
    Sizes,
    in_bands,
    sizes_of,
    sorted_orders,
    use_in_words,
)
from allocator.policies.policy_view import PolicyView
from allocator.search.candidates import Alternative, Candidates
from allocator.search.constraints import constraint_class

_CAPACITY, _FREE, _BROKEN = 3, 2, 2
"""Weights of the parts of waste: excess capacity, nodes with free devices, hardware newly broken up."""


# --- order -------------------------------------------------------------------------------------------------


def by_waste(view: PolicyView, alternative: Alternative, suits: Sequence[int]) -> Sequence[int]:
    """Suitable candidates, least waste first."""
    candidates = view.candidates
    if len(suits) < 2 or (not alternative.covering and _are_equal([candidates.all[i].device for i in suits])):
        return suits
    groups = _group_sizes(view, alternative, suits)
    sizes = {i: sizes_of(candidates.all[i].device) for i in suits}
    largest = _largest(sizes.values())
    wastes = {i: _waste(_left_of(candidates, i, of_device), largest) for i, of_device in sizes.items()}
    return sorted(suits, key=lambda i: (groups.get(i, 0), view.breakage(i), wastes[i]))


def _are_equal(devices: Sequence[Device]) -> bool:
    """Whether nobody shares the devices, and they are whole and equally large. Devices of a slice share equal maps."""
    capacity = devices[0].capacity
    return not [
        each
        for each in devices
        if each.capacity is not capacity or each.consumes_counters or each.allow_multiple_allocations
    ]


def _group_sizes(view: PolicyView, alternative: Alternative, suits: Sequence[int]) -> dict[int, int]:
    """The number of candidates that constraints would leave beside each; tight groups are used up first."""
    sizes: dict[int, int] = {}
    for _, spec in alternative.covering:
        values = {i: view.candidates.values(alternative, i, spec.attribute) for i in suits}
        for index, size in constraint_class(spec).group_sizes(values).items():
            sizes[index] = sizes.get(index, 0) + size
    return sizes


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


def least_waste(positions: Mapping[DeviceKind, int]) -> DeviceKind | None:
    """The kind that `by_waste` would take first; see `Policy.single`."""
    left = [kind for kind in positions if not kind.is_short]
    if len(left) < 2:
        return left[0] if left else None
    largest = _largest(kind.sizes for kind in positions)
    return min(left, key=lambda kind: (kind.breaks, _waste(kind.sizes, largest), positions[kind]))


# --- score -------------------------------------------------------------------------------------------------


def _scores(merits: Mapping[K, Merit]) -> dict[K, int]:
    """Least waste scores highest."""
    return in_bands(merits, thrift(merits.values()))


def thrift(all_merits: Collection[Merit]) -> Callable[[Merit], float]:
    """1 minus the waste: excess capacity, devices left free, partitioned hardware newly broken up.

    Three amounts count as waste. Each is compared between the nodes: 0 for the node with the least, and otherwise what
    a node has more than that, as a share of the greatest amount.
    """
    names = {name for each in all_merits for name in each.capacity}
    capacities = {name: Range.of(each.capacity.get(name, 0) for each in all_merits) for name in names}
    free = Range.of(each.free for each in all_merits)
    broken = Range.of(each.broken for each in all_merits)

    def found(each: Merit) -> float:
        excess = [capacities[name].excess(each.capacity.get(name, 0)) for name in names]
        capacity = sum(excess) / len(excess) if excess else 0.0
        waste = _CAPACITY * capacity + _FREE * free.excess(each.free) + _BROKEN * broken.excess(each.broken)
        return 1.0 - waste / (_CAPACITY + _FREE + _BROKEN)

    return found


# --- words -------------------------------------------------------------------------------------------------


def waste_in_words(merit: Merit, every: Sequence[Merit], nodes: str = "all nodes") -> Iterator[str]:
    """The waste of an allocation on a node, compared with the allocations on other nodes, which have this name."""
    for name in sorted({name for each in every for name in each.capacity}):
        amounts = {each.capacity.get(name, 0) for each in every}
        if len(amounts) > 1:
            least, most = _shown(min(amounts)), _shown(max(amounts))
            amount = _shown(merit.capacity.get(name, 0))
            yield f"devices with {amount} of {name.rpartition('/')[2]} ({nodes}: {least} to {most})"
    yield from use_in_words(merit, every)


def _shown(nano: int) -> str:
    """The amount in the units in which it is shorter: ``40Gi``, or ``40G`` instead of ``39062500Ki``."""
    return min((str(Quantity.from_nano(nano, form)) for form in (Format.BINARY_SI, Format.DECIMAL_SI)), key=len)


BEST_FIT: Final = Policy("best-fit", lambda view: sorted_orders(view, by_waste), least_waste, _scores, waste_in_words)
