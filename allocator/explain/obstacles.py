"""Everything that speaks against a device, where the search stops at the first thing.

The checks are the search's own, by the same functions. "In use" comes late: a device that would not match if it were
free is told to be one that does not match.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from allocator.candidates import NODE_OPERATIONS_FEATURE
from allocator.capacity import CapacityArithmeticError, consumption
from allocator.cel import CelError, Reads
from allocator.compatibility import Compatibility
from allocator.counters import Counters, demand
from allocator.explain.conditions import Values, conditions, in_words, values, wish
from allocator.explain.names import nearest, nearest_attribute
from allocator.features import Features
from allocator.model import Claim, Device, DeviceClass, DeviceId, DeviceRequest, DeviceTaint, Node, PoolId
from allocator.nodes import placement_matches
from allocator.outcome import Cause
from allocator.pools import Candidate, NodePool
from allocator.quantity import Quantity
from allocator.selectors import Selectors
from allocator.taints import BLOCKING_EFFECTS, TaintRules, tolerates
from allocator.usage import Usage


@dataclass(frozen=True, slots=True)
class Wanted:
    """One way to serve a request.

    Attributes:
        claim: position of the claim among those that are looked at.
        label: request, or request/subrequest.
        selectors: where each stands, its text, and its number in the request (None: it is the class's).
    """

    claim: int
    request_name: str
    label: str
    request: DeviceRequest
    selectors: tuple[tuple[str, str, int | None], ...]

    @property
    def question(self) -> Hashable:
        """Equal for ways whose answers are the same for every device."""
        return replace(self.request, name="", count=1), self.selectors


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a device from a request. Equal ones are one cause, on however many devices.

    Attributes:
        subject: the selector's place, the taint, the capacity, ``set/counter``, the feature gate.
        condition: the part of the selector that does not hold, or that fails.
        number: of a selector of the request: which one; -1 for a class's.
        part: which of its conditions; -1 for all that a class's selector says.
        wanted: the value that the condition compares with, where it is as simple as that.
        need: what is asked for of a capacity or counter.
        error: why an expression fails, where it does.
        missing, meant: the attribute that is not there, and the one that may have been meant.
        taint: without its time.
        rule: the DeviceTaintRule that it comes from; empty for a taint of the driver.
    """

    cause: Cause
    subject: str = ""
    condition: str = ""
    number: int = -1
    part: int = -1
    wanted: str = ""
    need: str = ""
    error: str = ""
    missing: str = ""
    meant: str = ""
    taint: DeviceTaint | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """An obstacle, with the values that the device has. ``left``: of the capacity or counter that is short."""

    obstacle: Obstacle
    values: Values = ()
    left: Quantity | None = None


IN_USE = Seen(Obstacle(Cause.IN_USE))


def ways(claims: tuple[Claim, ...], classes: Mapping[str, DeviceClass]) -> tuple[tuple[Wanted, ...], ...]:
    """The requests of all claims in order, each with its alternatives, as far as their classes exist."""
    return tuple(
        tuple(
            Wanted(
                index,
                request.name,
                f"{request.name}/{each.name}" if request.prioritized else request.name,
                each,
                _selectors(each, classes[each.device_class]),
            )
            for each in request.alternatives
            if each.device_class in classes
        )
        for index, claim in enumerate(claims)
        for request in claim.spec.requests
    )


def _selectors(request: DeviceRequest, of: DeviceClass) -> tuple[tuple[str, str, int | None], ...]:
    return (
        *((f"class {of.name}, selector {i}", text, None) for i, text in enumerate(of.selectors)),
        *((f"selector {i}", text, i) for i, text in enumerate(request.selectors)),
    )


class Inspector:
    """Looks at devices, given what is held. Of one explanation: it remembers what selectors say of which values."""

    def __init__(self, usage: Usage, rules: TaintRules, features: Features, selectors: Selectors) -> None:
        self.usage = usage
        self._rules = rules
        self._features = features
        self._selectors = selectors
        self._reads: dict[str, Reads] = {}
        self._known: dict[Hashable, tuple[Seen, ...]] = {}
        self._counters: dict[int, tuple[Counters, Compatibility]] = {}

    def obstacles(self, wanted: Wanted, candidate: Candidate, pool: NodePool, node: Node) -> Iterator[Seen]:
        """What speaks against a device, in the order in which it is told; nothing: it is free, and suits as such."""
        device, request = candidate.device, wanted.request
        if device.binding_conditions and not self._features.binding_conditions:
            yield Seen(Obstacle(Cause.BINDING_CONDITIONS, "DRADeviceBindingConditions"))
        for source, text, number in wanted.selectors:
            yield from self._unmatched(source, text, -1 if number is None else number, candidate)
        if candidate.slice.per_device_placement and not (
            device.placement is not None and placement_matches(device.placement, node)
        ):
            yield Seen(Obstacle(Cause.UNREACHABLE))
        if self._features.consumable_capacity:
            yield from self._too_small(request, device)
        if candidate.slice.skip_node_operations and not (
            self._features.optional_node_operations and NODE_OPERATIONS_FEATURE in node.declared_features
        ):
            yield Seen(Obstacle(Cause.NODE_OPERATIONS, NODE_OPERATIONS_FEATURE))
        if device.consumes_counters and not self._features.partitionable_devices:
            yield Seen(Obstacle(Cause.PARTITION, "DRAPartitionableDevices"))
        if self._features.device_taints:
            yield from self._tainted(request, device)
        if not request.admin_access and self.usage.device(device.id).holders > 0:
            yield IN_USE
        yield from self._short_of_counters(device, pool)

    def may_come_from(self, wanted: Wanted, pool: PoolId) -> bool:
        """Could devices of a pool that can't be used match? Unless the driver alone rules them out, yes."""
        unknown = Device(DeviceId(pool.driver, pool.pool, ""))
        return all(self._error(text, unknown) != "" for _, text, _ in wanted.selectors)

    def holds(self, expression: str, device: Device) -> bool:
        """Whether an expression is true of a device; one that fails is not."""
        return self._error(expression, device) is None

    def reads(self, expression: str) -> Reads:
        """What an expression reads; everything, if it does not compile."""
        if expression not in self._reads:
            try:
                self._reads[expression] = self._selectors.reads(expression)
            except CelError:
                self._reads[expression] = Reads(everything=True)
        return self._reads[expression]

    def _unmatched(self, source: str, text: str, number: int, candidate: Candidate) -> tuple[Seen, ...]:
        """The conditions of a selector that don't hold. Devices with the same values are looked at once."""
        device, reads = candidate.device, self.reads(text)
        if candidate.unsupported:
            error = f"attribute {candidate.unsupported}: unsupported value"
            return (Seen(Obstacle(Cause.SELECTOR, source, text.strip(), number, error=error)),)
        if reads.everything:
            return self._judged(source, text, number, device)
        key = (
            (source, text, device.driver, device.allow_multiple_allocations),
            tuple([_key(device.attributes.get(name)) for name in reads.attributes]),
            tuple([device.quantities.get(name) for name in reads.capacities]),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._judged(source, text, number, device)
        return found

    def _judged(self, source: str, text: str, number: int, device: Device) -> tuple[Seen, ...]:
        error = self._error(text, device)
        if error is None:
            return ()
        parts = conditions(text)
        failed = [(part, self._error(each, device)) for part, each in enumerate(parts)]
        # What fails is of no account beside what does not hold, as in the language.
        false = [part for part, why in failed if why == ""]
        told = false or [part for part, why in failed if why]
        if len(parts) == 1 or (error and false) or not told:
            return (self._told(source, text, number, -1 if number < 0 else 0, device, error),)
        return tuple(self._told(source, parts[part], number, part, device, failed[part][1] or "") for part in told)

    def _told(self, source: str, condition: str, number: int, part: int, device: Device, error: str) -> Seen:
        reads = self.reads(condition)
        wanted = wish(condition)
        missing = next((name for name in reads.attributes if name not in device.attributes), "") if error else ""
        obstacle = Obstacle(
            Cause.SELECTOR,
            source,
            condition,
            number,
            part,
            wanted="" if wanted is None or len(values(reads, device)) != 1 else in_words(wanted.value),
            error=error,
            missing=missing,
            meant=nearest_attribute(missing, device) if missing else "",
        )
        return Seen(obstacle, () if error else values(reads, device))

    def _error(self, expression: str, device: Device) -> str | None:
        """None: it holds; empty: it does not; else why it fails."""
        try:
            return None if self._selectors.matches(expression, device) else ""
        except CelError as error:
            return str(error).partition("\n")[0]

    def _too_small(self, request: DeviceRequest, device: Device) -> Iterator[Seen]:
        lacking = [(name, amount) for name, amount in request.capacity or () if name not in device.capacity]
        for name, amount in lacking:
            meant = nearest(name, device.capacity)
            yield Seen(Obstacle(Cause.CAPACITY, name, need=str(amount), missing=name, meant=meant))
        if lacking:
            return
        try:
            taken = consumption(device, request.capacity, fractional=self._features.fractional_capacity_range)
        except CapacityArithmeticError as error:
            yield Seen(Obstacle(Cause.CAPACITY, error=str(error)))
            return
        if taken is None:
            asked = ", ".join(f"{name} {amount}" for name, amount in request.capacity or ())
            yield Seen(Obstacle(Cause.CAPACITY, need=asked, error="the request policy does not allow it"))
            return
        consumed = self.usage.device(device.id).consumed
        for name, amount in taken.items():
            full = device.capacity[name].value
            rest = full.nano - consumed.get(name, 0)
            if amount.nano > rest:
                left = Quantity.from_nano(rest, full.format)
                short = Obstacle(Cause.CAPACITY, name, need=str(amount))
                yield Seen(short, ((name, f"{left} of {full} free"),), left)

    def _tainted(self, request: DeviceRequest, device: Device) -> Iterator[Seen]:
        of_rules = ((t, rule.name) for rule in self._rules.rules for t in TaintRules((rule,)).taints_of(device.id))
        for taint, rule in (*((taint, "") for taint in device.taints), *of_rules):
            if taint.effect in BLOCKING_EFFECTS and not any(tolerates(t, taint) for t in request.tolerations):
                alike = DeviceTaint(taint.key, taint.effect, taint.value)
                yield Seen(Obstacle(Cause.TAINT, taint_text(taint), taint=alike, rule=rule))

    def _short_of_counters(self, device: Device, pool: NodePool) -> Iterator[Seen]:
        if not device.consumes_counters or not self._features.partitionable_devices or self._is_shared(device):
            return
        counters, compatibility = self._books(pool)
        if self._features.compatibility_groups and not compatibility.admits(device):
            yield Seen(Obstacle(Cause.COMPATIBILITY))
        key = counters.shortage(device)
        if key is None:
            return
        need = dict(demand(device)).get(key, 0)
        full, left = pool.counter_sets[key[1]][key[2]], counters.left(pool.id)[key]
        rest = Quantity.from_nano(left, full.format)
        yield Seen(
            Obstacle(Cause.COUNTERS, f"{key[1]}/{key[2]}", need=str(Quantity.from_nano(need, full.format))),
            ((f"{key[1]}/{key[2]}", f"{rest} of {full} left"),),
            rest,
        )

    def _is_shared(self, device: Device) -> bool:
        """A further share of a device draws nothing from its counters."""
        used = self.usage.device(device.id)
        shareable = self._features.consumable_capacity and device.allow_multiple_allocations
        return shareable and bool(used.shares or used.consumed)

    def _books(self, pool: NodePool) -> tuple[Counters, Compatibility]:
        if id(pool) not in self._counters:
            of = {pool.id: pool}
            self._counters[id(pool)] = (Counters(of, self.usage), Compatibility(of, self.usage))
        return self._counters[id(pool)]


def taint_text(taint: DeviceTaint) -> str:
    """A taint as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _key(value: object) -> Hashable:
    """``True`` is not 1."""
    return type(value), value if not isinstance(value, tuple) else tuple(map(_key, value))
