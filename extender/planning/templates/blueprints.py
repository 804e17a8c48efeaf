"""The devices that a node which does not exist yet would bring: slices of another node, under a new name.

Only what a node brings itself is copied. Devices that are attached to the network are the cluster's: they are there
already, and another node adds none.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from allocator import AttributeValue, Device, Features, Node, Placement, PoolId, Slice
from allocator.pools import NodePool
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot

Rename = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Slices that are published for one node, complete and of one generation.

    Attributes:
        origin: where they come from, for people.
        node: the text that stands for the node's name in them.
        is_placeholder: this text is a placeholder, which may be part of a longer text; otherwise only a text that is
            the name as a whole is meant, and a pool of another name gets one of its own.
        slices: by name.
    """

    origin: str
    node: str
    is_placeholder: bool
    slices: tuple[Slice, ...]
    drivers: frozenset[str] = field(init=False)
    device_count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "drivers", frozenset(each.pool.driver for each in self.slices))
        object.__setattr__(self, "device_count", sum(len(each.devices) for each in self.slices))

    def build(self, node_name: str) -> Iterator[Slice]:
        """The slices that a node of this name would publish. Their names are such as no real slice can have."""
        # Devices that share their attributes share them afterwards, too.
        renamed: dict[int, Mapping[str, AttributeValue]] = {}
        for index, each in enumerate(self.slices):
            pool = PoolId(each.pool.driver, self._pool_name(each.pool.pool, node_name))
            yield replace(
                each,
                name=f"{node_name}/{self.origin}/{index:04}",
                pool=pool,
                placement=Placement(node_name=node_name),
                devices=tuple(self._device(device, pool, node_name, renamed) for device in each.devices),
            )

    def hardware(self) -> dict[str, int]:
        """The hardware: the number of devices by driver, and capacities by qualified name (units of 10**-9).

        What can be had in parts counts once, by its counters.
        """
        found: Counter[str] = Counter()
        for each in self.slices:
            driver = each.pool.driver
            whole = [device for device in each.devices if not device.consumes_counters]
            found[driver] += len(whole) + len(each.counter_sets)
            for device in whole:
                found.update({name: amount.nano for name, amount in device.quantities.items()})
            for _, counters in each.counter_sets:
                found.update({f"{driver}/{name}": amount.nano for name, amount in counters.items()})
        return found

    def _pool_name(self, name: str, node_name: str) -> str:
        renamed = self._renamed(name, node_name)
        return f"{node_name}/{name}" if renamed == name else renamed

    def _device(
        self, device: Device, pool: PoolId, node_name: str, renamed: dict[int, Mapping[str, AttributeValue]]
    ) -> Device:
        attributes = renamed.get(id(device.attributes))
        if attributes is None:
            attributes = renamed[id(device.attributes)] = self._attributes(device.attributes, node_name)
        return replace(device, id=device.id._replace(pool=pool.pool), attributes=attributes)

    def _attributes(self, attributes: Mapping[str, AttributeValue], node_name: str) -> Mapping[str, AttributeValue]:
        def rename(text: str) -> str:
            return self._renamed(text, node_name)

        changed = {key: new for key, old in attributes.items() if (new := _renamed_value(old, rename)) != old}
        return {**attributes, **changed} if changed else attributes

    def _renamed(self, text: str, node_name: str) -> str:
        if self.is_placeholder:
            return text.replace(self.node, node_name)
        return node_name if text == self.node else text


def learned(group: Iterable[Node], snapshot: Snapshot, features: Features) -> Blueprint | None:
    """A blueprint from the best of some real nodes: most drivers, most devices, fewest tainted; None if none will do.

    Allocations are not part of a blueprint. A node with a pool that is being published is passed over.
    """
    found = [each for node in group if (each := _of_node(node, snapshot, features)) is not None]
    return min(found, key=_rank, default=None)


def local_pools(node: Node, snapshot: Snapshot, features: Features) -> dict[PoolId, NodePool | None]:
    """The pools with slices for just this node, as the node sees them; None: it sees only what is being replaced."""
    ids = sorted(snapshot.inventory.local.get(node.name, ()))
    return {pool: snapshot.inventory.pools[pool].at(node, features) for pool in ids}


def _of_node(node: Node, snapshot: Snapshot, features: Features) -> Blueprint | None:
    pools = local_pools(node, snapshot, features)
    if not pools or any(pool is None or pool.problem for pool in pools.values()):
        return None
    slices = [each for pool in pools for each in _newest(snapshot.inventory.pools[pool].slices, node.name)]
    return Blueprint(f"learned from node {node.name}", node.name, is_placeholder=False, slices=tuple(slices))


def _newest(slices: Iterable[Slice], node_name: str) -> list[Slice]:
    """The slices of a pool that are for the node, of the newest generation, as a pool of their own."""
    own = [each for each in slices if each.placement is not None and each.placement.node_name == node_name]
    newest = max(each.generation for each in own)
    own = [each for each in own if each.generation == newest]
    return [replace(each, slice_count=len(own)) for each in own]


def _rank(blueprint: Blueprint) -> tuple[int, int, int, str]:
    tainted = sum(bool(device.taints) for each in blueprint.slices for device in each.devices)
    return (-len(blueprint.drivers), -blueprint.device_count, tainted, blueprint.node)


def _renamed_value(value: AttributeValue, rename: Rename) -> AttributeValue:
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, tuple):
        texts = tuple(rename(each) for each in value if isinstance(each, str))
        return texts if len(texts) == len(value) else value
    return value


def with_new_node(node: NodeObject, blueprints: Iterable[Blueprint], fork: Snapshot) -> Snapshot:
    """The cluster with one more node, which brings the devices of some blueprints."""
    fork = fork.with_node(node)
    for blueprint in blueprints:
        for each in blueprint.build(node.name):
            fork = fork.with_slice(each)
    return fork


def without_devices(node_name: str, blueprints: Iterable[Blueprint], fork: Snapshot) -> Snapshot:
    """The cluster in which such a node brings the devices of these blueprints no more."""
    for blueprint in blueprints:
        for each in blueprint.build(node_name):
            fork = fork.without_slice(each.name)
    return fork
