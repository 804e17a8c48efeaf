"""A stage for a world: its cluster in memory, the service over it, HTTP, and the time that passes there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import orjson
import yaml
from anyio._backends._asyncio import AsyncIOBackend
from httpx import ASGITransport, AsyncClient
from starlette.types import ASGIApp, Receive, Scope, Send

from extender.autoscaler.autoscaler import Autoscaler, make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.claims import ClaimWrites
from extender.cluster.writes.other_kinds import ContextWrites
from extender.config.settings import ParameterKind, Settings
from extender.controllers import Responder, Store
from extender.controllers.contexts import ContextResponder
from extender.faces.assembly import Extender, Surroundings, make_extender, make_solver
from extender.faces.http.app import Listener, create_app
from extender.faces.http.callers import MAY, USER
from extender.framework.service import Service
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import DAEMON_SETS, PODS, POOL_REQUESTS, Resource
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import LOADED
from extender.planning.templates import Catalog, load_templates
from extender.plugins.negotiation.questions import ParameterReader, resource_of
from extender.tools.offload import at_once
from tests.corpus.api import RecordedApi
from tests.corpus.chance import Draw, clocks
from tests.corpus.composed import Fabric
from tests.corpus.log import Log
from tests.corpus.machines import CONTEXTS, GROUP
from tests.corpus.recording import Entry
from tests.corpus.slowness import LateWatch, after_a_while
from tests.corpus.worlds import PARAMETERS, World
from tests.kit import virtualtime
from tests.kit.clusters import DRIVER, NOW, Object, client_of

_TEMPLATES: Final = {
    "nodeTemplates": [
        {
            "name": "falcon",
            "labels": {GROUP: "falcon"},
            "slices": [
                {
                    "driver": DRIVER,
                    "devices": [
                        {
                            "name": f"gpu-{number}",
                            "attributes": {"model": {"string": "a100"}, "root": {"string": "left"}},
                            "capacity": {"memory": {"value": "80Gi"}},
                        }
                        for number in range(2)
                    ],
                }
            ],
        }
    ]
}
_URL: Final = "http://localhost"
_KINDS: Final = {**LOADED, DAEMON_SETS.kind: DAEMON_SETS, POOL_REQUESTS.kind: POOL_REQUESTS}
"""Objects are loaded without a look at their fields, as they come from a watch."""


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Within the context, what would run in a thread runs at once: the loop of virtual time knows no threads."""

    async def run(_: type, /, work: Any, args: tuple[Any, ...], **__: object) -> Any:
        return work(*args)

    with patch.object(AsyncIOBackend, "run_sync_in_worker_thread", classmethod(run)):
        yield


@dataclass
class Stage:
    """What a world is played on.

    Attributes:
        http: calls the service.
        restricted: calls it for somebody who may read the explanations of namespace "ns" only.
        autoscaler: the verbs for autoscalers.
        entries: what was called and written so far.
    """

    world: World
    draw: Draw
    cluster: EmbeddedCluster
    api: RecordedApi
    service: Service
    http: AsyncClient
    restricted: AsyncClient
    autoscaler: Autoscaler
    contexts: ContextResponder | None
    log: Log
    entries: list[Entry] = field(default_factory=list)

    @property
    def state(self) -> ClusterState:
        """The cluster as the service knows it."""
        return self.service.state

    @property
    def calls(self) -> int:
        """How many calls were answered."""
        return sum(each.is_call for each in self.entries)

    async def call(self, what: str, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Make a call and write it down; returns the answer, decoded if it is JSON."""
        content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        http = self.restricted if method == "GET" and self.draw(0.15) else self.http
        response = await http.request(method, path, content=content, headers=headers)
        kept = {name: value for name, value in sorted(response.headers.items()) if name != "content-length"}
        by = "restricted " if http is self.restricted else ""
        sent = f"{by}{method} {path} {headers or ''} {content.decode(errors='replace')}"
        self._note(what, sent, response.status_code, kept, response.text)
        is_json = response.headers.get("content-type") == "application/json"
        return response.json() if is_json and response.content else response.text

    def answered(self, what: str, request: str, answer: str) -> None:
        """Write down a call that is not made over HTTP."""
        self._note(what, request, HTTPStatus.OK, {}, answer)

    def note(self, what: str) -> None:
        """Write down what was written to the API server since the last entry, if anything was."""
        if self.api.written or self.log.lines:
            self._note(what)

    def _note(
        self, what: str, request: str = "", status: int = 0, headers: dict[str, str] | None = None, body: str = ""
    ) -> None:
        place = f"{self.world.name}/{len(self.entries):02}"
        # Decoded again, so that an entry that is read from a file is equal.
        writes = tuple(orjson.loads(orjson.dumps(self.api.written)))
        self.api.written.clear()
        self.entries.append(Entry(place, what, request, status, headers or {}, body, writes, tuple(self.log.lines)))
        self.log.lines.clear()

    # --- the cluster ---------------------------------------------------------------------------------------

    def load(self, *objects: Object) -> None:
        """Objects come as they are. One whose name is taken does not."""
        for each in objects:
            load(self.cluster, each)

    def pods(self) -> list[Pod]:
        """The pods with devices."""
        return sorted(self.state.snapshot.pods.values(), key=lambda pod: pod.key)

    def pending(self) -> list[Pod]:
        """Those that wait, the most important first."""
        found = [pod for pod in self.pods() if pod.is_pending and not pod.deleting]
        return sorted(found, key=lambda pod: (-pod.priority, pod.created, pod.key))

    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return sorted(self.state.snapshot.nodes)

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        """An object."""
        return await self.cluster.api.get(resource, key)

    async def pod(self, key: ObjectKey) -> RawObject:
        """A pod, as the API server has it."""
        return await self.get(PODS, key)

    async def turn(self, seconds: float = 0.2) -> None:
        """Time passes, controllers work, and the background tasks have a turn."""
        await virtualtime.elapse(seconds)
        await self.cluster.settle()
        if self.contexts is not None:
            await self.contexts.turn()
        await self.service.background.tick()
        await asyncio.gather(*self.service.background.unfinished, return_exceptions=True)


def load(cluster: EmbeddedCluster, obj: Object) -> None:
    """Add an object as it is, if its name is free."""
    with suppress(ApiError):
        cluster.api.load(_KINDS[obj["kind"]], obj)


@asynccontextmanager
async def stage(world: World, folder: Path, log: Log) -> AsyncIterator[Stage]:
    """The stage of a world, with a folder for files and what the service logs."""
    clock = asyncio.get_running_loop().time
    settings, draw = Settings.model_validate(world.settings), Draw(f"play {world.number}")

    def now() -> datetime:
        return NOW + timedelta(seconds=clock())

    with clocks(clock):  # Whoever is made here takes this clock for the machine's.
        cluster = _cluster(settings, now)
        for each in world.objects:
            load(cluster, each)
        _keep_parameters(cluster)
        pauses = (0.0, 0.002, 0.02, 0.3) if "slow" in world.has else (0.0,)
        faults = 0.15 if "faults" in world.has else 0.0
        api = RecordedApi(cluster.api, Draw(f"faults {world.number}"), faults, pauses)
        extender = _extender(world, cluster, api, settings, now)
        autoscaler = _autoscaler(extender, settings)
        app = create_app(extender, autoscaler, settings, clock=clock)
        api_app = create_app(extender, autoscaler, settings, Listener.API, clock=clock)
    contexts = _contexts(world, cluster, folder, clock) if "contexts" in world.has else None
    await cluster.settle()
    async with client_of(app) as http, AsyncClient(transport=ASGITransport(_restricted(api_app)), base_url=_URL) as few:
        yield Stage(world, draw, cluster, api, extender.service, http, few, autoscaler, contexts, log)


def _cluster(settings: Settings, now: Callable[[], datetime]) -> EmbeddedCluster:
    scheduling, features = settings.scheduling, settings.features
    return EmbeddedCluster(
        (),
        now=now,
        counts_cpu=scheduling.counts_cpu,
        cpu_of_all_pods=scheduling.cpu_of_all_pods,
        counts_resources=features.node_resources,
        has_group_claims=features.group_claims,
    )


def _extender(
    world: World, cluster: EmbeddedCluster, api: RecordedApi, settings: Settings, now: Callable[[], datetime]
) -> Extender:
    loop = asyncio.get_running_loop()
    solver = make_solver(settings, loop.time)
    around = Surroundings(controllers=world.controllers, now=now)
    if "slow" not in world.has:
        return make_extender(api, cluster.state, solver, settings, around=around, off_loop=at_once)
    state = replica_state(settings)
    cluster.api.follow(LateWatch(state))
    return make_extender(api, state, solver, settings, around=around, off_loop=after_a_while)


def replica_state(settings: Settings) -> ClusterState:
    """Another replica's state."""
    scheduling, features = settings.scheduling, settings.features
    return ClusterState(
        counts_cpu=scheduling.counts_cpu,
        cpu_of_all_pods=scheduling.cpu_of_all_pods,
        counts_resources=features.node_resources,
        has_group_claims=features.group_claims,
    )


def _keep_parameters(cluster: EmbeddedCluster) -> None:
    """The object that claims name for the controller of licenses."""
    kind = ParameterKind.model_validate(PARAMETERS)
    edition = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"namespace": "ns", "name": "pro"}}
    cluster.api.keep(resource_of(kind), ObjectKey("ns", "pro"), edition)


def _restricted(app: ASGIApp) -> ASGIApp:
    """An application as a gate lets somebody use it who may read the explanations of one namespace only."""

    async def may(_verb: str, path: str) -> bool:
        return path.startswith("/explain/ns/")

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, USER: "somebody", MAY: may}, receive, send)

    return answer


def _autoscaler(extender: Extender, settings: Settings) -> Autoscaler:
    templates = load_templates(yaml.safe_dump(_TEMPLATES), file="templates.yaml")
    catalog = Catalog(templates, settings.autoscaler.learn_from_label)
    clock = asyncio.get_running_loop().time
    solver = make_solver(settings, clock)
    negotiating = Negotiating(extender.negotiation.controllers, extender.overview.api)
    return make_autoscaler(extender.service, negotiating, solver, settings, catalog, at_once)


def _contexts(world: World, cluster: EmbeddedCluster, folder: Path, clock: Callable[[], float]) -> ContextResponder:
    """The process of the controller that is asked by PodSchedulingContexts."""
    draw = Draw(f"fabric {world.number}")
    fabric = Fabric(draw.number(0, 2), frozenset(draw.some(["node-a", "node-b"])))
    responder = Responder(fabric, Store.open(folder / "store.json"))
    writes, claims = ContextWrites(cluster.api), ClaimWrites(cluster.api, cluster.state)
    reader = ParameterReader(cluster.api, [])
    return ContextResponder(CONTEXTS, responder, writes, claims, clock, at_once, reader)
