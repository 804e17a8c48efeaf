"""Pods that need devices in different ways, and a node on which two of them compete."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from allocator import Features
from allocator.audit.rules import Rule
from extender.answers.audit import audit_snapshot
from extender.answers.whatif.answering import Answering
from extender.answers.whatif.question import read_question
from extender.autoscaler.scale_up.estimate import estimate
from extender.autoscaler.scale_up.plan import EXPANDERS
from extender.autoscaler.simulated_cluster import World
from extender.cluster.objects.claims import ALLOCATION_MODE
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, Pod
from extender.framework.service import Service
from extender.framework.victims import Victims
from extender.framework.wire import FilterArgs, PreemptArgs
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, SLICES, Resource
from extender.planning.templates import Catalog, Supply
from tests.extender.autoscaler.scenes import GROUP as GROUP_LABEL
from tests.extender.autoscaler.scenes import group_of, pending
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, negotiated_class
from tests.extender.plugins.requeue.scheduler_queue import SchedulerQueue
from tests.extender.plugins.resource_classes.test_resource_classes import needs, resource_class
from tests.kit.clusters import (
    CREATED,
    DRIVER,
    Cluster,
    Object,
    claim,
    device_class,
    local_slice,
    node,
    pod,
    request,
    solver,
)
from tests.kit.controllers import Licenses
from tests.kit.objects.parts import exactly
from tests.kit.virtualtime import elapse

EXTENDED: Final = "example.com/gpu"
ATTACHED: Final = "example.com/attached"
WAITS: Final = (Rule.ALLOCATION, Rule.RESERVATION)
WHOLE: Final = f'device.attributes["{DRIVER}"].whole'


def _nothing(_device: Object) -> None:
    """The devices stay as they are."""


@dataclass(frozen=True)
class Form:
    """A way to need devices.

    Attributes:
        make: the pods of this way, and what belongs to them, by a name and a priority.
        changes: what this way needs of each device.
        wants: how many devices its pods take.
    """

    make: Callable[[str, int], list[Object]]
    changes: Callable[[Object], None] = _nothing
    wants: int = 1


def plain(name: str, priority: int, *requests: Object) -> list[Object]:
    return [pod(name, f"{name}-c", priority=priority), claim(f"{name}-c", *requests)]


def _gang(name: str, priority: int) -> list[Object]:
    made = [each for number in range(2) for each in plain(f"{name}{number}", priority)]
    for each in made:
        if each["kind"] == "Pod":
            each["metadata"]["annotations"] = {GROUP: name, GROUP_SIZE: "2"}
    return made


def _negotiated(name: str, priority: int) -> list[Object]:
    return plain(name, priority, request(), LICENSE)


def _extended(name: str, priority: int) -> list[Object]:
    return [pod(name, priority=priority, resources={EXTENDED: "1"})]


def _immediate(name: str, priority: int) -> list[Object]:
    asking, own = plain(name, priority)
    own["metadata"]["annotations"] = {ALLOCATION_MODE: "Immediate"}
    return [own, asking]


def _pinned(name: str, priority: int) -> list[Object]:
    asking, own = plain(name, priority)
    asking["spec"]["nodeName"] = "n"
    return [own, asking]


def _shared(name: str, priority: int) -> list[Object]:
    return [*(pod(f"{name}{number}", f"{name}-c", priority=priority) for number in range(2)), claim(f"{name}-c")]


def _attached(device: Object) -> None:
    device |= {"bindsToNode": True, "bindingConditions": [ATTACHED], "bindingFailureConditions": ["example.com/broken"]}


def _consuming(name: str, priority: int) -> list[Object]:
    asked = exactly("gpu", "gpu", 1, capacity={"requests": {"memory": "60Gi"}})
    return plain(name, priority, asked)


def _divisible(device: Object) -> None:
    memory = {"value": "80Gi", "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Gi"}}}
    device |= {"allowMultipleAllocations": True, "capacity": {"memory": memory}}


def _partition(name: str, priority: int) -> list[Object]:
    return plain(name, priority, request(device_class="part"))


def _drawing(device: Object) -> None:
    amount = "80" if device["attributes"]["whole"]["bool"] else "40"
    counters = f"of-{device['name'].rpartition('-')[2]}"
    device["consumesCounters"] = [{"counterSet": counters, "counters": {"memory": {"value": amount}}}]


def _alternatives(name: str, priority: int) -> list[Object]:
    options = [{"name": f"n{count}", "deviceClassName": "gpu", "count": count} for count in (9, 1)]
    return plain(name, priority, {"name": "gpu", "firstAvailable": options})


def _of_resource_class(name: str, priority: int) -> list[Object]:
    return plain(name, priority, request(device_class="gold"))


def _taking(device: Object) -> None:
    device["nodeAllocatableResources"] = {"cpu": {"mapping": {"deviceMultiplier": "4"}}}


def _with_volume(name: str, priority: int) -> list[Object]:
    asking, own = plain(name, priority)
    asking["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return [asking, own]


FORMS: Final[Mapping[str, Form]] = {
    "gangs": Form(_gang, wants=2),
    "negotiated claims": Form(_negotiated),
    "extended resources": Form(_extended),
    "immediate claims": Form(_immediate),
    "pinned pods": Form(_pinned),
    "shared claims": Form(_shared),
    "binding conditions": Form(plain, _attached),
    "consumable capacity": Form(_consuming, _divisible),
    "partitions": Form(_partition, _drawing),
    "alternatives": Form(_alternatives),
    "taints": Form(plain),
    "resource classes": Form(_of_resource_class),
    "node resources": Form(plain, _taking),
    "volumes": Form(_with_volume),
}
PLAIN: Final = Form(plain)


def machine(on: str, *names: str, spare: int = 0) -> list[Object]:
    """A node with as many devices as the larger of the forms takes.

    A tainted device is there for "taints", which nobody may take; and one device more for "node resources", for which
    the node has no CPU.

    Args:
        on: the name of the node.
        spare: further devices.
    """
    forms = [FORMS[name] for name in names]
    wanted = max(form.wants for form in forms) + spare
    devices = [_device(f"gpu-{number}") for number in range(wanted + ("node resources" in names))]
    parts = [_device(f"part-{number}", whole=False) for number in range(wanted if "partitions" in names else 0)]
    for form in forms:
        for each in (*devices, *parts):
            form.changes(each)
    bad = [_device("bad") | {"taints": [{"key": "bad", "effect": "NoSchedule"}]}] if "taints" in names else []
    return [
        node(on, labels={GROUP_LABEL: "g"}, allocatable={"cpu": str(4 * wanted), "pods": "110"}),
        *_pool(on, [*devices, *bad], parts),
    ]


def classes(*names: str) -> list[Object]:
    """The classes that the forms ask for."""
    return [
        device_class(selectors=[WHOLE], extended=None if "node resources" in names else EXTENDED),
        device_class("part", selectors=[f"!{WHOLE}"]),
        resource_class("gold", needs("whole", "In", "true"), resource=EXTENDED),
        negotiated_class(),
    ]


def _device(name: str, *, whole: bool = True) -> Object:
    return {"name": name, "attributes": {"whole": {"bool": whole}}}


def _pool(name: str, devices: list[Object], parts: list[Object]) -> list[Object]:
    """The slices of a pool; partitions have counter sets, which stand in a slice of their own."""
    first = local_slice(name, 0)
    first["spec"]["devices"] = [*devices, *parts]
    if not parts:
        return [first]
    sets = sorted({of["counterSet"] for each in (*devices, *parts) for of in each.get("consumesCounters", ())})
    second = local_slice(name, 0)
    second["metadata"] |= {"name": f"slice-{name}-counters", "uid": f"uid-slice-{name}-counters"}
    del second["spec"]["devices"]
    second["spec"]["sharedCounters"] = [{"name": each, "counters": {"memory": {"value": "80"}}} for each in sets]
    for each in (first, second):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    return [first, second]


class Scene:
    """The node, the service, a scheduler's queue, and the drivers that attach devices."""

    def __init__(self, *names: str, spare: int = 0, more: Sequence[Object] = (), replicas: int = 1) -> None:
        takes_cpu = "node resources" in names
        self._names = names
        there = [*classes(*names), *machine("n", *names, spare=spare), *more]
        cluster = Cluster.of(*there, counts_resources=takes_cpu)
        features = replace(Features(), node_resources=takes_cpu)
        self.queue = SchedulerQueue(cluster, features=features, controllers={NAME: Licenses(left=2)}, replicas=replicas)
        self._parties: dict[str, list[Object]] = {}

    def add(self, party: str, form: Form, priority: int = 0) -> None:
        """The pods of a form come; all their names begin with that of the party."""
        self._parties[party] = form.make(party, priority)
        self.queue.add(*self._parties[party])

    async def run(self, seconds: float = 3.0) -> None:
        """Time passes, and drivers attach devices."""
        until = self.queue.now + seconds
        while self.queue.now < until:
            await self.queue.run(1.0)
            await self._attach()
            self.check()

    async def until(self, *parties: str) -> None:
        """Go on until exactly the pods of these parties are served, for half a minute at most."""
        expected = set().union(*(self.of(each) for each in parties))
        until = self.queue.now + 30.0
        while self.served() != expected and self.queue.now < until:
            await self.run(1.0)
        assert self.served() == expected

    async def end(self, party: str) -> None:
        """The pods of a party and their claims are deleted."""
        for resource, kind in ((PODS, "Pod"), (CLAIMS, "ResourceClaim")):
            for each in self._parties[party]:
                if each["kind"] == kind:
                    await self._delete(resource, each)
            await self.queue.cluster.settle()

    async def _delete(self, resource: Resource, obj: Object) -> None:
        try:
            await self.queue.cluster.api.delete(resource, ObjectKey("ns", obj["metadata"]["name"]))
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def _attach(self) -> None:
        """The driver attaches the devices whose claims wait for that."""
        published = (await self.queue.cluster.api.list(SLICES)).items
        waiting = {
            device["name"]
            for each in published
            for device in each["spec"].get("devices", ())
            if "bindingConditions" in device
        }
        for each in (await self.queue.cluster.api.list(CLAIMS)).items:
            status = each.get("status", {})
            results = status.get("allocation", {}).get("devices", {}).get("results", ())
            if not status.get("devices") and any(result["device"] in waiting for result in results):
                conditions = [{"type": ATTACHED, "status": "True", "reason": "Done", "message": ""}]
                said = [_said(result, conditions) for result in results]
                key = ObjectKey("ns", each["metadata"]["name"])
                await self.queue.cluster.api.patch_status(CLAIMS, key, {"status": {"devices": said}})

    def served(self) -> set[str]:
        """The pods that have their node and their devices."""
        snapshot = self.queue.cluster.state.snapshot
        held = [each.claim for each in snapshot.claims.values() if each.claim.allocation]
        users = {user.uid for each in held for user in each.reserved_for}
        return {pod.name for pod in snapshot.pods.values() if pod.node_name and pod.uid in users}

    def machine(self, on: str) -> list[Object]:
        """Another node like the first."""
        return machine(on, *self._names)

    def grow(self, on: str) -> None:
        """Another node like the first one comes. A scheduler tries all pods again then."""
        self.queue.add(*self.machine(on))
        self.queue.move()

    async def victims(self, name: str, uid: str, by: Service | None = None) -> Mapping[str, Victims]:
        """Whom the verb preempt names for a pod that filter has rejected, if the scheduler has chosen one victim."""
        asked = by or self.queue.service
        assert not (await asked.filter(FilterArgs(self.known(name), ("n",)))).passed
        await elapse(1)  # in which a controller answers
        return await asked.preempt(PreemptArgs(self.known(name), {"n": Victims((uid,))}))

    def foretold(self, question: Object) -> dict[str, str]:
        """What becomes of waiting pods by the answer to a question, by name."""
        by = replace(solver(features=self.queue.features), clock=lambda: self.queue.now)
        answering = Answering(by, Catalog(features=self.queue.features), CREATED, (), preempts=True)
        answer = answering.answer(read_question(question), self.queue.cluster.state.snapshot)
        return {each.pod.removeprefix("ns/"): each.difference.value for each in answer.pods}

    def estimated(self, party: str) -> list[list[str]]:
        """The pods on each node that an autoscaler would add for a party."""
        snapshot, features = self.queue.cluster.state.snapshot, self.queue.features
        world = World(snapshot, Supply(Catalog(group_label=GROUP_LABEL, features=features), snapshot))
        cpu = next(iter(self.machine("new")))["status"]["allocatable"]["cpu"]
        group = group_of("g", node=node("template", labels={GROUP_LABEL: "g"}, allocatable={"cpu": cpu, "pods": "9"}))
        asked = [each for each in self._parties[party] if each["kind"] == "Pod"]
        by = replace(solver(features=features), clock=lambda: self.queue.now)
        plan = estimate(world, pending(*asked), [group], EXPANDERS["least-waste"], by)
        return [sorted(pod.name for pod in added) for found in plan.groups for added in found.nodes]

    def known(self, name: str) -> Pod:
        """A pod, as the service knows it."""
        return self.queue.cluster.state.snapshot.pods[ObjectKey("ns", name)]

    def of(self, party: str) -> set[str]:
        """The names of a party's pods."""
        return {each["metadata"]["name"] for each in self._parties[party] if each["kind"] == "Pod"}

    def check(self) -> None:
        """The audit finds nothing, except that a pinned pod waits for its devices."""
        findings = audit_snapshot(self.queue.cluster.state.snapshot)
        expected = WAITS if "pinned pods" in self._names else ()
        assert [each for each in findings if each.rule not in expected] == []


def _said(result: RawObject, conditions: list[Object]) -> Object:
    device = {name: result[name] for name in ("driver", "pool", "device", "shareID") if name in result}
    return device | {"conditions": conditions}
