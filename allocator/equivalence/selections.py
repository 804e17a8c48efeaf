"""Claims that get the same answer from some devices: they differ only in selectors, which match the same devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from allocator.cel import CelError
from allocator.cel.selectors import Selectors
from allocator.errors import SearchLimitError
from allocator.model.claims import ClaimSpec, DeviceRequest
from allocator.model.device_classes import DeviceClass
from allocator.pools import Candidate
from allocator.search.limits import SearchBudget, TimedSelectors


def without_selectors(spec: ClaimSpec) -> ClaimSpec:
    """What a claim asks for besides the selectors of its requests. Those of the device classes count by class name."""
    requests = (
        replace(request, alternatives=tuple(replace(each, selectors=()) for each in request.alternatives))
        for request in spec.requests
    )
    return replace(spec, requests=tuple(requests))


def selection_of(
    specs: Iterable[ClaimSpec],
    classes: Mapping[str, DeviceClass],
    candidates: Sequence[Candidate],
    selectors: Selectors,
    budget: SearchBudget,
) -> tuple[int, ...] | None:
    """Which candidates the selectors of claims match: bits, for each alternative of each request.

    Two claims that are equal `without_selectors` and in this get the same answer from nodes with these candidates only.

    Returns:
        None if that is not known: a class does not exist, a selector fails on a candidate, or time was up.
    """
    timed = TimedSelectors(selectors, budget)
    ways = (each for spec in specs for request in spec.requests for each in request.alternatives)
    try:
        return tuple([_matched(each, classes, candidates, timed) for each in ways])
    except (CelError, SearchLimitError, _UnknownError):
        return None


class _UnknownError(Exception):
    """An answer that selectors alone do not tell."""


def _matched(
    way: DeviceRequest, classes: Mapping[str, DeviceClass], candidates: Iterable[Candidate], timed: TimedSelectors
) -> int:
    device_class = classes.get(way.device_class)
    if device_class is None:
        raise _UnknownError
    texts = (*device_class.selectors, *way.selectors)

    def bits() -> Iterator[int]:
        for place, each in enumerate(candidates):
            if each.unsupported:
                raise _UnknownError
            if all(timed.matches(text, each.device) for text in texts):
                yield 1 << place

    return sum(bits())
