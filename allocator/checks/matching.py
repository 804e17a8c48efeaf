"""The selectors of class and request: a device must match all of them."""

from collections.abc import Hashable, Iterator
from typing import Final

from allocator.cel import CelError
from allocator.checks.check import Asked, Check, Refusal, Situation
from allocator.errors import SelectorError
from allocator.model.slices.device import Device
from allocator.obstacles.obstacle import Seen
from allocator.obstacles.unmet_conditions import Expressions
from allocator.pools import Candidate
from allocator.reason import NO_MATCH
from allocator.usage import DeviceUsage


def _speaks(situation: Situation, asked: Asked, candidate: Candidate, _: DeviceUsage) -> Refusal | None:
    device, matches = candidate.device, situation.matches
    for selector in asked.selectors:
        if candidate.unsupported:
            raise failure(asked, selector.source, device, f"attribute {candidate.unsupported}: unsupported value")
        try:
            if not matches(selector.text, device):
                return Refusal(NO_MATCH, selector.source)
        except CelError as error:
            raise failure(asked, selector.source, device, str(error)) from error
    return None


def failure(asked: Asked, source: str, device: Device, message: str) -> SelectorError:
    """The error for an expression that can't be evaluated on a device."""
    return SelectorError(str(asked.owner), asked.label, source, device.id, message)


def _obstacles(
    _: Situation, asked: Asked, candidate: Candidate, __: DeviceUsage, expressions: Expressions
) -> Iterator[Seen]:
    for selector in asked.selectors:
        yield from expressions.unmet(selector, candidate)


def _reads(candidate: Candidate) -> Hashable:
    """What expressions can read without attributes; for these see `allocator.equivalence.fingerprint`."""
    device = candidate.device
    quantities = tuple([(name, each.nano, each.format) for name, each in device.quantities.items()])
    return candidate.unsupported, device.allow_multiple_allocations, quantities


MATCHING: Final = Check(NO_MATCH, _speaks, passes_free=True, obstacles=_obstacles, reads=_reads)
