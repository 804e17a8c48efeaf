"""The state of a device without a claim in mind: whether a claim can have it now, and what is in the way.

The question is the plainest one: can a claim have this device, if it asks for this one alone, with no selectors, no
tolerations and no amounts, on any node that reaches the device? The checks and books of the search answer it. For a
further share of a device, the claim asks for the smallest amounts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from enum import Enum
from operator import attrgetter, is_
from typing import Any, Final

from immutables import Map

from allocator.checks.capacity import as_refusal, capacity_left, gives_all, least_requests
from allocator.checks.check import Asked, DeviceState, Refusal, Situation, gate_off
from allocator.checks.compatibility import EXCLUDED, INCOMPATIBLE
from allocator.checks.counters import SHORT, Counters, counter_demand
from allocator.checks.in_use import state_if_held
from allocator.checks.placement import unreached
from allocator.checks.table import CHECK_OF, books, checks_for, circumstances, first_refusal
from allocator.checks.taint_rules import NO_RULES, TaintRules
from allocator.checks.taints import blocking_taint, taints_text
from allocator.errors import CapacityError
from allocator.model.claims import Claim, ClaimSpec, DeviceRequest
from allocator.model.devices import DeviceId, Toleration
from allocator.model.features import Features
from allocator.model.nodes import Node
from allocator.model.quantity import Quantity
from allocator.model.slices.device import Device
from allocator.model.slices.slice import Slice
from allocator.pools import Candidate, NodePool, Pool, hiding_gate
from allocator.usage import FREE, PoolUsage, Usage

_BEST_FIRST: Final = {state: rank for rank, state in enumerate(DeviceState)}

_PLAIN: Final = Asked(0, Claim("", "", "", ClaimSpec()), "", "", DeviceRequest(""), ())

_FREE: Final = (DeviceState.FREE, None)


class DeviceKind(Enum):
    """The kind of a device, for those who count. A free GPU with seven free partitions is one free GPU, not eight."""

    PHYSICAL = "physical"
    """Hardware of its own."""
    PARTITION = "partition"
    """A part of hardware: it excludes other parts of the hardware, or all of it (`Pool.partitions`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Vantage:
    """A node, and what it sees of a pool. If several nodes see the same, one node stands for all of them."""

    node: Node
    view: NodePool


class Vantages:
    """All vantages of a pool. Those of a plain pool are worked out when somebody asks: it is judged without them.

    Attributes:
        is_plain: a node sees the whole pool, and only what claims hold of a device keeps further claims from it.

    Args:
        pool: the pool.
        nodes: those that may reach it (`Pool.node_names`).
        features: of the cluster.
    """

    __slots__ = ("_features", "_found", "_nodes", "_pool", "is_plain")

    def __init__(self, pool: Pool, nodes: Iterable[Node], features: Features) -> None:
        is_plain = _is_plain(pool)
        self._pool = pool
        self._features = features
        self._nodes = tuple(nodes) if is_plain else ()
        self._found = None if is_plain else _vantages(pool, nodes, features)
        self.is_plain = bool(self._nodes)

    def __iter__(self) -> Iterator[Vantage]:
        """The different vantages."""
        if self._found is None:
            self._found = _vantages(self._pool, self._nodes, self._features)
        return iter(self._found)


_DESCRIBED: Final = {"id", "attributes", "capacity", "quantities"}
"""The fields of a device by which no check refuses it to a claim without wishes, but for capacities with a policy."""

_ALWAYS_SET: Final = {"name", "pool", "generation", "slice_count", "placement", "devices", "created", "revision"}


def _others(of: type[Device | Slice], known: AbstractSet[str]) -> tuple[Callable[[Any], object], object]:
    """A function that reads all other fields of a device or a slice, and their values if none of them is set."""
    others = [each for each in fields(of) if each.name not in known]
    return attrgetter(*(each.name for each in others)), tuple([each.default for each in others])


_of_device, _UNSET_IN_DEVICE = _others(Device, _DESCRIBED)
_of_slice, _UNSET_IN_SLICE = _others(Slice, _ALWAYS_SET)


def _is_plain(pool: Pool) -> bool:
    """Whether a pool is one slice for one node, and its devices have no optional fields."""
    if len(pool.slices) != 1:
        return False
    (only,), devices = pool.slices, pool.slices[0].devices
    capacities = {id(each.capacity): each.capacity for each in devices}  # most devices of a driver share one
    return (
        only.slice_count == 1
        and only.placement is not None
        and only.placement.node_name is not None
        and _of_slice(only) == _UNSET_IN_SLICE
        and all(_of_device(each) == _UNSET_IN_DEVICE for each in devices)
        and len({each.id.device for each in devices}) == len(devices)
        and all(gives_all(each) for each in capacities.values())
    )


def _vantages(pool: Pool, nodes: Iterable[Node], features: Features) -> tuple[Vantage, ...]:
    devices = _devices(pool)
    found: dict[object, Vantage] = {}
    for node in nodes:
        view = pool.at(node, features)
        if view is None:
            continue
        differences = tuple(circumstances(view, node, NO_RULES))
        found.setdefault((view, differences), Vantage(node, view))
        if not differences and _shows_all(view, devices):
            break  # no other node sees more
    return tuple(found.values())


def _devices(pool: Pool) -> list[Device]:
    return [device for origin in pool.newest for device in origin.devices]


def _shows_all(view: NodePool, devices: Sequence[Device]) -> bool:
    """Whether the candidates of a view are just these devices, in this order."""
    candidates = view.candidates
    return len(candidates) == len(devices) and all(map(is_, [each.device for each in candidates], devices))


class _Judge:
    """Judges the devices that are seen from one vantage."""

    def __init__(self, vantage: Vantage, used: PoolUsage, rules: TaintRules, features: Features) -> None:
        view = vantage.view
        of, usage = {view.id: view}, Usage(Map({view.id: used}) if used else Map())
        self._view = view
        self._used = used
        self._features = features
        self._situation = Situation(vantage.node, rules, features, lambda *_: True)
        self._checks = checks_for(view.fields, _PLAIN.request, rules, features).all
        self._is_simple = all(check.passes_free for check in self._checks)
        self._counters = Counters(of, usage)
        self._books = books(view.fields, self._counters, of, usage, features)

    def judge(self, candidate: Candidate) -> tuple[DeviceState, Refusal | None]:
        """The state of a device, and what speaks against the device."""
        device = candidate.device
        used = self._used.get(device.id.device, FREE)
        if used is FREE and self._is_simple and not device.consumes_counters:
            return _FREE
        is_shared = used.has_shares
        takes_share = is_shared and device.allow_multiple_allocations and self._features.consumable_capacity
        try:
            asked = self._asking_for_little(device) if is_shared else _PLAIN
            refusal = first_refusal(self._checks, self._situation, asked, candidate, used)
        except CapacityError as error:
            return DeviceState.UNUSABLE, as_refusal(error)
        if refusal is not None:
            return CHECK_OF[refusal.cause].state(device, used), refusal
        if device.consumes_counters and not takes_share:  # a further share draws nothing
            for book in self._books:
                refusal = book.refusal(device)
                if refusal is not None:
                    lacking = self._lacking(device)
                    return (DeviceState.UNUSABLE, lacking) if lacking is not None else (DeviceState.BLOCKED, refusal)
        return DeviceState.SHARED if is_shared else DeviceState.FREE, None

    def words(self, candidate: Candidate, refusal: Refusal) -> str:
        """What a refusal says of a device."""
        short = self.short(candidate.device, refusal)
        if short:
            return _short_text(short, self, candidate.device)
        if refusal.cause is INCOMPATIBLE:
            return EXCLUDED
        return CHECK_OF[refusal.cause].in_words(self._situation, candidate, refusal)

    def short(self, device: Device, refusal: Refusal) -> tuple[str, ...]:
        """The counters (``set/counter``) that are short, the refusal's first. Empty if the cause is another."""
        if refusal.cause is not SHORT:
            return ()
        left = self._counters.left(device.id.pool_id)
        short = (f"{key[1]}/{key[2]}" for key, amount in counter_demand(device) if left[key] < amount)
        return tuple(dict.fromkeys((refusal.detail, *short)))

    def left(self, name: str, device: Device) -> str:
        """What is left of a counter of a device's pool, and what the device needs of the counter."""
        counter_set, _, counter = name.partition("/")
        full, key = self._view.counter_sets[counter_set][counter], (device.id.pool_id, counter_set, counter)
        need = Quantity.from_nano(dict(counter_demand(device)).get(key, 0), full.format)
        left = Quantity.from_nano(self._counters.left(device.id.pool_id)[key], full.format)
        return f"{left} of {full} left of counter {name}, {need} needed"

    def _lacking(self, device: Device) -> Refusal | None:
        """The refusal if a counter is too small for the device even when nothing is taken from it; None otherwise."""
        full = self._counters.full(device.id.pool_id)
        lacking = (f"{key[1]}/{key[2]}" for key, amount in counter_demand(device) if amount > full[key])
        return next((Refusal(SHORT, name) for name in lacking), None)

    def _asking_for_little(self, device: Device) -> Asked:
        amounts = least_requests(device, fractional=self._features.fractional_capacity_range)
        return replace(_PLAIN, request=replace(_PLAIN.request, capacity=amounts or None))


@dataclass(frozen=True, slots=True)
class Hindrance:
    """A hindrance that keeps claims from a device, in words.

    Attributes:
        blockers: the devices in use that are in the way.
    """

    text: str = ""
    blockers: tuple[DeviceId, ...] = ()


class PoolStates:
    """The states of the devices that the newest generation of a pool publishes.

    Args:
        seen: all vantages of the pool.
        used: what claims hold of the pool.
    """

    __slots__ = ("_features", "_pool", "_rules", "_states", "_used", "seen")

    def __init__(self, pool: Pool, seen: Vantages, used: PoolUsage, rules: TaintRules, features: Features) -> None:
        self.seen = seen
        self._pool = pool
        self._used = used
        self._rules = rules if rules.rules and rules.concern(pool.id) else NO_RULES
        self._features = features
        self._states = self._judged()

    def __iter__(self) -> Iterator[tuple[Slice, Device, DeviceState]]:
        """Each device with its slice and its state, in the order published."""
        states = iter(self._states)
        return ((origin, device, next(states)) for origin in self._pool.newest for device in origin.devices)

    @property
    def _is_plain(self) -> bool:
        """Whether only what claims hold of a device, all of it or nothing, decides its state."""
        is_plain = self.seen.is_plain and self._rules is NO_RULES
        return is_plain and not any(each.has_shares for each in self._used.values())

    def numbers(self) -> Counter[tuple[DeviceKind, DeviceState]]:
        """The number of devices of each kind and state."""
        return Counter((self.kind_of(device), state) for _, device, state in self)

    @property
    def partitions(self) -> AbstractSet[str]:
        """The devices that are partitions, by name."""
        return frozenset() if self.seen.is_plain else self._pool.partitions

    def kind_of(self, device: Device) -> DeviceKind:
        """What a device of the pool is."""
        return DeviceKind.PARTITION if device.id.device in self.partitions else DeviceKind.PHYSICAL

    def is_tainted(self, device: Device, tolerations: Sequence[Toleration] = ()) -> bool:
        """Whether a taint keeps off further claims with these tolerations, whoever holds the device."""
        return self._features.device_taints and blocking_taint(device, tolerations, self._rules) is not None

    def capacities(self, device: Device) -> Iterator[tuple[str, str, str]]:
        """Each capacity of a device: its name, what is left of it, and all of it."""
        used = self._used.get(device.id.device, FREE)
        return ((name, str(left), str(total)) for name, left, total in capacity_left(device, used))

    def hindrance(self, origin: Slice, device: Device, state: DeviceState) -> Hindrance:
        """Why claims can't have a device, or how much of it they can have; nothing if its holders say it all.

        Args:
            origin: the slice of the device.
            device: a device of the pool.
            state: its state.
        """
        if state in (DeviceState.SHARED, DeviceState.ALLOCATED, DeviceState.CLASH):
            is_shared = self._used.get(device.id.device, FREE).has_shares
            rests = self.capacities(device) if is_shared else ()
            left = (f"{left} of {total} {name} left" for name, left, total in rests)
            tainted = (f"tainted {taints_text(device, self._rules)}",) if self.is_tainted(device) else ()
            return Hindrance(", ".join((*left, *tainted)))
        if state is DeviceState.FREE:
            return Hindrance()
        for vantage in self.seen:
            judge = self._judge(vantage)
            for candidate in vantage.view.candidates:
                found, refusal = judge.judge(candidate) if candidate.device is device else (None, None)
                if found is state and refusal is not None:
                    short = judge.short(device, refusal)
                    return Hindrance(judge.words(candidate, refusal), self._blockers(refusal, short, device, vantage))
        gate = hiding_gate(origin, self._features)
        if gate:
            return Hindrance(gate_off(gate))
        problems = (vantage.view.problem for vantage in self.seen if vantage.view.problem)
        problem = next(problems, "") or self._pool.problem(self._features)
        return Hindrance(problem or unreached(origin, device))

    def _judged(self) -> tuple[DeviceState, ...]:
        """The best state of each device from any vantage."""
        devices = _devices(self._pool)
        if self._is_plain:
            held = self._used.get
            return tuple(
                [
                    DeviceState.FREE if (used := held(each.id.device)) is None else state_if_held(each, used)
                    for each in devices
                ]
            )
        seen = tuple(self.seen)
        if len(seen) == 1 and _shows_all(seen[0].view, devices):
            judge = self._judge(seen[0]).judge
            return tuple([judge(candidate)[0] for candidate in seen[0].view.candidates])
        found: dict[Device, DeviceState] = {}
        for vantage in seen:
            judge = self._judge(vantage).judge
            for candidate in vantage.view.candidates:
                state, before = judge(candidate)[0], found.get(candidate.device)
                if before is None or _BEST_FIRST[state] < _BEST_FIRST[before]:
                    found[candidate.device] = state
        return tuple([found.get(device) or self._unseen(device) for device in devices])

    def _judge(self, vantage: Vantage) -> _Judge:
        return _Judge(vantage, self._used, self._rules, self._features)

    def _unseen(self, device: Device) -> DeviceState:
        """The state of a device that no node sees: that claims hold it is still true."""
        used = self._used.get(device.id.device, FREE)
        return state_if_held(device, used) if used.holders else DeviceState.UNUSABLE

    def _blockers(
        self, refusal: Refusal, short: tuple[str, ...], device: Device, vantage: Vantage
    ) -> tuple[DeviceId, ...]:
        """The devices in use that draw on a counter that is short, or whose groups exclude the device."""
        sets = {each.counter_set for each in device.consumes_counters} if refusal.cause is INCOMPATIBLE else set()
        others = (*(each.device for each in vantage.view.candidates), *vantage.view.elsewhere)
        in_use = (each for each in others if each.id.device in self._used)
        return tuple(
            each.id
            for each in in_use
            if not _draws(each).isdisjoint(short) or sets & {c.counter_set for c in each.consumes_counters}
        )


def _short_text(short: tuple[str, ...], judge: _Judge, device: Device) -> str:
    others = len(short) - 1
    more = f", and {others} more {'counter is' if others == 1 else 'counters are'} short" if others else ""
    return judge.left(short[0], device) + more


def _draws(device: Device) -> set[str]:
    """The counters that a device consumes, as ``set/counter``."""
    return {f"{counter_set}/{counter}" for (_, counter_set, counter), amount in counter_demand(device) if amount}
