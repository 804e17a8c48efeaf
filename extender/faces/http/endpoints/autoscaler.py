"""Autoscalers on HTTP: the paths of their verbs, and what their sessions have planned, for the console.

People see what sessions have planned: nodes that do not exist, and the pods and devices on them.
"""

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Annotated, Final

import anyio.to_thread
import orjson
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from allocator import PoolId
from extender.answers.explain.made_up_nodes import devices_of, made_up_node, node_as_json, picture_of
from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.sessions import FORWARDED, SESSION, PassedCall, Planned, Session
from extender.autoscaler.simulated_cluster import World
from extender.autoscaler.verbs import AUTOSCALER_VERBS, START
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.config.settings import AUTOSCALER_PREFIX
from extender.faces.http.callers import USER, caller_of
from extender.faces.http.replies import Shared
from extender.faces.http.verb_endpoints import Application, Elsewhere, Endpoints, nowhere_else
from extender.framework.decisions.solver import No, Solver

_LONGEST_CALLER: Final = 100
"""Characters of the name of a caller that are kept with a session."""


def add_autoscaler_routes(app: Application, autoscaler: Autoscaler, endpoints: Endpoints) -> None:
    """All of them, under a prefix of their own."""

    def by(request: Request) -> InSession:
        return InSession(autoscaler, request.headers.get(SESSION), _caller(request), caller_of(request.scope))

    for verb in AUTOSCALER_VERBS:
        path, name = f"{AUTOSCALER_PREFIX}/{verb.name}", f"autoscaler/{verb.name}"
        elsewhere = nowhere_else if verb is START else _passing_on(verb.name, autoscaler)
        app.add_verb(endpoints.route(path, name, verb, by, "autoscaler", elsewhere), is_prompt=False)


def _caller(request: Request) -> str:
    name = str(request.scope.get(USER) or request.headers.get("user-agent", ""))
    return name[:_LONGEST_CALLER]


def _passing_on(verb: str, autoscaler: Autoscaler) -> Elsewhere:
    """Passes calls on whose session another replica has."""

    async def pass_on(request: Request, body: bytes) -> bytes | None:
        session, peers = request.headers.get(SESSION), autoscaler.peers
        if peers is None or session is None or FORWARDED in request.headers or not peers.owner(session):
            return None
        return await peers.answer(PassedCall(verb, session, body))

    return pass_on


MOST_NODES: Final = 50
"""New nodes of a session, or of a plan, that are told; the others are counted."""

SECONDS: Final = 2.0
"""For all plans of an answer together. Of a plan that takes longer, the rest of the nodes has no pods."""


@dataclass(frozen=True, slots=True)
class SeenSessions:
    """The sessions at one moment. A session itself changes with the next call.

    Attributes:
        position: another text if something has changed.
        sessions: the newest first, each as a copy and with its age in seconds.
    """

    position: str
    sessions: tuple[tuple[Session, float], ...]


@dataclass(frozen=True, slots=True)
class SessionViews:
    """The sessions of this replica, for people.

    An id of a session lets its owner use the session, so it is not told; a session is named by a digest of its id.

    Attributes:
        now: the time of day.
        process: a text that no other process has. So a page of another process, before a restart or behind the same
            address, reads everything again.
    """

    autoscaler: Autoscaler
    now: Callable[[], datetime]
    process: str

    def seen(self) -> SeenSessions:
        """The sessions now; to be called on the event loop, where they change."""
        sessions = self.autoscaler.sessions
        listed = tuple((replace(each), age) for each, age in sessions.listed())
        return SeenSessions(f"{self.process}-{sessions.changes}-{len(listed)}", listed)

    def document(self, seen: SeenSessions) -> dict[str, object]:
        """The sessions as they were seen."""
        solver = self.autoscaler.solver
        until = solver.within(solver.clock() + SECONDS)
        return {
            "position": seen.position,
            "others": self.autoscaler.peers is not None,
            "sessions": [self._session(each, age, until) for each, age in seen.sessions],
        }

    def _session(self, session: Session, age: float, solver: Solver) -> dict[str, object]:
        world = session.world
        names, features = list(world.fictional), solver.features
        told = sorted(names)[:MOST_NODES]
        nodes = [made_up_node(name, _origin(world, name), world.snapshot, features) for name in told]
        pools = [pool for node in nodes for pool in node.pools]
        before = world.supply.snapshot.pods
        booked = [str(pod) for key, pod in world.snapshot.pods.items() if before.get(key) is not pod]
        return {
            "session": hashlib.blake2b(session.id.encode(), digest_size=4).hexdigest(),
            "caller": session.caller,
            "started": (self.now() - timedelta(seconds=age)).isoformat(),
            "drivers": None if world.scope is None else sorted(world.scope.drivers),
            "nodes": [node_as_json(each) for each in nodes],
            "nodeCount": len(names),
            "booked": sorted(booked),
            "picture": picture_of(pools, world.snapshot, features),
            "plan": None if session.planned is None else _plan(world, session.planned, solver),
        }


def _origin(world: World, name: str) -> str:
    return ", ".join(each.origin for each in world.fictional[name])


def _plan(world: World, planned: Planned, solver: Solver) -> dict[str, object]:
    """A plan, carried out in a world of its own: so its devices are known."""
    templates = {each.name: each.room.node for each in planned.groups}
    groups: list[dict[str, object]] = []
    pools: list[PoolId] = []
    left = MOST_NODES
    for group in planned.plan.groups:
        nodes = []
        names = (name for number in count(1) if (name := f"{group.name}-new-{number}") not in world.snapshot.nodes)
        for name, pods in zip(names, group.nodes[:left], strict=False):
            node = replace(templates[group.name], node=replace(templates[group.name].node, name=name))
            world = _with_pods(world.with_nodes((node,)), pods, node, solver)
            found = made_up_node(name, _origin(world, name), world.snapshot, solver.features)
            placed = tuple((str(pod), devices_of(pod, world.snapshot)) for pod in pods)
            nodes.append(node_as_json(replace(found, pods=placed)))
            pools += found.pools
        left -= len(nodes)
        groups.append({"group": group.name, "add": len(group.nodes), "devices": group.devices, "nodes": nodes})
    failed = [{"pod": str(pod), "reason": reason} for pod, reason in planned.plan.failed]
    return {"groups": groups, "failed": failed, "picture": picture_of(pools, world.snapshot, solver.features)}


def _with_pods(world: World, pods: Iterable[Pod], node: NodeObject, solver: Solver) -> World:
    """The world with some pods on a node, as far as there is time."""
    for pod in pods:
        try:
            after = world.with_pod(pod, node, solver)
        except TimeoutError:
            return world
        world = world if isinstance(after, No) else after
    return world


_PAUSE: Final = 4
"""The pause after a rendering, in times of its duration: so rendering takes at most a fifth of the time."""


class Since(BaseModel):
    """The state that the page has read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: str = Field(default="", description='The "position" that the page has read.', max_length=64)


def add_autoscaler_sessions(app: FastAPI, views: SessionViews) -> None:
    """``/console/sessions``."""

    async def rendered() -> bytes:
        return await anyio.to_thread.run_sync(partial(_rendered, views, views.seen()))

    all_of_them = Shared(rendered, time.monotonic, _PAUSE)

    @app.get(
        "/console/sessions",
        tags=["console"],
        summary="What autoscalers have planned in their sessions; only the position, if nothing has changed.",
        response_class=Response,
    )
    async def get_console_sessions(query: Annotated[Since, Query()]) -> Response:
        position = views.seen().position
        is_known = query.after == position
        found = orjson.dumps({"position": position}) if is_known else await all_of_them.latest()
        return Response(found, media_type="application/json")


def _rendered(views: SessionViews, seen: SeenSessions) -> bytes:
    return orjson.dumps(views.document(seen))
