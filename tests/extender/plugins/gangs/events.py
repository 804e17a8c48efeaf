"""What happens to a cluster in which gangs are planned, in random order: schedulers, pods, nodes and devices."""

from typing import Final

from hypothesis import strategies as st

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, NODES, PODS, SLICES
from tests.extender.plugins.gangs.scenes import Scene
from tests.kit.clusters import claim, local_slice

NODE_NAMES: Final = "abcd"

_SCHEDULING: Final = ("ask", "ask", "tick", "tick", "late", "bind", "restart")
_CHANGES: Final = ("delete", "finish", "slice", "node", "take", "leave", "claim")

Event = tuple[str, int]
"""What happens, and a number that chooses where."""

EVENTS: Final = st.tuples(st.sampled_from((*_SCHEDULING, *_CHANGES)), st.integers(0, 20))


async def happen(scene: Scene, what: str, number: int) -> None:
    """An event happens. A scene has nodes of these names, pods of gangs, and a pod s."""
    await (_change if what in _CHANGES else _schedule)(scene, what, number)


async def _schedule(scene: Scene, what: str, number: int) -> None:
    names = scene.pending()
    if what == "ask":
        for name in names:
            scene.filter(name)
    elif what == "bind" and names:
        await scene.schedule([names[number % len(names)]])
    elif what == "restart":
        scene.start()
    else:
        await scene.turns(1, seconds=70 if what == "late" else 2)


async def _change(scene: Scene, what: str, number: int) -> None:
    """Something happens to the cluster. Claims named thief hold devices, for pod s at first."""
    api, snapshot, node = scene.cluster.api, scene.cluster.state.snapshot, NODE_NAMES[number % len(NODE_NAMES)]
    thief, pods = f"thief{number}", sorted(snapshot.pods)
    if what == "delete" and pods:
        await scene.end(pods[number % len(pods)].name)
    elif what == "finish" and ObjectKey("ns", "s") in pods:
        await api.patch_status(PODS, ObjectKey("ns", "s"), {"status": {"phase": "Succeeded"}})
    elif what == "slice":
        made = local_slice(node, 1 + number % 3)
        await api.delete(SLICES, ObjectKey("", made["metadata"]["name"]))
        await api.create(SLICES, made)
    elif what == "node" and node in snapshot.nodes:
        await api.delete(NODES, ObjectKey("", node))
    elif what == "take" and ObjectKey("ns", thief) not in snapshot.claims:
        taken = claim(thief, allocated=[f"{node}/gpu-{number % 2}"], at=node, users=["s"])
        await api.create(CLAIMS, taken)
        await api.patch_status(CLAIMS, ObjectKey("ns", thief), {"status": taken["status"]})
    elif what == "claim" and snapshot.claims:
        key = sorted(snapshot.claims)[number % len(snapshot.claims)]
        if not snapshot.claims[key].claim.allocation:
            await api.delete(CLAIMS, key)
    elif what == "leave":
        for key in [key for key in snapshot.claims if key.name.startswith("thief")]:
            await api.patch_status(CLAIMS, key, {"status": {"reservedFor": []}})
