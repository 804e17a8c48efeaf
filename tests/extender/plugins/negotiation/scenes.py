"""What negotiation is tried on: two nodes with a GPU each, a controller with licenses, and replicas of the service."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.claims import MARK, MARK_FINALIZER
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.writes.pods import DEVICES_CHANGED
from extender.config.settings import Settings
from extender.faces.assembly import Extender, Surroundings, make_extender
from extender.framework.background_runner import PAUSE_SECONDS
from extender.framework.filter import FilterResult
from extender.framework.service import Service
from extender.framework.wire import BindArgs, FilterArgs
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.negotiation.protocol import Controller
from extender.tools.faults import RefusedError
from extender.tools.offload import at_once
from tests.extender.framework.bind.replica_gates import Watch
from tests.kit import virtualtime
from tests.kit.clusters import GPU, NOW, Cluster, Object, claim, device_class, local_slice, node, pod, request, solver
from tests.kit.controllers import Licenses
from tests.kit.servers.memory import Transport

NAME = "licenses.example.com"
URL = {"name": NAME, "url": "http://localhost:1"}


def negotiated_class(name: str = "license", controller: str = NAME, **annotations: str) -> Object:
    found = device_class(name)
    keys = {f"dra-extender.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    found["metadata"]["annotations"] = {"dra-extender.dev/controller": controller, **keys}
    return found


LICENSE = request("license", device_class="license")
WORLD = (GPU, negotiated_class(), node("n"), node("m"), local_slice("n"), local_slice("m"))


def pods(*names: str, requests: tuple[Object, ...] = (LICENSE,)) -> list[Object]:
    """Pods, each with a claim of its own."""
    return [each for name in names for each in (pod(name, f"{name}-c"), claim(f"{name}-c", *requests))]


class Scene:
    """A cluster, a controller, and services over them.

    Args:
        others: further controllers, by name.

    Attributes:
        seconds: that have passed.
    """

    def __init__(
        self,
        *objects: Object,
        licenses: Licenses | None = None,
        world: tuple[Object, ...] = WORLD,
        others: Mapping[str, Licenses] | None = None,
    ) -> None:
        self.cluster = Cluster.of(*world, *objects)
        self.transport = Transport(self.cluster.api)
        self.licenses = licenses or Licenses()
        self.controllers: dict[str, Controller] = {NAME: self.licenses, **(others or {})}
        self.seconds = 0.0
        self.extender = self.another()
        self.service = self.extender.service

    def time(self) -> float:
        """The clock of the services. Waiting takes no time by it, unless a scene says otherwise."""
        return self.seconds

    def replica(self, **given: Any) -> Service:
        """Another service over the cluster: the one after a crash, or, with a state of its own, a second replica."""
        return self.another(**given).service

    def another(
        self,
        *,
        simulation: bool = False,
        controllers: list[dict[str, Any]] | None = None,
        state: ClusterState | None = None,
    ) -> Extender:
        """As `replica`, with all that answers people."""
        named = [{**URL, "name": name} for name in self.controllers]
        settings = Settings.model_validate({"controllers": named if controllers is None else controllers})
        around = Surroundings(None, self.controllers, simulation, now=lambda: NOW + timedelta(seconds=self.time()))
        by = replace(solver(), clock=self.time)
        known = state or self.cluster.state
        return make_extender(self.transport, known, by, settings, around=around, off_loop=at_once)

    def second(self) -> tuple[Service, Watch]:
        """A second replica, and the watch that tells it what happens from now on, when it is told to."""
        watch = Watch(ClusterState())
        self.cluster.api.follow(watch)
        return self.replica(state=watch.state), watch

    async def filter(self, name: str = "p", *names: str, by: Service | None = None) -> FilterResult:
        asked = parse_pod(await self.cluster.api.get(PODS, ObjectKey("ns", name)))
        return await self.filter_of(asked, *names, by=by)

    async def filter_of(self, asked: Pod, *names: str, by: Service | None = None) -> FilterResult:
        """Filter of a pod of any namespace."""
        return await (by or self.service).filter(FilterArgs(asked, list(names or ("n", "m"))))

    async def reasons(self, name: str = "p", by: Service | None = None) -> list[str]:
        """Why filter leaves the pod no node; empty if it leaves one."""
        result = await self.filter(name, by=by)
        return [] if result.passed else sorted(set(result.unresolvable.in_words().values()))

    async def bind(self, name: str = "p", on: str = "n", by: Service | None = None) -> str:
        """Bind a pod; the error, empty for a success."""
        try:
            await (by or self.service).bind(BindArgs(name, "ns", f"uid-{name}", on))
        except RefusedError as error:
            return str(error)
        return ""

    async def tick(self, seconds: float = 0.2, by: Service | None = None) -> None:
        """Some time passes, the background tasks have a turn, and what they have begun ends."""
        self.seconds += seconds
        await (by or self.service).background.tick()
        await virtualtime.elapse(1)

    async def claim(self, name: str = "p-c") -> RawObject:
        return await self.cluster.api.get(CLAIMS, ObjectKey("ns", name))

    async def mark(self, name: str = "p-c") -> str:
        """The mark of a claim; it has the finalizer unless it is released."""
        metadata = (await self.claim(name))["metadata"]
        mark: str = (metadata.get("annotations") or {}).get(MARK, "")
        has_finalizer = MARK_FINALIZER in (metadata.get("finalizers") or [])
        assert has_finalizer == bool(mark and not mark.endswith(" released"))
        return mark

    async def allocation(self, name: str = "p-c") -> RawObject | None:
        found: RawObject | None = (await self.claim(name)).get("status", {}).get("allocation")
        return found

    async def woken(self, name: str = "p") -> bool:
        """Whether a pod was patched, so that its scheduler tries it again."""
        conditions = (await self.cluster.api.get(PODS, ObjectKey("ns", name))).get("status", {}).get("conditions", [])
        return any(each["type"] == DEVICES_CHANGED for each in conditions)

    async def end(self, name: str = "p") -> None:
        """A pod ends and is deleted, and Kubernetes' controllers release its claims."""
        await self.cluster.api.delete(PODS, ObjectKey("ns", name))
        await self.cluster.settle()

    async def exists(self, name: str = "p-c") -> bool:
        try:
            await self.claim(name)
        except ApiError:
            return False
        return True


class TimedScene(Scene):
    """A scene in which waiting takes its time."""

    def time(self) -> float:
        return now()

    async def took(self, name: str) -> float:
        """The time that filter takes for a pod. All other pods of its scheduler wait for that long."""
        began = now()
        await self.filter(name)
        return now() - began

    async def turns(self, seconds: float, by: Service | None = None) -> None:
        """The background tasks have their turns for a while."""
        for _ in range(round(seconds / PAUSE_SECONDS)):
            await (by or self.service).background.tick()
            await virtualtime.elapse(PAUSE_SECONDS)


def now() -> float:
    return asyncio.get_running_loop().time()
