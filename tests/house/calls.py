"""The calls that are traced, and how far they may travel.

The way of each call is that of the service: over HTTP in this process, through the application, with the state that
follows an API server in memory. There are 100 equal nodes of four devices; claims come from templates; the policy is
first-fit; searches run in the thread of the event loop. Two pods have their devices already, and a third one has been
answered by filter. The body of a traced call is new to the process.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import orjson
from httpx import AsyncClient

from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from extender.tools.offload import at_once
from tests.house.moves import Travel, traced
from tests.kit.clusters import (
    GPU,
    Cluster,
    Object,
    app_over,
    asking,
    binding,
    claim_template,
    client_of,
    local_slice,
    node,
    pod,
    request,
)

_NODES: Final = [f"node-{number}" for number in range(100)]
_KNOWN, _NEW = "one-device", "two-devices"
"""Templates of claims: one that filter has answered, and one that it has not."""

_numbers = count()
"""Each call has a number of its own in this process: the service remembers bodies that it has read."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The most modules that a call may enter, and the most moves that it may make.

    Attributes:
        goal: what it is to become.
    """

    extender: int
    allocator: int
    moves: int
    goal: str


BOUNDS: Final = {
    "filter, answer known": Bound(34, 2, 107, "40 modules, 110 moves"),
    "filter, new signature": Bound(35, 30, 275, "75 modules, 400 moves"),
    "bind": Bound(40, 27, 346, "45 + 28 modules, 350 moves"),
}
"""What each call does today. A change that makes it less lowers the bound; none raises it."""


async def travels() -> dict[str, Travel]:
    """Make the calls of `BOUNDS`, and return the way of each by its name."""
    await _travels()  # What a process does only once, such as to load the parser of expressions, does not count.
    return await _travels()


async def _travels() -> dict[str, Travel]:
    cluster = Cluster.of(*_objects())
    await cluster.settle()
    async with client_of(app_over(cluster.extender(off_loop=at_once))) as http:
        calls = _Calls(cluster, http)
        for name in ("first", "second"):
            await calls.filter(name)
            await calls.bind(name)
        await calls.filter("third")
        made: dict[str, Callable[[], Awaitable[Travel]]] = {
            "filter, answer known": lambda: calls.filter("known"),
            "filter, new signature": lambda: calls.filter("new"),
            "bind": lambda: calls.bind("known"),
        }
        return {name: await call() for name, call in made.items()}


def _objects() -> list[Object]:
    """The cluster: nodes with devices, and pods that wait."""
    machines = [each for name in _NODES for each in (node(name), local_slice(name, 4))]
    templates = [claim_template(_KNOWN), claim_template(_NEW, request(count=2))]
    waiting = [_pod(name, _KNOWN) for name in ("first", "second", "third", "known")]
    return [GPU, *machines, *templates, *waiting, _pod("new", _NEW)]


def _pod(name: str, template: str) -> Object:
    """A pod with a claim from a template."""
    made = pod(name)
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return made


class _Calls:
    """Calls of kube-scheduler."""

    def __init__(self, cluster: Cluster, http: AsyncClient) -> None:
        self._cluster = cluster
        self._http = http

    async def filter(self, name: str) -> Travel:
        """Ask which nodes will do for a pod; all of them do."""
        asked = await self._cluster.api.get(PODS, ObjectKey("ns", name))
        asked = asked | {"metadata": asked["metadata"] | {"labels": {"call": str(next(_numbers))}}}
        travel, answer = await self._post("filter", asking(asked, *_NODES))
        assert answer["NodeNames"] == _NODES
        return travel

    async def bind(self, name: str) -> Travel:
        """Bind a pod to the first node, which has devices enough."""
        travel, answer = await self._post("bind", binding(name, _NODES[0]))
        assert answer == {}
        assert await self._cluster.node_of(name) == _NODES[0]
        return travel

    async def _post(self, verb: str, arguments: Object) -> tuple[Travel, Any]:
        body = orjson.dumps(arguments)
        with traced() as travel:
            answer = await self._http.post(f"/{verb}", content=body)
        return travel, answer.json()
