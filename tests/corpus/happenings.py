"""What happens on a stage without a call: pods and nodes come and go, devices change, drivers and controllers work."""

from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import CLAIMS, NODES, PODS, SLICES
from tests.corpus.machines import ATTACHED, BROKEN, device, raw
from tests.corpus.stage import Stage
from tests.kit.clusters import DRIVER, Object
from tests.kit.objects.parts import allocation


async def happen(stage: Stage) -> None:
    """One thing happens, and then the service has some turns."""
    happening = stage.draw.of(
        [
            _come,
            _come,
            _end,
            _end,
            _attach,
            _change,
            _cordon,
            _wait,
            _finish,
            _ask_pools,
            *([_take, _release] if "others" in stage.world.has else []),
        ]
    )
    try:
        await happening(stage)
    except ApiError:  # Somebody has changed the object meanwhile.
        return
    for _ in range(stage.draw.number(1, 4)):
        await stage.turn(stage.draw.of([0.2, 0.2, 2.0]))
    stage.note(f"background after {happening.__name__.strip('_')}")


async def _come(stage: Stage) -> None:
    """Pods or a node come."""
    if stage.world.comes:
        stage.load(*stage.world.comes.pop())


async def _end(stage: Stage) -> None:
    """A pod is deleted."""
    if pods := stage.pods():
        await stage.cluster.api.delete(PODS, stage.draw.of(pods).key)


async def _finish(stage: Stage) -> None:
    """Pods that are terminating come to their end; one that runs has succeeded."""
    for pod in stage.pods():
        if pod.deleting:
            await stage.cluster.api.patch(PODS, pod.key, {"metadata": {"finalizers": None}})
    running = [pod for pod in stage.pods() if pod.node_name]
    if running and stage.draw(0.5):
        phase = stage.draw.of(["Running", "Succeeded", "Failed"])
        await stage.cluster.api.patch_status(PODS, stage.draw.of(running).key, {"status": {"phase": phase}})


async def _attach(stage: Stage) -> None:
    """Drivers say of the devices of claims that they are attached, or that they are broken."""
    for each in (await stage.cluster.api.list(CLAIMS)).items:
        status = each.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", ())
        waiting = [result for result in results if result.get("bindingConditions")]
        if waiting and not status.get("devices"):
            kind = ATTACHED if stage.draw(0.7) else BROKEN
            conditions = [
                {
                    "type": kind,
                    "status": "True",
                    "reason": "Done",
                    "message": "",
                    "lastTransitionTime": "2026-02-01T00:00:00Z",
                }
            ]
            said = [_named(result) | {"conditions": conditions} for result in waiting]
            key = ObjectKey(each["metadata"]["namespace"], each["metadata"]["name"])
            await stage.cluster.api.patch_status(CLAIMS, key, {"status": {"devices": said}})


def _named(result: Object) -> Object:
    return {name: result[name] for name in ("driver", "pool", "device", "shareID") if name in result}


async def _change(stage: Stage) -> None:
    """A driver publishes other devices."""
    listed = [each for each in (await stage.cluster.api.list(SLICES)).items if each["spec"].get("devices")]
    if not listed:
        return
    chosen = stage.draw.of(listed)
    devices = chosen["spec"]["devices"]
    place = stage.draw.number(0, len(devices) - 1)
    if stage.draw(0.3) and len(devices) > 1:
        del devices[place]
    elif not {"nodeName", "allNodes", "nodeSelector"} & devices[place].keys():
        devices[place] = device(stage.draw, devices[place]["name"], stage.world.has - {"partitions"})
    await stage.cluster.api.update(SLICES, chosen)


async def _cordon(stage: Stage) -> None:
    """An administrator cordons a node, or labels it anew."""
    key = ObjectKey("", stage.draw.of(stage.nodes()))
    if stage.draw(0.5):
        await stage.cluster.api.patch(NODES, key, {"metadata": {"labels": {"zone": stage.draw.of("abc")}}})
    else:
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        is_cordoned = stage.draw(0.5)
        spec = {"unschedulable": True, "taints": [taint]} if is_cordoned else {"unschedulable": None, "taints": None}
        await stage.cluster.api.patch(NODES, key, {"spec": spec})


async def _ask_pools(stage: Stage) -> None:
    """Somebody asks for the status of pools."""
    spec = {"driver": DRIVER, **({"poolName": "node-a"} if stage.draw(0.5) else {})}
    stage.load(raw("ResourcePoolStatusRequest", f"ask-{stage.draw.number(0, 9)}", spec=spec))


async def _take(stage: Stage) -> None:
    """Another scheduler allocates a device for a claim, perhaps one that is held already."""
    waiting = [
        each
        for each in (await stage.cluster.api.list(CLAIMS)).items
        if not each.get("status", {}).get("allocation") and each["spec"].get("devices", {}).get("requests")
    ]
    if not waiting:
        return
    chosen, node = stage.draw.of(waiting), stage.draw.of(stage.nodes())
    request = chosen["spec"]["devices"]["requests"][0]["name"]
    found = allocation([(node, f"gpu-{stage.draw.number(0, 1)}")], request=request, at=node)
    await stage.cluster.api.update_status(CLAIMS, {**chosen, "status": {"allocation": found}})


async def _release(stage: Stage) -> None:
    """Somebody takes a claim from its pods, or marks it for deletion."""
    held = [each for each in (await stage.cluster.api.list(CLAIMS)).items if each.get("status", {}).get("reservedFor")]
    if held:
        chosen = stage.draw.of(held)
        key = ObjectKey(chosen["metadata"]["namespace"], chosen["metadata"]["name"])
        if stage.draw(0.5):
            await stage.cluster.api.delete(CLAIMS, key)
        else:
            await stage.cluster.api.patch_status(CLAIMS, key, {"status": {"reservedFor": None}})


async def _wait(stage: Stage) -> None:
    """Much time passes."""
    for _ in range(stage.draw.number(2, 8)):
        await stage.turn(stage.draw.of([5.0, 30.0, 200.0]))
