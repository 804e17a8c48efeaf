"""The devices of one node as candidates for requests. Each is judged once, and only when the search needs it.

A selector fails on a device
must not reject a pod whose search never needs that device.
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from allocator.cel import CelError
from allocator.checks.capacity import Capacities, taken_by
from allocator.checks.check import Asked, Refusal, Situation
from allocator.checks.matching import failure
from allocator.checks.table import Checks, checks_for, first_refusal
from allocator.checks.taint_rules import TaintRules
from allocator.errors import CapacityError, SearchLimitError, SelectorError
from allocator.model.claims import ConstraintSpec, DeviceRequest
from allocator.model.device_classes import DeviceClass
from allocator.model.devices import AttributeValue, DeviceId, PoolId
from allocator.model.features import Features
from allocator.model.nodes import Node
from allocator.model.quantity import Quantity
from allocator.model.slices.device import Device
from allocator.model.slices.slice import Slice
from allocator.pools import Candidate, NodePool
from allocator.reason import COUNT
from allocator.search.constraints import values_of
from allocator.search.limits import TimedSelectors
from allocator.tools.fields import AllocatorError
from allocator.usage import FREE, NOTHING_USED, DeviceUsage, Usage

_SOME_LIST: Final = ("",)
"""Any list: while list-typed attributes are off, the elements of a list do not matter, and it may be empty."""

_TAKEN: Final = DeviceUsage(holders=1)
"""The usage of a device that is not offered: a claim seems to hold it, but its counters are not used up."""

SUITS = Refusal(COUNT)
"""In place of a refusal, for a device that nothing speaks against; the search decides whether it is taken."""


class OrderMattersError(AllocatorError):
    """A list, while list-typed attributes are off: it satisfies a constraint only as the first device (upstream)."""


UNJUDGED: Final = (SelectorError, CapacityError, OrderMattersError)
"""What judging a device may raise. Who judges ahead of the search ignores it: the search may never get there."""


@dataclass(slots=True, eq=False)
class Alternative(Asked):
    """One way to serve a request, with what is known of each candidate so far.

    Attributes:
        checks: what can speak against the candidates.
        covering: the constraints that cover it, with their positions in the claim.
        refusals: per candidate, what speaks against it, whatever else is taken; `SUITS` if nothing does, None until it
            is judged.
        need: how many devices it takes.
        members: the candidates that a request for all devices takes; None for other requests.
        taken: what the request would consume of a shared candidate that suits.
    """

    device_class: DeviceClass
    checks: Checks
    covering: tuple[tuple[int, ConstraintSpec], ...]
    refusals: list[Refusal | None]
    need: int
    members: tuple[int, ...] | None = None
    taken: dict[int, Mapping[str, Quantity]] = field(default_factory=dict)


class Candidates:
    """The devices that a node can reach, in order: pools by driver and name, slices by name, devices as listed.

    Attributes:
        fields: the fields of devices and slices that are set in any of them (`NodePool.fields`).
        held: per candidate, whether an allocated claim holds it as a whole, or it is not offered.
    """

    def __init__(
        self,
        node: Node,
        pools: tuple[NodePool, ...],
        usage: Usage,
        rules: TaintRules,
        features: Features,
        selectors: TimedSelectors,
        among: Collection[DeviceId] | None = None,
    ) -> None:
        self._situation = Situation(node, rules, features, selectors.matches)
        self.fields = pools[0].fields if len(pools) == 1 else frozenset().union(*(pool.fields for pool in pools))
        self._features = features
        self._selectors = selectors
        self.usage = usage
        self.capacities = Capacities(usage)
        self.all: list[Candidate] = [c for p in pools for c in p.candidates]
        self.count = len(self.all)
        self.held = bytearray(self.count)
        self._in_use: dict[int, DeviceUsage] = {}
        self._values: dict[tuple[str, int], frozenset[Hashable]] = {}
        start = 0
        for pool in pools:
            used = usage.pools.get(pool.id, NOTHING_USED)
            for index, candidate in enumerate(pool.candidates if used else (), start):
                of_device = used.get(candidate.device.id.device)
                if of_device is not None:
                    self._in_use[index] = of_device
                    self.held[index] = of_device.holders > 0
            start += len(pool.candidates)
        if among is not None:
            for index, candidate in enumerate(self.all):
                if candidate.device.id not in among:
                    self._in_use[index], self.held[index] = _TAKEN, True

    def checks(self, request: DeviceRequest) -> Checks:
        """What can speak against the candidates for a request."""
        return checks_for(self.fields, request, self._situation.rules, self._features)

    def is_shared(self, index: int) -> bool:
        """Whether several claims may hold the device at once."""
        return self._features.consumable_capacity and self.all[index].device.allow_multiple_allocations

    def has_consumption(self, index: int) -> bool:
        """Whether shares consume capacity of the device: it is shared, or it was when its shares were allocated."""
        held = self.usage.device(self.all[index].device.id)
        return self.is_shared(index) or (self._features.consumable_capacity and bool(held.consumed))

    def room(self, index: int) -> float:
        """The share of a candidate that is left, from 0 (nothing) to 1 (all of it).

        The share of a shared device is the share of the capacity with least left. Devices that the present search has
        taken as a whole still count as free; shares that it has taken
        count as taken.
        """
        if not self.is_shared(index):
            return float(index not in self._in_use)
        if self.held[index]:
            return 0.0
        device = self.all[index].device
        used = self.capacities.consumed(device.id)
        sizes = ((name, capacity.value.nano) for name, capacity in device.capacity.items())
        return min([max(0.0, 1 - used.get(name, 0) / size) for name, size in sizes if size > 0], default=1.0)

    def judge(self, alternative: Alternative, index: int) -> Refusal:
        """What speaks against a candidate, whatever the search has taken; `SUITS` if nothing does.

        Raises:
            SelectorError: a selector does not compile or fails on the device.
            CapacityError: the consumption cannot be computed.
            SearchLimitError: a limit was reached.
        """
        known = alternative.refusals[index]
        if known is None:
            used = self._in_use.get(index, FREE)
            refusal = first_refusal(alternative.checks.all, self._situation, alternative, self.all[index], used)
            known = alternative.refusals[index] = SUITS if refusal is None else refusal
        return known

    def taken(self, alternative: Alternative, index: int) -> Mapping[str, Quantity]:
        """What a request consumes of a shared candidate that suits."""
        taken = alternative.taken.get(index)
        if taken is None:
            taken = taken_by(alternative, self.all[index].device, self._features) or {}
            alternative.taken[index] = taken
        return taken

    def members(self, alternative: Alternative) -> tuple[int, ...]:
        """The candidates of a request for all devices: total capacity counts, not what is left of it."""
        found = []
        for index, candidate in enumerate(self.all):
            refusal = first_refusal(alternative.checks.of_members, self._situation, alternative, candidate, FREE)
            if refusal is None:
                found.append(index)
            else:
                alternative.refusals[index] = refusal
        return tuple(found)

    def refusal_if_free(self, alternative: Alternative, index: int) -> Refusal | None:
        """What would speak against the kind of a device if the device were free; None if nothing or an error."""
        try:
            return first_refusal(alternative.checks.of_kind, self._situation, alternative, self.all[index], FREE)
        except (SelectorError, SearchLimitError):
            return None

    def may_come_from(self, alternative: Alternative, pool: PoolId) -> bool:
        """Whether devices of an unusable pool could match: yes, unless the driver's name alone rules them out."""
        unknown = Candidate(Device(DeviceId(pool.driver, pool.pool, "")), Slice("", pool))
        try:
            return first_refusal(alternative.checks.of_kind, self._situation, alternative, unknown, FREE) is None
        except (SelectorError, SearchLimitError):
            return True

    def value(self, alternative: Alternative, index: int, attribute: str) -> AttributeValue:
        """What a constraint sees of a candidate: the request's derived attribute, else the published attribute.

        Without either, an empty list, which satisfies no constraint.

        Raises:
            SelectorError: the expression of a derived attribute does not compile, fails, or yields another type.
            SearchLimitError: a limit was reached.
        """
        candidate = self.all[index]
        device = candidate.device
        for derived in alternative.request.derived_attributes:
            if derived.name == attribute:
                source = f"derived attribute {derived.name}"
                if candidate.unsupported:
                    raise failure(alternative, source, device, f"attribute {candidate.unsupported}: unsupported value")
                try:
                    return self._as_seen(self._selectors.derive(derived.expression, device))
                except CelError as error:
                    raise failure(alternative, source, device, str(error)) from error
        found = device.attributes.get(attribute)
        return () if found is None else self._as_seen(found)

    def _as_seen(self, value: AttributeValue) -> AttributeValue:
        """Without list-typed attributes, upstream takes any list, or a value of unknown type, as the first device."""
        return value or _SOME_LIST if isinstance(value, tuple) and not self._features.list_type_attributes else value

    def values(self, alternative: Alternative, index: int, attribute: str) -> frozenset[Hashable]:
        """The elements of `value`, to tell in advance which devices satisfy a constraint together.

        Raises:
            SelectorError, SearchLimitError: as `value`.
            OrderMattersError: the order of devices decides, so nothing can be told in advance.
        """
        is_derived = bool(alternative.request.derived_attributes)
        found = None if is_derived else self._values.get((attribute, index))
        if found is None:
            value = self.value(alternative, index, attribute)
            if value and isinstance(value, tuple) and not self._features.list_type_attributes:
                raise OrderMattersError(f"{attribute} of {self.all[index].device.id} is a list")
            found = values_of(value)
            if not is_derived:
                self._values[attribute, index] = found
        return found
