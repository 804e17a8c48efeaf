"""The table of pools, and how many of their devices are in each state."""

from collections.abc import Callable, Collection, Iterator
from functools import partial

from allocator import Features, PoolId
from allocator.checks import DeviceState
from allocator.device_states import PoolStates
from allocator.pools import Pool
from allocator.tools import JSON
from extender.answers.observe.device_states import DeviceStates
from extender.answers.observe.tables.devices import node_of
from extender.cluster.snapshot import Snapshot
from extender.tools.table import Item, Row, TableView, matches


def pools(
    snapshot: Snapshot, features: Features, states: DeviceStates, *, driver: str = "", node: str = ""
) -> TableView:
    """The pools, of one driver, or with devices for one node alone."""
    columns = ("driver", "pool", "generation", "slices", "node", "devices", "free", "states", "problem")
    local: Collection[PoolId] = snapshot.inventory.local.get(node, ()) if node else ()

    def item(pool: Pool, states_of: Callable[[PoolId], PoolStates]) -> Item:
        newest, found = pool.newest, states_of(pool.id)
        nodes = sorted({node_of(device, origin) for origin in newest for device in origin.devices})
        numbers: dict[str, JSON] = {state.value: found.count(state) for state in DeviceState if found.count(state)}
        return {
            "driver": pool.id.driver,
            "pool": pool.id.pool,
            "generation": newest[0].generation,
            "slices": f"{len(newest)}/{newest[0].slice_count}",
            "node": nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else "",
            "devices": sum(len(each.devices) for each in newest),
            "free": found.count(DeviceState.FREE),
            "states": numbers,
            "problem": pool.problem(features),
        }

    def rows() -> Iterator[Row]:
        states_of = states.at(snapshot)
        for pool_id in sorted(snapshot.inventory.pools):
            if matches(driver, pool_id.driver) and (not node or pool_id in local):
                yield Row(pool_id, partial(item, snapshot.inventory.pools[pool_id], states_of))

    return TableView(columns, rows())
