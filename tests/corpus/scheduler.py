"""A kube-scheduler on a stage: filter, prioritize and bind for pods that wait, and preempt where nothing is left."""

import asyncio
from typing import Any

from extender.cluster.objects.pods import Pod
from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import NODES, PODS
from tests.corpus.happenings import happen
from tests.corpus.stage import Stage
from tests.kit.clusters import Object


async def schedule(stage: Stage, most: int) -> None:
    """Try some pods, the most important first. Binds go on beside the calls for the next pods."""
    binds: list[asyncio.Task[None]] = []
    for pod in stage.pending()[:most]:
        try:
            node = await attempt(stage, pod)
        except ApiError:  # The pod or a node is gone meanwhile.
            continue
        if node:
            binds.append(asyncio.create_task(bind(stage, pod, node)))
        if "slow" in stage.world.has and stage.draw(0.5):
            binds.append(asyncio.create_task(happen(stage)))
        elif stage.draw(0.6):
            await asyncio.gather(*binds)
    await asyncio.gather(*binds)


async def attempt(stage: Stage, pod: Pod) -> str:
    """Try a pod: on its nominated node first, then on all. Returns the node to bind it to; empty if there is none."""
    raw = await stage.pod(pod.key)
    nominated = raw["status"].get("nominatedNodeName")
    for names in ([nominated] if nominated else []), stage.draw.order(stage.nodes()):
        if names and (found := await _filtered(stage, raw, names)):
            scores = await stage.call(f"prioritize {pod}", "POST", "/prioritize", await _asked(stage, raw, found))
            best = {each["Host"]: each["Score"] for each in scores} if isinstance(scores, list) else {}
            return max(found, key=lambda name: best.get(name, 0))
    if stage.draw(0.5):
        await _preempt(stage, raw)
    await stage.turn()
    stage.note("background")
    return ""


async def _filtered(stage: Stage, raw: Object, names: list[str]) -> list[str]:
    """The nodes that filter leaves."""
    name = raw["metadata"]["name"]
    answer = await stage.call(f"filter {name}", "POST", "/filter", await _asked(stage, raw, names))
    passed = answer.get("NodeNames") or [
        each["metadata"]["name"] for each in (answer.get("Nodes") or {}).get("items") or ()
    ]
    return [] if answer.get("Error") else passed


async def _asked(stage: Stage, raw: Object, names: list[str]) -> Object:
    """ExtenderArgs, with names or with whole nodes."""
    if "whole nodes" not in stage.world.has:
        return {"Pod": raw, "Nodes": None, "NodeNames": names}
    nodes = [await stage.get(NODES, ObjectKey("", name)) for name in names if name in stage.nodes()]
    return {"Pod": raw, "Nodes": {"items": nodes}, "NodeNames": None}


async def bind(stage: Stage, pod: Pod, node: str) -> None:
    """Bind a pod to a node; now and then twice, as after a timeout."""
    body = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
    for _ in range(2 if stage.draw(0.05) else 1):
        await stage.call(f"bind {pod} {node}", "POST", "/bind", body)


async def _preempt(stage: Stage, raw: Object) -> None:
    """Ask whom to evict; now and then, the scheduler evicts them and nominates the pod."""
    pod = raw["metadata"]["name"]
    victims = {name: chosen for name in stage.nodes() if (chosen := _victims(stage, raw, name))}
    if not victims:
        return
    is_whole = "whole nodes" in stage.world.has
    field = "NodeNameToVictims" if is_whole else "NodeNameToMetaVictims"
    named = {name: {"Pods": chosen, "NumPDBViolations": 0} for name, chosen in victims.items()}
    answer = await stage.call(f"preempt {pod}", "POST", "/preempt", {"Pod": raw, field: named})
    found = answer.get("NodeNameToMetaVictims") or {}
    if found and stage.draw(0.6):
        await _evict(stage, raw, min(found), found[min(found)])


def _victims(stage: Stage, raw: Object, node: str) -> list[Any]:
    """Pods of lower priority on a node, as the scheduler has chosen them."""
    priority = raw["spec"].get("priority", 0)
    lower = [pod for pod in stage.pods() if pod.node_name == node and pod.priority < priority]
    chosen = stage.draw.some(lower, 1, 2) if lower else []
    if "whole nodes" in stage.world.has:
        return [{"metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}} for pod in chosen]
    return [{"UID": pod.uid} for pod in chosen]


async def _evict(stage: Stage, raw: Object, node: str, entry: Any) -> None:
    """What the scheduler does with the answer."""
    chosen = {each["UID"] for each in entry["Pods"]}
    key = ObjectKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
    await stage.cluster.api.patch_status(PODS, key, {"status": {"nominatedNodeName": node}})
    for pod in stage.pods():
        if pod.uid in chosen:
            try:
                await stage.cluster.api.delete(PODS, pod.key)
            except ApiError:
                continue
    await stage.turn()
    stage.note("background")
