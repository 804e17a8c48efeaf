"""Random small worlds: at most five devices and four places, with a bit of every feature."""

from dataclasses import dataclass, fields, replace

from hypothesis import strategies as st

from allocator import (
    AllocationResult,
    AttributeValue,
    Claim,
    ClaimSpec,
    ConstraintKind,
    ConstraintSpec,
    CounterConsumption,
    Device,
    DeviceId,
    DeviceRequest,
    DeviceResult,
    DeviceTaint,
    Features,
    Node,
    NodeSelector,
    Placement,
    Quantity,
    Request,
    Slice,
    Toleration,
    Usage,
    Version,
)
from allocator.model.devices import Capacity, RequestPolicy
from allocator.model.features import ALL_FEATURES
from allocator.model.nodes import NodeSelectorTerm, Requirement
from tests.allocator.reference import Reference
from tests.allocator.worlds import DRIVER, HERE, World, alternative, device, pool_id

FLAGS = ("small", "fast")
SET = "silicon"
_ROOTS: tuple[AttributeValue, ...] = ("a", "b", 1, True, Version.parse("1.0.0"), ("a", "b"), ("b",), (1, 2))


@dataclass(frozen=True)
class Puzzle:
    """A world, the claims to allocate, and the reference that knows the answer."""

    world: World
    claims: tuple[Claim, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(d for s in sorted(self.world.slices, key=lambda s: s.name) for d in s.devices)

    @property
    def reference(self) -> Reference:
        counters = {
            (name, counter): int(str(amount))
            for s in self.world.slices
            for name, of_set in s.counter_sets
            for counter, amount in of_set.items()
        }
        return Reference(self.devices, counters, self.world.usage, self.world.features)

    @property
    def has_lists(self) -> bool:
        return any(isinstance(v, tuple) for d in self.devices for v in d.attributes.values())

    @property
    def has_admin_access(self) -> bool:
        return any(a.admin_access for c in self.claims for r in c.spec.requests for a in r.alternatives)

    def using(self, world: World) -> "Puzzle":
        return replace(self, world=world)


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 3)) == 3


def _mostly(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 5)) < 5


def _quantities(most: int) -> st.SearchStrategy[Quantity]:
    return st.integers(0, most).map(Quantity.from_int)


@st.composite
def _capacities(draw: st.DrawFn) -> Capacity:
    """Without a policy, or with a default that may be one of a few valid values."""
    values = sorted(draw(st.lists(st.integers(1, 4), unique=True, max_size=3)))
    if not values:
        return Capacity(draw(_quantities(6)))
    default = Quantity.from_int(draw(st.sampled_from(values)))
    policy = RequestPolicy(default, tuple(map(Quantity.from_int, values)) if len(values) > 1 else ())
    return Capacity(Quantity.from_int(values[-1] + draw(st.integers(0, 3))), policy)


@st.composite
def _draws(draw: st.DrawFn, features: Features) -> tuple[CounterConsumption, ...]:
    counters = draw(st.dictionaries(st.sampled_from(("cores", "memory")), _quantities(3), min_size=1))
    groups = draw(st.sampled_from(((), ("x",), ("x", "y"), ("y",)))) if features.compatibility_groups else ()
    return (CounterConsumption(SET, counters, groups),)


@st.composite
def _devices(draw: st.DrawFn, name: str, roots: list[AttributeValue], features: Features) -> Device:
    attributes: dict[str, AttributeValue] = {flag: _mostly(draw) for flag in FLAGS}
    if _mostly(draw):
        attributes["root"] = draw(st.sampled_from(roots))
    shareable = _rarely(draw)
    capacity = {"memory": draw(_capacities())} if shareable else {}
    effect = draw(st.sampled_from(("NoSchedule", "NoExecute", "None")))
    plain = device(
        name,
        attributes,
        capacity=capacity,
        allow_multiple_allocations=shareable,
        taints=(DeviceTaint("sick", effect),) if _rarely(draw) else (),
    )
    return replace(plain, consumes_counters=draw(_draws(features))) if _rarely(draw) else plain


@st.composite
def _device_requests(draw: st.DrawFn, name: str, *, all_mode: bool, features: Features) -> DeviceRequest:
    count = None if all_mode and _rarely(draw) else draw(st.integers(1, 2))
    selectors = [f"device.attributes['{DRIVER}'].{flag}" for flag in FLAGS if _rarely(draw)]
    capacity = (
        draw(st.integers(0, 3).map(Quantity.from_int)) if features.consumable_capacity and _rarely(draw) else None
    )
    wanted = alternative(
        name,
        count,
        *selectors,
        admin_access=features.admin_access and not _mostly(draw),
        tolerations=(Toleration("sick", "Exists"),) if draw(st.booleans()) else (),
    )
    return wanted if capacity is None else replace(wanted, capacity=(("memory", capacity),))


@st.composite
def _requests(draw: st.DrawFn, name: str, *, all_mode: bool, features: Features) -> Request:
    if features.prioritized_list and _rarely(draw):
        subs = [draw(_device_requests(sub, all_mode=all_mode, features=features)) for sub in ("one", "two")]
        return Request(name, tuple(subs), prioritized=True)
    return Request(name, (draw(_device_requests("", all_mode=all_mode, features=features)),))


@st.composite
def _constraints(draw: st.DrawFn, requests: tuple[Request, ...]) -> ConstraintSpec:
    names = [r.name for r in requests] + [f"{r.name}/{a.name}" for r in requests for a in r.alternatives if a.name]
    covered = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if _rarely(draw) else ()
    return ConstraintSpec(draw(st.sampled_from(ConstraintKind)), f"{DRIVER}/root", tuple(covered))


@st.composite
def _claims(draw: st.DrawFn, name: str, requests: int, *, all_mode: bool, features: Features) -> Claim:
    wanted = tuple(draw(_requests(f"r{i}", all_mode=all_mode, features=features)) for i in range(requests))
    constraints = () if all_mode else tuple(draw(st.lists(_constraints(wanted), min_size=1, max_size=2)))
    return Claim("default", name, f"uid-{name}", ClaimSpec(wanted, constraints))


@st.composite
def _usages(draw: st.DrawFn, devices: tuple[Device, ...], features: Features) -> Usage:
    used = [d for d in devices if not _mostly(draw)]
    shared = [d for d in used if d.allow_multiple_allocations and features.consumable_capacity]
    return Usage.of(
        (d.id for d in used if d not in shared),
        ((d.id, "held") for d in shared),
        {d.id: {"memory": draw(st.integers(0, 3)) * 10**9} for d in shared},
    )


def feature_sets() -> st.SearchStrategy[Features]:
    """All of them, those of a default cluster, or all but one."""
    single = [replace(ALL_FEATURES, **{f.name: False}) for f in fields(Features)]
    return st.just(ALL_FEATURES) | st.just(Features()) | st.sampled_from(single)


@st.composite
def puzzles(draw: st.DrawFn, *, all_mode: bool | None = None) -> Puzzle:
    """A world of one pool and one or two claims.

    Args:
        all_mode: with requests for all devices (then without constraints, which make errors of them); None: either.
    """
    chosen = draw(feature_sets())
    with_all = draw(st.booleans()) if all_mode is None else all_mode
    roots = draw(st.lists(st.sampled_from(_ROOTS), min_size=1, max_size=3))
    devices = tuple(draw(_devices(f"d{i}", roots, chosen)) for i in range(draw(st.integers(1, 5))))
    counters = {c: draw(_quantities(5)) for c in ("cores", "memory")}
    slices = [
        Slice("s0", pool_id(), slice_count=2, placement=HERE, devices=devices),
        Slice("s1", pool_id(), slice_count=2, placement=HERE, counter_sets=((SET, counters),)),
    ]
    shapes = draw(st.sampled_from(((1,), (2,), (1, 1), (2, 1))))
    claims = tuple(draw(_claims(f"c{i}", n, all_mode=with_all, features=chosen)) for i, n in enumerate(shapes))
    world = World(slices, draw(_usages(devices, chosen)), features=chosen)
    return Puzzle(world, claims)


@st.composite
def allocations(draw: st.DrawFn) -> AllocationResult:
    """Results over a few devices; share ids are unique, as those of a cluster are."""
    return AllocationResult(tuple(draw(st.lists(_device_results(), max_size=3))))


@st.composite
def _device_results(draw: st.DrawFn) -> DeviceResult:
    identity = DeviceId(draw(st.sampled_from(("a.example.com", "b.example.com"))), "pool", draw(st.sampled_from("xyz")))
    share = draw(st.none() | st.uuids().map(str))
    amounts = st.dictionaries(st.sampled_from(("memory", "cores")), st.integers(0, 3).map(Quantity.from_int))
    consumed = None if share is None else draw(st.none() | amounts)
    return DeviceResult("r", identity, draw(st.none() | st.booleans()), (), share, consumed)


NODES = (Node("node-1", {"zone": "a"}), Node("node-2", {"zone": "b"}))


def _placements() -> st.SearchStrategy[Placement]:
    zone = NodeSelector((NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),))
    return st.sampled_from(
        (Placement("node-1"), Placement("node-2"), Placement(all_nodes=True), Placement(node_selector=zone))
    )


@st.composite
def _slices(draw: st.DrawFn, number: int) -> Slice:
    identity = pool_id(draw(st.sampled_from(("p", "q"))))
    own = _rarely(draw)
    placement = None if own else draw(_placements())
    devices = tuple(
        device(
            name,
            pool=identity.pool,
            placement=draw(_placements()) if own else None,
            binding_conditions=("ready",) if _rarely(draw) else None,
        )
        for name in draw(st.lists(st.sampled_from("xyz"), max_size=2))
    )
    return Slice(f"slice-{number}", identity, draw(st.integers(1, 2)), draw(st.integers(1, 3)), placement, own, devices)


@st.composite
def slice_sets(draw: st.DrawFn) -> list[Slice]:
    """Slices of two pools: in several generations, incomplete, with names twice, near and far."""
    return [draw(_slices(number)) for number in range(draw(st.integers(1, 6)))]
