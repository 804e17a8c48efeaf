"""The content of the picture of a cluster: the nodes with their devices, and the pods that hold them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from allocator import DeviceState
from extender.cluster.snapshot import Snapshot
from extender.observe.device_states import DeviceStates
from extender.observe.tables.devices import devices
from extender.observe.tables.table import Item
from extender.pictures.fleet import Cell, FleetPicture, Line, WaitingPod


def fleet_of(snapshot: Snapshot, states: DeviceStates, title: str, waiting: Iterable[WaitingPod] = ()) -> FleetPicture:
    """The fleet of a snapshot, sorted by nodes; the states have the words of the table of devices.

    Args:
        snapshot: the cluster.
        states: of its devices.
        title: of the picture.
        waiting: pods without a node.
    """
    users = _users(snapshot)
    cells: defaultdict[str, list[Cell]] = defaultdict(list, {name: [] for name in snapshot.nodes})
    for row in devices(snapshot, states).rows:
        item = row.item()
        cells[str(item["node"]) or "no node"].append(Cell(DeviceState(item["state"]), _title(item, users)))
    pods: defaultdict[str, list[str]] = defaultdict(list)
    for key, pod in snapshot.pods.items():
        if pod.node_name and pod.needs_devices and not pod.is_finished:
            pods[pod.node_name].append(str(key))
    lines = [Line(node, tuple(found), tuple(sorted(pods[node]))) for node, found in sorted(cells.items())]
    return FleetPicture(title, lines, tuple(waiting))


def _users(snapshot: Snapshot) -> Mapping[str, str]:
    """The pods that may use each claim, by the name of the claim."""
    return {str(key): ", ".join(user.name for user in each.claim.reserved_for) for key, each in snapshot.claims.items()}


def _title(item: Item, users: Mapping[str, str]) -> str:
    """``gpu.example.com/node-0/gpu-0: allocated, claim demo/gpu (pod training)``."""
    name = f"{item['driver']}/{item['pool']}/{item['device']}"
    claims = item["claims"] if isinstance(item["claims"], list) else []
    held = [f"claim {each}" + (f" (pod {users[each]})" if users.get(str(each)) else "") for each in map(str, claims)]
    return ", ".join(filter(None, (f"{name}: {item['state']}", *held, str(item["why"]))))
