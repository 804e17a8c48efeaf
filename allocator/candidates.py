"""The devices of one node as candidates for requests, and what speaks against each, judged once and only when asked.

Judging late matters: a selector may fail on a device, and that must not fail a pod which never needs it.
"""

from collections.abc import Hashable, Mapping
from typing import Final, NamedTuple

from allocator.capacity import Capacities, CapacityArithmeticError, consumption, exceeded
from allocator.cel import CelError
from allocator.constraints import values_of
from allocator.effort import TimedSelectors
from allocator.errors import AllocatorError, CapacityError, SearchLimitError, SelectorError
from allocator.features import Features
from allocator.model import (
    AttributeValue,
    Claim,
    ConstraintSpec,
    Device,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    Node,
    PoolId,
    Slice,
)
from allocator.nodes import placement_matches
from allocator.outcome import Cause
from allocator.pools import Candidate, NodePool
from allocator.quantity import Quantity
from allocator.taints import TaintRules, blocking_taint
from allocator.usage import FREE, NOTHING_USED, DeviceUsage, Usage

NODE_OPERATIONS_FEATURE = "DRAOptionalNodeOperations"
"""What a node declares that can do without some of the calls to a driver (KEP-5328)."""


class Expression(NamedTuple):
    """A selector and where it stands."""

    text: str
    source: str


class Refusal(NamedTuple):
    """What speaks against a device."""

    cause: Cause
    detail: str = ""


_SOME_LIST: Final = ("",)
"""Where list-typed attributes are off, what a list holds does not matter: not even whether it holds anything."""

SUITS = Refusal(Cause.COUNT)
"""Nothing speaks against the device as such; whether it gets chosen is the search's matter."""


class OrderMattersError(AllocatorError):
    """A list, where list-typed attributes are off: it suits a constraint only as the first device (upstream's rule)."""


UNJUDGED: Final = (SelectorError, CapacityError, OrderMattersError)
"""What may be raised where a device is judged: who looks ahead has to do without, the search may never come to it."""


class Alternative:
    """One way to serve a request, with what is known of each candidate so far.

    Attributes:
        claim: position of the claim.
        covering: the constraints that speak of it, with their numbers in the claim.
        label: request, or request/subrequest.
        members: for "all devices": the candidates that these are.
        verdicts: per candidate; None until it is judged.
        taken: per shared candidate that suits: what the request would consume of it.
    """

    __slots__ = (
        "claim",
        "covering",
        "device_class",
        "expressions",
        "label",
        "members",
        "request",
        "request_name",
        "taken",
        "verdicts",
    )

    def __init__(
        self,
        claim: int,
        request_name: str,
        request: DeviceRequest,
        label: str,
        device_class: DeviceClass,
        expressions: tuple[Expression, ...],
        candidates: int,
    ) -> None:
        self.claim = claim
        self.request_name = request_name
        self.request = request
        self.label = label
        self.device_class = device_class
        self.expressions = expressions
        self.covering: tuple[tuple[int, ConstraintSpec], ...] = ()
        self.members: tuple[int, ...] | None = None
        self.verdicts: list[Refusal | None] = [None] * candidates
        self.taken: dict[int, dict[str, Quantity]] = {}

    @property
    def need(self) -> int:
        """How many devices it takes."""
        return self.request.count if self.members is None else len(self.members)


class Candidates:
    """The devices that a node can reach, in order: pools by driver and name, slices by name, devices as listed."""

    def __init__(
        self,
        claims: tuple[Claim, ...],
        node: Node,
        pools: tuple[NodePool, ...],
        usage: Usage,
        rules: TaintRules,
        features: Features,
        selectors: TimedSelectors,
    ) -> None:
        self._claims = claims
        self._node = node
        self._features = features
        self._selectors = selectors
        self._rules = rules
        self.usage = usage
        self.capacities = Capacities(usage)
        self.all: list[Candidate] = [c for p in pools for c in p.candidates]
        self.count = len(self.all)
        self.held = bytearray(self.count)
        self._in_use: dict[int, DeviceUsage] = {}
        start = 0
        for pool in pools:
            used = usage.pools.get(pool.id, NOTHING_USED)
            for index, candidate in enumerate(pool.candidates if used else (), start):
                of_device = used.get(candidate.device.id.device)
                if of_device is not None:
                    self._in_use[index] = of_device
                    self.held[index] = of_device.holders > 0
            start += len(pool.candidates)

    def is_shared(self, index: int) -> bool:
        """May several claims hold the device at once?"""
        return self._features.consumable_capacity and self.all[index].device.allow_multiple_allocations

    def judge(self, alternative: Alternative, index: int) -> Refusal:
        """What speaks against a candidate regardless of the attempt that is under way; `SUITS` if nothing does.

        Raises:
            SelectorError: a selector does not compile or fails on the device.
            CapacityError: the consumption cannot be computed.
            SearchLimitError: time is up.
        """
        verdict = alternative.verdicts[index]
        if verdict is None:
            verdict = alternative.verdicts[index] = self._judge(alternative, index)
        return verdict

    def members(self, alternative: Alternative, *, consumable: bool) -> tuple[int, ...]:
        """The candidates of an "all devices" request. Total capacity decides who belongs, not what is left of it."""
        found = []
        for index, candidate in enumerate(self.all):
            refusal = self._unselectable(alternative, candidate)
            if refusal is None and consumable:
                refusal = self._too_small(alternative, index, {})
            if refusal is None:
                found.append(index)
            else:
                alternative.verdicts[index] = refusal
        return tuple(found)

    def refusal_if_free(self, alternative: Alternative, index: int) -> Refusal | None:
        """What speaks against a device that is in use, its user aside: a reason that stays when the user goes."""
        try:
            return self._unselectable(alternative, self.all[index])
        except (SelectorError, SearchLimitError):
            return None

    def may_come_from(self, alternative: Alternative, pool: PoolId) -> bool:
        """Could devices of a pool that can't be used match? Unless the driver alone rules them out, yes."""
        unknown = Candidate(Device(DeviceId(pool.driver, pool.pool, "")), Slice("", pool))
        try:
            return self._unselectable(alternative, unknown) is None
        except (SelectorError, SearchLimitError):
            return True

    def value(self, alternative: Alternative, index: int, attribute: str) -> AttributeValue:
        """What a constraint sees of a candidate: the request's own derived attribute, else the published one.

        An empty list, which suits no constraint, where there is none.

        Raises:
            SelectorError: the expression of a derived attribute does not compile, fails, or yields another type.
            SearchLimitError: time is up.
        """
        device, lists = self.all[index].device, self._features.list_type_attributes
        for derived in alternative.request.derived_attributes:
            if derived.name == attribute:
                try:
                    derivation = self._selectors.derive(derived.expression, device)
                    return derivation or _SOME_LIST if isinstance(derivation, tuple) and not lists else derivation
                except CelError as error:
                    source = f"derived attribute {derived.name}"
                    raise self._failure(alternative, source, device, str(error)) from error
        return device.attributes.get(attribute, ())

    def values(self, alternative: Alternative, index: int, attribute: str) -> frozenset[Hashable]:
        """The same as comparable elements, for foresight: which devices go together, in whichever order.

        Raises:
            SelectorError: as `value`.
            OrderMattersError: the order decides, so there is no foresight.
        """
        value = self.value(alternative, index, attribute)
        if value and isinstance(value, tuple) and not self._features.list_type_attributes:
            raise OrderMattersError(f"{attribute} of {self.all[index].device.id} is a list")
        return values_of(value)

    def _judge(self, alternative: Alternative, index: int) -> Refusal:
        candidate = self.all[index]
        device, request = candidate.device, alternative.request
        if self.held[index] and not request.admin_access:
            return Refusal(Cause.IN_USE)
        refusal = self._unselectable(alternative, candidate)
        if refusal is not None:
            return refusal
        measured = device.capacity or request.capacity is not None or device.allow_multiple_allocations
        if measured and self._features.consumable_capacity:
            # Of "all devices", what is left counts only when they are taken.
            already = {} if alternative.members is not None else self._in_use.get(index, FREE).consumed
            refusal = self._too_small(alternative, index, already)
            if refusal is not None:
                return refusal
        return self._unallocatable(candidate, request) or SUITS

    def _unselectable(self, alternative: Alternative, candidate: Candidate) -> Refusal | None:
        device = candidate.device
        if device.binding_conditions and not self._features.binding_conditions:
            return Refusal(Cause.BINDING_CONDITIONS)
        for expression in alternative.expressions:
            if candidate.unsupported:
                raise self._failure(
                    alternative, expression.source, device, f"attribute {candidate.unsupported}: unsupported value"
                )
            try:
                if not self._selectors.matches(expression.text, device):
                    return Refusal(Cause.SELECTOR, expression.source)
            except CelError as error:
                raise self._failure(alternative, expression.source, device, str(error)) from error
        if candidate.slice.per_device_placement and not (
            device.placement is not None and placement_matches(device.placement, self._node)
        ):
            return Refusal(Cause.UNREACHABLE)
        return None

    def _unallocatable(self, candidate: Candidate, request: DeviceRequest) -> Refusal | None:
        device = candidate.device
        if candidate.slice.skip_node_operations and not (
            self._features.optional_node_operations and NODE_OPERATIONS_FEATURE in self._node.declared_features
        ):
            return Refusal(Cause.NODE_OPERATIONS)
        if device.consumes_counters and not self._features.partitionable_devices:
            return Refusal(Cause.PARTITION)
        if self._features.device_taints:
            taint = blocking_taint(device, request.tolerations, self._rules)
            if taint is not None:
                return Refusal(Cause.TAINT, f"{taint.key}={taint.value}:{taint.effect}")
        return None

    def _too_small(self, alternative: Alternative, index: int, already: Mapping[str, int]) -> Refusal | None:
        device = self.all[index].device
        taken = self._consumption(alternative, device)
        if taken is None:
            return Refusal(Cause.CAPACITY, "as requested")
        short = exceeded(device, taken, already)
        if short is not None:
            return Refusal(Cause.CAPACITY, short)
        if device.allow_multiple_allocations:
            alternative.taken[index] = taken
        return None

    def _consumption(self, alternative: Alternative, device: Device) -> dict[str, Quantity] | None:
        try:
            return consumption(
                device, alternative.request.capacity, fractional=self._features.fractional_capacity_range
            )
        except CapacityArithmeticError as error:
            claim = str(self._claims[alternative.claim])
            raise CapacityError(claim, alternative.label, str(error), device.id) from error

    def _failure(self, alternative: Alternative, source: str, device: Device, message: str) -> SelectorError:
        claim = str(self._claims[alternative.claim])
        return SelectorError(claim, alternative.label, source, device.id, message)
