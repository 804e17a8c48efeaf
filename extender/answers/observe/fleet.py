"""The fleet: the states of all devices in one document, small enough for a browser to read at once.

A row is a pool on a node, and a digit of the row is a device. Pools whose devices have the same names share a shape.
Labels of nodes put the rows into groups; nodes with the same labels share a line of the table of groups. Models and
the namespaces of those who hold devices are told, too, so that a browser can sum up by them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from immutables import Map

from allocator import Device, PoolId, Quantity, Slice
from allocator.checks import DeviceState
from allocator.device_states import PoolStates
from allocator.tools import JSON
from extender.answers.device_models import model_of
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.tables.devices import node_of, row_order
from extender.cluster.snapshot import Snapshot

STATES: Final = tuple(DeviceState)

GROUP_LABELS: Final = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")
"""Labels by which most clusters tell groups of nodes apart."""

_DIGITS: Final = "".join(str(rank) for rank in range(len(STATES)))


class PoolShape(NamedTuple):
    """Names of devices, and for each device the number of its hardware: partitions of one device have equal numbers.

    Attributes:
        partitions: indexes of the devices that are partitions.
        models: of each device; empty if its driver publishes none.
    """

    devices: tuple[str, ...]
    hardware: tuple[int, ...]
    partitions: tuple[int, ...]
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetRow:
    """The devices of a pool that one node reaches.

    Attributes:
        node: the one node; else how the nodes of the devices are chosen.
        states: a digit for each device, an index into `STATES`.
        left: for each device that is shared, by its index, the least share that is left of any of its capacities.
        held: each namespace, with the indexes of the devices that its claims hold.
    """

    pool: PoolId
    node: str
    shape: PoolShape
    states: str
    left: Mapping[int, float]
    held: tuple[tuple[str, tuple[int, ...]], ...]


_Holders: TypeAlias = Map[str, None]
_Judged = tuple[Slice, Device, DeviceState]


class Fleet:
    """Remembers the rows of each pool. Threads may ask at the same time.

    Args:
        states: the states of devices, as all tables show them.
        labels: keys of the labels by which nodes may be grouped.
    """

    def __init__(self, states: DeviceStates, labels: Sequence[str] = GROUP_LABELS) -> None:
        self._states = states
        self._labels = tuple(dict.fromkeys(labels))
        self._known: dict[PoolId, tuple[PoolStates, _Holders | None, tuple[FleetRow, ...]]] = {}

    def document(
        self, snapshot: Snapshot, pools: Iterable[PoolId] | None = None, pause: Callable[[], None] = lambda: None
    ) -> dict[str, JSON]:
        """The rows of some pools, or of all; a pool that does not exist has no row. ``pause`` is called for each row.

        ``{"shapes": [{"devices": [NAME], "hardware": [NUMBER], "partitions": [INDEX], "models": [MODEL]}], "labels":
        [KEY], "groups": [[VALUE]], "namespaces": [NAMESPACE], "rows": [{"driver", "pool", "node", "shape": INDEX,
        "states": DIGITS, "left": {INDEX: SHARE}, "held": {NAMESPACE_INDEX: [INDEX]}, "group": INDEX}]}``

        A line of ``groups`` has a value for each of the ``labels``, empty for a label that the nodes do not have. Rows
        of no single node have no group.
        """
        existing = snapshot.inventory.pools
        if pools is None:
            for gone in [pool_id for pool_id in list(self._known) if pool_id not in existing]:
                self._known.pop(gone, None)
        states_of = self._states.at(snapshot)
        shapes: dict[PoolShape, int] = {}
        groups: dict[tuple[str, ...], int] = {}
        namespaces: dict[str, int] = {}
        wanted = sorted(existing) if pools is None else [pool_id for pool_id in pools if pool_id in existing]
        rows: list[JSON] = []
        for row in (row for pool_id in wanted for row in self._rows(pool_id, snapshot, states_of)):
            pause()
            found = _row_as_json(row, shapes.setdefault(row.shape, len(shapes)))
            if row.held:
                found["held"] = {str(namespaces.setdefault(each, len(namespaces))): [*at] for each, at in row.held}
            if node := snapshot.node(row.node):
                group = tuple(node.labels.get(label, "") for label in self._labels)
                found["group"] = groups.setdefault(group, len(groups))
            rows.append(found)
        tables: list[JSON] = [{name: [*value] for name, value in each._asdict().items()} for each in shapes]
        return {
            "shapes": tables,
            "labels": [*self._labels],
            "groups": [[*each] for each in groups],
            "namespaces": [*namespaces],
            "rows": rows,
        }

    def _rows(
        self, pool_id: PoolId, snapshot: Snapshot, states_of: Callable[[PoolId], PoolStates]
    ) -> tuple[FleetRow, ...]:
        states, holders = states_of(pool_id), snapshot.holders.get(pool_id)
        known = self._known.get(pool_id)
        if known is not None and known[0] is states and known[1] is holders:
            return known[2]
        namespaces = _namespaces(pool_id, snapshot)
        by_node: dict[str, list[_Judged]] = {}
        for judged in sorted(states, key=row_order):
            by_node.setdefault(node_of(judged[1], judged[0]), []).append(judged)
        rows = tuple(_row(pool_id, node, found, states, namespaces) for node, found in sorted(by_node.items()))
        self._known[pool_id] = (states, holders, rows)
        return rows


def _namespaces(pool_id: PoolId, snapshot: Snapshot) -> Mapping[str, set[str]]:
    """The namespaces whose claims hold each device of a pool."""
    found: dict[str, set[str]] = {}
    for uid in snapshot.holders.get(pool_id, ()):
        claim = snapshot.claim(uid)
        namespace = claim.claim.namespace if claim is not None else ""
        results = (each for allocation in snapshot.held_by(uid) for each in allocation.results)
        for each in results if namespace else ():
            if each.device.pool_id == pool_id and not each.admin_access:
                found.setdefault(each.device.device, set()).add(namespace)
    return found


def _row(
    pool_id: PoolId, node: str, found: list[_Judged], states: PoolStates, namespaces: Mapping[str, set[str]]
) -> FleetRow:
    devices = [device for _, device, _ in found]
    names = tuple([device.id.device for device in devices])
    partitions = states.partitions
    held: dict[str, list[int]] = {}
    for index, name in enumerate(names) if namespaces else ():
        for namespace in sorted(namespaces.get(name, ())):
            held.setdefault(namespace, []).append(index)
    return FleetRow(
        pool_id,
        node,
        PoolShape(
            names,
            _hardware(devices),
            tuple([index for index, name in enumerate(names) if name in partitions]) if partitions else (),
            tuple([model_of(device) for device in devices]),
        ),
        "".join([_DIGITS[STATES.index(state)] for _, _, state in found]),
        {
            index: _least_left(device, states)
            for index, (_, device, state) in enumerate(found)
            if state is DeviceState.SHARED
        },
        tuple([(namespace, tuple(at)) for namespace, at in held.items()]),
    )


def _hardware(devices: Iterable[Device]) -> tuple[int, ...]:
    """For each device the number of its hardware."""
    numbers: dict[object, int] = {}
    keys = [
        frozenset(each.counter_set for each in device.consumes_counters) if device.consumes_counters else device.id
        for device in devices
    ]
    return tuple([numbers.setdefault(key, len(numbers)) for key in keys])


def _least_left(device: Device, states: PoolStates) -> float:
    """The least share that is left of any capacity of a device, between 0 and 1."""
    amounts = ((Quantity.parse(left).nano, Quantity.parse(total).nano) for _, left, total in states.capacities(device))
    return round(min((left / total for left, total in amounts if total > 0), default=0.0), 3)


def _row_as_json(row: FleetRow, shape: int) -> dict[str, JSON]:
    found: dict[str, JSON] = {
        "driver": row.pool.driver,
        "pool": row.pool.pool,
        "node": row.node,
        "shape": shape,
        "states": row.states,
    }
    if row.left:
        found["left"] = {str(index): share for index, share in row.left.items()}
    return found
