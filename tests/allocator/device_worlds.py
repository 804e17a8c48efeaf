"""Random small clusters for the states of devices: pools over several nodes, with a bit of every feature."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product

from hypothesis import strategies as st
from immutables import Map

from allocator import (
    Allocation,
    AllocatorError,
    CounterConsumption,
    Device,
    DeviceClass,
    Features,
    Inventory,
    Node,
    NodeSelector,
    Placement,
    Quantity,
    Slice,
    TaintRule,
    Task,
    Usage,
    allocate,
)
from allocator.checks import NO_RULES, DeviceState, TaintRules
from allocator.device_states import PoolStates, Vantages
from allocator.model.devices import Capacity, DeviceTaint, RequestPolicy, ValidRange
from allocator.model.features import ALL_FEATURES
from allocator.model.nodes import NodeSelectorTerm, Requirement
from allocator.node_selectors import NODE_OPERATIONS_FEATURE
from allocator.policies import FIRST_FIT
from allocator.usage import NOTHING_USED, DeviceUsage
from tests.allocator.strategies import feature_sets
from tests.allocator.worlds import DRIVER, NODE, SELECTORS, claim, device, pool_id, ticks, want

SET = "silicon"
COUNTERS = ("cores", "memory")
ZONE_A = NodeSelector((NodeSelectorTerm((Requirement("zone", "In", ("a",)),)),))
_PLACEMENTS = (Placement("node-1"), Placement(all_nodes=True), Placement(None, ZONE_A), Placement("node-2"))


@dataclass(frozen=True)
class DeviceWorld:
    """A cluster, and what is held in it."""

    slices: Sequence[Slice]
    nodes: Sequence[Node] = (NODE,)
    usage: Usage = field(default_factory=Usage)
    rules: TaintRules = NO_RULES
    features: Features = ALL_FEATURES

    @property
    def inventory(self) -> Inventory:
        return Inventory.of(self.slices)

    def states(self) -> Iterator[tuple[Slice, Device, DeviceState, PoolStates]]:
        """The state of each device."""
        for pool in self.inventory.pools.values():
            names = pool.node_names
            nodes = [each for each in self.nodes if names is None or each.name in names]
            seen = Vantages(pool, nodes, self.features)
            of_pool = PoolStates(pool, seen, self.usage.pools.get(pool.id, NOTHING_USED), self.rules, self.features)
            yield from ((origin, each, state, of_pool) for origin, each, state in of_pool)

    def gives(self, wanted: Device, *amounts: tuple[str, Quantity]) -> bool:
        """Whether a claim for the device alone would get it on one of the nodes, if it asks for these amounts."""
        itself = f"device.attributes['{DRIVER}'].self == '{wanted.attributes[f'{DRIVER}/self']}'"
        return any(self._given(node, itself, amounts) for node in self.nodes)

    def _given(self, node: Node, selector: str, amounts: tuple[tuple[str, Quantity], ...]) -> bool:
        asked = claim(want("gpu", 1, selector, capacity=amounts or None))
        pools = self.inventory.for_node(node, self.features)
        task = Task(node, (asked,), {"any": DeviceClass("any")}, pools, self.usage, self.rules, self.features)
        ids = count()
        try:
            outcome = allocate(
                task, selectors=SELECTORS, clock=ticks(), new_share_id=lambda: f"new-{next(ids)}", policy=FIRST_FIT
            )
        except AllocatorError:
            return False
        return isinstance(outcome, Allocation)

    def gives_a_share(self, wanted: Device) -> bool:
        """Whether there are amounts that a claim for the device alone could ask for and get, none of them zero."""
        choices = [
            [None, *((name, amount) for amount in _amounts(capacity))] for name, capacity in wanted.capacity.items()
        ]
        return any(self.gives(wanted, *(each for each in asked if each is not None)) for asked in product(*choices))


def _amounts(capacity: Capacity) -> Iterator[Quantity]:
    yield Quantity.from_nano(1)
    policy = capacity.policy
    if policy is not None:
        yield from (each for each in policy.valid_values if each.nano)
        if policy.valid_range is not None:
            valid = policy.valid_range
            ends = (valid.min, valid.step, valid.min + (valid.step or valid.min))
            yield from (each for each in ends if each is not None and each.nano)


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 3)) == 3


def _mostly(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 5)) < 5


def _almost(draw: st.DrawFn) -> bool:
    """Nearly always."""
    return draw(st.integers(0, 20)) < 20


@st.composite
def _policies(draw: st.DrawFn, most: int) -> RequestPolicy | None:
    whole = Quantity.from_int
    default = draw(st.integers(0, most))
    match draw(st.sampled_from(("none", "default", "values", "range"))):
        case "none":
            return None
        case "default":
            return RequestPolicy(whole(default))
        case "values":
            values = sorted({default, *draw(st.lists(st.integers(0, most), max_size=2))})
            return RequestPolicy(whole(default), tuple(map(whole, values)))
        case _:
            least = draw(st.integers(0, default))
            steps = [n for n in range(1, most + 1) if (default - least) % n == 0]
            step = draw(st.none() | st.sampled_from(steps)) if steps else None
            return RequestPolicy(
                whole(default), (), ValidRange(whole(least), None, None if step is None else whole(step))
            )


@st.composite
def _capacities(draw: st.DrawFn, *, shared: bool) -> Capacity:
    value = draw(st.integers(0, 6))
    return Capacity(Quantity.from_int(value), draw(_policies(value)) if shared else None)


@st.composite
def _devices(draw: st.DrawFn, name: str, mark: str, placement: Placement | None) -> Device:
    shared = draw(st.booleans())
    sizes = draw(st.lists(st.sampled_from(("memory", "ports")), unique=True, max_size=2))
    plain = device(
        name,
        {"self": mark},
        capacity={size: draw(_capacities(shared=shared)) for size in sizes},
        allow_multiple_allocations=shared,
        taints=(DeviceTaint("sick", draw(st.sampled_from(("NoSchedule", "NoExecute", "None")))),)
        if _rarely(draw)
        else (),
        placement=placement,
        binding_conditions=("ready",) if _rarely(draw) else None,
    )
    if draw(st.booleans()):
        return plain
    amounts = draw(st.dictionaries(st.sampled_from(COUNTERS), st.integers(0, 3).map(Quantity.from_int), min_size=1))
    groups = draw(st.sampled_from(((), (), ("x",), ("x", "y"), ("y",))))
    return replace(plain, consumes_counters=(CounterConsumption(SET, amounts, groups),))


@st.composite
def _pools(draw: st.DrawFn, number: int) -> list[Slice]:
    parts = draw(st.integers(1, 3))
    here = draw(st.sampled_from(_PLACEMENTS))
    skips = () if _mostly(draw) else ("*",)
    slices = []
    names = iter("abcdefghi")
    generation = 1
    for part in range(parts):
        own = _rarely(draw)
        place = None if own else here if _mostly(draw) else draw(st.sampled_from(_PLACEMENTS))
        generation = generation if _almost(draw) else 2
        devices = tuple(
            draw(
                _devices(
                    name if _almost(draw) else "a",
                    f"{number}-{part}-{name}",
                    draw(st.sampled_from(_PLACEMENTS)) if own else None,
                )
            )
            for name, _ in zip(names, range(draw(st.integers(1, 3))), strict=False)
        )
        total = parts + 1 if _almost(draw) else draw(st.integers(1, 4))
        slices.append(Slice(f"slice-{number}-{part}", pool_id(), generation, total, place, own, devices, (), skips))
    if not _mostly(draw):
        old = tuple(
            [draw(_devices(each.id.device, f"old-{each.id.device}", None)) for s in slices for each in s.devices]
        )
        slices.append(Slice(f"slice-{number}-old", pool_id(), 0, 1, draw(st.sampled_from(_PLACEMENTS)), devices=old))
    sizes = {counter: Quantity.from_int(draw(st.integers(1, 5))) for counter in COUNTERS}
    slices.append(
        Slice(f"slice-{number}-counters", pool_id(), generation, parts + 1, here, counter_sets=((SET, sizes),))
    )
    return slices


@st.composite
def _usages(draw: st.DrawFn, device: Device) -> DeviceUsage:
    is_shared = _mostly(draw) if device.allow_multiple_allocations else not _mostly(draw)
    shares = frozenset({"share"} if is_shared else ())
    holders = int(not _mostly(draw)) if is_shared else draw(st.sampled_from((1, 1, 1, 2)))
    consumed = {name: draw(st.integers(0, 3)) * 10**9 for name in device.capacity} if shares else {}
    return DeviceUsage(holders, shares, Map((n, nano) for n, nano in consumed.items() if nano))


@st.composite
def device_worlds(draw: st.DrawFn) -> DeviceWorld:
    """One pool of up to three slices with devices, on up to two nodes, or nodes that are gone."""
    return draw(_worlds(draw(_pools(0))))


@st.composite
def lone_slices(draw: st.DrawFn) -> DeviceWorld:
    """One slice, mostly for one node and of devices without optional fields, as most clusters have them."""
    devices = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        if _rarely(draw):
            devices.append(draw(_devices(name if _almost(draw) else "a", name, None)))
        else:
            capacity = {"memory": Capacity(Quantity.from_int(draw(st.integers(-1, 6))))} if _mostly(draw) else {}
            devices.append(device(name if _almost(draw) else "a", {"self": name}, capacity=capacity))
    place = Placement("node-1") if _mostly(draw) else draw(st.sampled_from(_PLACEMENTS))
    total, skips = 1 if _almost(draw) else 2, () if _mostly(draw) else ("*",)
    only = Slice("slice", pool_id(), 1, total, place, devices=tuple(devices), skip_node_operations=skips)
    return draw(_worlds([only]))


@st.composite
def _worlds(draw: st.DrawFn, slices: Sequence[Slice]) -> DeviceWorld:
    """A cluster with one pool."""
    devices = [each for s in slices for each in s.devices]
    usage = Usage()
    held = {each.id.device: draw(_usages(each)) for each in devices if draw(st.booleans())}
    of_pool = Map((name, used) for name, used in held.items() if not used.is_free)
    if of_pool:
        usage = Usage(usage.pools.set(slices[0].pool, of_pool))
    taint = DeviceTaint("broken", "NoSchedule")
    rule = TaintRule("rule", taint, DRIVER, None, draw(st.sampled_from((None, "a", "b"))))
    nodes = [
        Node("node-1", {"zone": "a"}, frozenset({NODE_OPERATIONS_FEATURE}) if draw(st.booleans()) else frozenset())
    ]
    if _mostly(draw):
        nodes.append(Node("node-2", {"zone": draw(st.sampled_from("ab"))}))
    rules = TaintRules.of([rule]) if _rarely(draw) else NO_RULES
    return DeviceWorld(slices, nodes, usage, rules, draw(feature_sets()))
