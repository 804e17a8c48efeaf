"""Who else works in a simulated cluster: the claim controller, kubelets, drivers, and what people do."""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from extender.kube.api import ApiError, Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, NODES, PODS, SLICES, TAINT_RULES, Resource
from extender.lab.api import MemoryApi
from extender.lab.cluster import Backlog, ClaimController
from tests.corpus.chance import Draw
from tests.corpus.machines import ATTACHED, BROKEN, device
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, taint_rule
from tests.simulation.chance import Chance
from tests.simulation.invariants import users
from tests.simulation.kept import claims_of

_KUBELET: Final = "example.com/kubelet"
"""The finalizer of pods that a kubelet has to end first. Kubernetes has the grace period for it."""

_FINISHED: Final = {"Succeeded", "Failed"}


async def control_claims(api: MemoryApi, chance: Chance, *, has_group_claims: bool) -> None:
    """Do kube-controller-manager's work on claims, a moment after each change."""
    controller, backlog = ClaimController(api, has_group_claims), Backlog()
    api.follow(backlog)
    while True:
        await backlog.waiting.wait()
        await virtualtime.elapse(chance.between("claim controller", 0.005, 0.3))
        try:
            await controller.work_off(backlog)
        except ApiError:  # as with a conflict: it is tried again at the next change
            await virtualtime.elapse(1.0)


@dataclass
class _Actor:
    """Follows the API server, and does something a while after a change."""

    api: MemoryApi
    chance: Chance

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.api.follow(self)

    def replace(self, resource: Resource, objects: Iterable[RawObject], at: int) -> bool:
        """What there is at first."""
        del at
        for each in objects:
            self.meet(resource, each)
        return True

    def meet(self, resource: Resource, obj: RawObject) -> None:
        """An object is there from the start."""

    def apply(self, event: Event) -> None:
        """An object has changed."""

    def _later(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        self._loop.call_later(seconds, lambda: asyncio.ensure_future(work()))


class Kubelets(_Actor):
    """The kubelets of all nodes: they start and end the pods that are bound."""

    def meet(self, resource: Resource, obj: RawObject) -> None:
        """A pod that is there from the start."""
        self.apply(Event(EventType.ADDED, resource, obj))

    def apply(self, event: Event) -> None:
        """A pod has changed."""
        if event.resource != PODS or event.type is EventType.DELETED:
            return
        pod = event.object
        if "deletionTimestamp" in pod["metadata"]:
            seconds = self.chance.between("a pod ends", 0.05, 6.0) if pod["spec"].get("nodeName") else 0.01
            self._later(seconds, partial(self._end, pod))
        elif pod["spec"].get("nodeName") and pod.get("status", {}).get("phase", "Pending") == "Pending":
            self._later(self.chance.between("a pod starts", 0.1, 3.0), partial(self._begin, pod))

    async def _begin(self, pod: RawObject) -> None:
        """Start a pod, once its claims are reserved for it."""
        uid, own = pod["metadata"]["uid"], list(claims_of(pod))
        claims = [await self.api.get(CLAIMS, each) for each in own if self.api.has(CLAIMS, each)]
        if len(claims) < len(own) or not all(uid in {user["uid"] for user in users(each)} for each in claims):
            self._later(1.0, partial(self._again, pod))
            return
        patch = {"metadata": {"uid": uid}, "status": {"phase": "Running"}}
        await _tried(self.api.patch_status(PODS, key_of(pod), patch))

    async def _again(self, pod: RawObject) -> None:
        with suppress(ApiError):
            now = await self.api.get(PODS, key_of(pod))
            if now["metadata"]["uid"] == pod["metadata"]["uid"] and "deletionTimestamp" not in now["metadata"]:
                await self._begin(now)

    async def _end(self, pod: RawObject) -> None:
        patch = {"metadata": {"uid": pod["metadata"]["uid"], "finalizers": None}}
        await _tried(self.api.patch(PODS, key_of(pod), patch))


class AttachingDrivers(_Actor):
    """Drivers that attach devices with binding conditions to nodes; some fail. What there is at first is attached."""

    def apply(self, event: Event) -> None:
        """A claim has changed."""
        if event.resource != CLAIMS or event.type is EventType.DELETED:
            return
        status = event.object.get("status") or {}
        results = status.get("allocation", {}).get("devices", {}).get("results", ())
        waiting = [each for each in results if each.get("bindingConditions")]
        if waiting and not status.get("devices"):
            seconds = self.chance.between("a device is attached", 0.2, 8.0)
            kind = BROKEN if self.chance.happens("a device breaks", 0.1) else ATTACHED
            self._later(seconds, partial(self._say, event.object, waiting, kind))

    async def _say(self, claim: RawObject, results: list[RawObject], kind: str) -> None:
        condition = {"type": kind, "status": "True", "reason": "Done", "message": ""}
        conditions = [condition | {"lastTransitionTime": "2026-02-01T00:00:00Z"}]
        fields = ("driver", "pool", "device", "shareID")
        said = [{name: each[name] for name in fields if name in each} | {"conditions": conditions} for each in results]
        metadata = {"uid": claim["metadata"]["uid"], "resourceVersion": claim["metadata"]["resourceVersion"]}
        await _tried(self.api.patch_status(CLAIMS, key_of(claim), {"metadata": metadata, "status": {"devices": said}}))


def with_kubelet(obj: RawObject) -> RawObject:
    """An object as it comes: a pod has a kubelet that ends it."""
    if obj["kind"] != PODS.kind:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [_KUBELET]}}


# --- what people and drivers do ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class People:
    """What happens by chance, each from a draw of its own."""

    api: MemoryApi
    has: frozenset[str]

    async def do(self, what: str, draw: Draw) -> None:
        """Do one of `tests.simulation.plan.HAPPENINGS`."""
        await _tried(_DEEDS[what](self, draw))

    async def _of(self, resource: Resource) -> list[RawObject]:
        return list((await self.api.list(resource)).items)

    async def _delete(self, draw: Draw) -> None:
        if pods := await self._of(PODS):
            await self.api.delete(PODS, key_of(draw.of(pods)))

    async def _end(self, draw: Draw) -> None:
        """Some pods that run have come to their end."""
        pods = [each for each in await self._of(PODS) if each.get("status", {}).get("phase") == "Running"]
        for each in draw.some(pods, 1, 3):
            await self.api.patch_status(PODS, key_of(each), {"status": {"phase": draw.of(["Succeeded", "Failed"])}})

    async def _end_many(self, draw: Draw) -> None:
        """Most pods that run have come to their end."""
        for each in await self._of(PODS):
            if each.get("status", {}).get("phase") == "Running" and draw(0.7):
                await self.api.patch_status(PODS, key_of(each), {"status": {"phase": "Succeeded"}})

    async def _make_again(self, draw: Draw) -> None:
        """A pod that waits is deleted, and its controller makes one of the same name, with the same claims."""
        waiting = [each for each in await self._of(PODS) if not each["spec"].get("nodeName")]
        if waiting:
            await self._made_again(draw.of(waiting))

    async def make_again(self, uids: Container[str], after: float) -> None:
        """One of some pods is made again after a while, if it is there."""
        await virtualtime.elapse(after)
        for each in await self._of(PODS):
            if each["metadata"]["uid"] in uids and not each["spec"].get("nodeName"):
                await _tried(self._made_again(each))
                return

    async def _made_again(self, chosen: RawObject) -> None:
        await self.api.delete(PODS, key_of(chosen))
        await virtualtime.elapse(0.02)  # its kubelet has nothing to end
        metadata = {name: chosen["metadata"].get(name) for name in ("namespace", "name", "labels", "annotations")}
        await self.api.create(PODS, with_kubelet({**chosen, "metadata": metadata, "status": {"phase": "Pending"}}))

    async def _publish(self, draw: Draw) -> None:
        """A driver publishes a pool anew, with other attributes of a device that nobody has."""
        held = await self._held()
        slices = [each for each in await self._of(SLICES) if each["spec"].get("devices")]
        if not slices:
            return
        chosen = draw.of(slices)
        pool = chosen["spec"]["pool"]["name"]
        for place, each in enumerate(chosen["spec"]["devices"]):
            if (pool, each["name"]) not in held and not {"nodeName", "allNodes", "nodeSelector"} & each.keys():
                chosen["spec"]["devices"][place] = device(draw, each["name"], self.has - {"partitions"})
                break
        await self.api.update(SLICES, chosen)

    async def _held(self) -> set[tuple[str, str]]:
        """Pool and name of the devices that claims hold, or may be given in this moment."""
        found = set()
        for each in await self._of(CLAIMS):
            results = (each.get("status") or {}).get("allocation", {}).get("devices", {}).get("results", ())
            found |= {(result["pool"], result["device"]) for result in results}
        return found

    async def _add_devices(self, draw: Draw) -> None:
        """A driver publishes one more device in each pool: nothing but the slices changes."""
        for each in await self._of(SLICES):
            if devices := each["spec"].get("devices"):
                added = {**draw.of(devices), "name": f"gpu-{len(devices)}"}
                if "consumesCounters" not in added:
                    await self.api.update(SLICES, {**each, "spec": {**each["spec"], "devices": [*devices, added]}})

    async def _cordon(self, draw: Draw) -> None:
        nodes = await self._of(NODES)
        if not nodes:
            return
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        spec = {"unschedulable": True, "taints": [taint]} if draw(0.5) else {"unschedulable": None, "taints": None}
        await self.api.patch(NODES, key_of(draw.of(nodes)), {"spec": spec})

    async def _leave(self, draw: Draw) -> None:
        """A node without pods goes, and its slices with it."""
        busy = {each["spec"].get("nodeName") for each in await self._of(PODS)}
        idle = [each for each in await self._of(NODES) if each["metadata"]["name"] not in busy]
        if len(idle) < 2:
            return
        name = draw.of(idle)["metadata"]["name"]
        await self.api.delete(NODES, ObjectKey("", name))
        for each in await self._of(SLICES):
            if each["spec"].get("nodeName") == name:
                await self.api.delete(SLICES, key_of(each))

    async def _taint(self, draw: Draw) -> None:
        nodes = [each["metadata"]["name"] for each in await self._of(NODES)]
        if not nodes:
            return
        rule = taint_rule(f"taint-{draw.number(0, 3)}", driver=DRIVER, pool=draw.of(nodes))
        await self.api.create(TAINT_RULES, rule)

    async def _untaint(self, _: Draw) -> None:
        for each in await self._of(TAINT_RULES):
            await self.api.delete(TAINT_RULES, key_of(each))

    async def _edit_quota(self, draw: Draw) -> None:
        quotas = await self._of(DEVICE_QUOTAS)
        if not quotas:
            return
        chosen = draw.of(quotas)
        for limit in chosen["spec"].get("limits") or ():
            if "devices" in limit:
                limit["devices"] = draw.number(0, 4)
        await self.api.update(DEVICE_QUOTAS, chosen)


_DEEDS: Final[Mapping[str, Callable[[People, Draw], Awaitable[None]]]] = {
    "a pod is deleted": People._delete,
    "pods end": People._end,
    "many pods end": People._end_many,
    "a pod is made again": People._make_again,
    "a driver publishes": People._publish,
    "a driver adds devices": People._add_devices,
    "a node is cordoned": People._cordon,
    "a node leaves": People._leave,
    "a taint comes": People._taint,
    "taints go": People._untaint,
    "a quota is edited": People._edit_quota,
}


async def _tried(work: Awaitable[object]) -> None:
    """What somebody tries who lives with a refusal: the object has changed meanwhile, or is gone."""
    try:
        await work
    except ApiError:
        return
