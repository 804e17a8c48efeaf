"""Small worlds, in few words: devices, pools, claims, and the allocation of one node."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from allocator import (
    Allocation,
    AllocationMode,
    AllocationResult,
    AttributeValue,
    Claim,
    ClaimSpec,
    ConstraintKind,
    ConstraintSpec,
    CounterConsumption,
    Device,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    Features,
    Inventory,
    Limits,
    Node,
    NodeSelector,
    Placement,
    PoolId,
    Quantity,
    Request,
    Selectors,
    Slice,
    Task,
    Unsatisfiable,
    Usage,
    allocate,
)
from allocator.checks import NO_RULES, TaintRules
from allocator.model.devices import Capacity, RequestPolicy
from allocator.model.features import ALL_FEATURES
from allocator.model.nodes import NodeSelectorTerm, Requirement
from allocator.policies import FIRST_FIT, Policy

DRIVER = "gpu.example.com"
NODE = Node("node-1")
HERE = Placement(node_name="node-1")
JUST_HERE = NodeSelector((NodeSelectorTerm((), (Requirement("metadata.name", "In", ("node-1",)),)),))
"""The node selector of a claim with a device of the node."""
SELECTORS = Selectors()
"""One memory for all tests: it only makes them quicker."""


def q(text: str) -> Quantity:
    """A quantity."""
    return Quantity.parse(text)


def device(
    name: str,
    attributes: Mapping[str, AttributeValue] | None = None,
    *,
    draws: Mapping[str, Mapping[str, int]] | None = None,
    capacity: Mapping[str, str | Capacity] | None = None,
    driver: str = DRIVER,
    pool: str = "node-1",
    **more: Any,
) -> Device:
    """A device; attributes and capacities are those of its driver, counters are whole numbers."""
    capacities = {n: c if isinstance(c, Capacity) else Capacity(q(c)) for n, c in (capacity or {}).items()}
    return Device(
        DeviceId(driver, pool, name),
        attributes={n if "/" in n else f"{driver}/{n}": v for n, v in (attributes or {}).items()},
        capacity=capacities,
        quantities={f"{driver}/{n}": c.value for n, c in capacities.items()},
        consumes_counters=tuple(
            CounterConsumption(name, {c: Quantity.from_int(n) for c, n in counters.items()})
            for name, counters in (draws or {}).items()
        ),
        **more,
    )


def pool(*devices: Device, counters: Mapping[str, Mapping[str, int]] | None = None, **more: Any) -> list[Slice]:
    """A complete pool on the node: a slice of devices, and one of counters if there are any."""
    identity = devices[0].id.pool_id
    options: dict[str, Any] = {"slice_count": 2 if counters else 1, "placement": HERE, **more}
    slices = [Slice(f"{identity.driver}-{identity.pool}", identity, devices=devices, **options)]
    if counters:
        sets = tuple((n, {c: Quantity.from_int(v) for c, v in s.items()}) for n, s in counters.items())
        slices.append(Slice(f"{identity.driver}-{identity.pool}-counters", identity, counter_sets=sets, **options))
    return slices


def want(name: str = "gpu", number: int | None = 1, *selectors: str, **more: Any) -> Request:
    """A request for a number of devices; None: for all."""
    return Request(name, (alternative("", number, *selectors, **more),))


def alternative(name: str, number: int | None = 1, *selectors: str, **more: Any) -> DeviceRequest:
    """One way to serve a request."""
    mode = AllocationMode.ALL if number is None else AllocationMode.EXACT_COUNT
    return DeviceRequest("any", name, selectors, mode, number or 1, **more)


def first_of(name: str, *alternatives: DeviceRequest) -> Request:
    """A request that takes the first of its alternatives that fits."""
    return Request(name, alternatives, prioritized=True)


def same(attribute: str, *requests: str) -> ConstraintSpec:
    """All devices share the attribute."""
    return ConstraintSpec(ConstraintKind.MATCH, f"{DRIVER}/{attribute}", requests)


def different(attribute: str, *requests: str) -> ConstraintSpec:
    """No two devices share the attribute."""
    return ConstraintSpec(ConstraintKind.DISTINCT, f"{DRIVER}/{attribute}", requests)


def claim(*parts: Request | ConstraintSpec, name: str = "claim") -> Claim:
    """A claim of requests and constraints."""
    spec = ClaimSpec(
        tuple(p for p in parts if isinstance(p, Request)), tuple(p for p in parts if isinstance(p, ConstraintSpec))
    )
    return Claim("default", name, f"uid-{name}", spec)


def shared(amount: str, **policy: Any) -> Capacity:
    """A capacity with a policy."""
    return Capacity(q(amount), RequestPolicy(**policy))


@dataclass(frozen=True)
class World:
    """One node with its devices, and what is taken."""

    slices: Sequence[Slice]
    usage: Usage = field(default_factory=Usage)
    classes: Mapping[str, DeviceClass] = field(default_factory=lambda: {"any": DeviceClass("any")})
    rules: TaintRules = NO_RULES
    features: Features = ALL_FEATURES
    node: Node = NODE
    policy: Policy = FIRST_FIT
    limits: Limits = field(default_factory=Limits)

    def task(self, *claims: Claim) -> Task:
        """What is to be decided."""
        pools = Inventory.of(self.slices).for_node(self.node, self.features)
        return Task(self.node, claims, self.classes, pools, self.usage, self.rules, self.features)

    def allocate(self, *claims: Claim) -> Allocation | Unsatisfiable:
        """Decide."""
        ids = count()
        return allocate(
            self.task(*claims),
            selectors=SELECTORS,
            clock=ticks(),
            new_share_id=lambda: f"share-{next(ids)}",
            policy=self.policy,
            limits=self.limits,
        )

    def allocated(self, *claims: Claim) -> Allocation:
        """Decide where the answer is yes."""
        answer = self.allocate(*claims)
        assert isinstance(answer, Allocation), answer
        return answer

    def devices(self, *claims: Claim) -> list[list[str]] | str:
        """The names of the devices per claim, or the summary of why there are none."""
        answer = self.allocate(*claims)
        return answer.reason.in_words() if isinstance(answer, Unsatisfiable) else names(answer.results)

    def with_claims(self, *results: AllocationResult) -> "World":
        """With the allocations held."""
        usage = self.usage
        for result in results:
            usage = usage.with_allocation(result)
        return replace(self, usage=usage)


TICK = 1e-6
"""Seconds from one look at the clock to the next."""


class ticks(Iterator[float]):  # noqa: N801 - reads as a verb where it is used
    """A clock that moves on whenever it is looked at."""

    def __init__(self) -> None:
        self._now = 0.0

    def __next__(self) -> float:
        self._now += TICK
        return self._now

    __call__ = __next__


def names(results: Sequence[AllocationResult]) -> list[list[str]]:
    """Device names per claim."""
    return [[r.device.device for r in result.results] for result in results]


def held(*devices: str, driver: str = DRIVER, pool_name: str = "node-1") -> Usage:
    """Devices held exclusively."""
    return Usage.of(DeviceId(driver, pool_name, d) for d in devices)


def pool_id(name: str = "node-1", driver: str = DRIVER) -> PoolId:
    """A pool's identity."""
    return PoolId(driver, name)
