"""Pods that come and go: a whole cluster in memory, the application over it, and its verbs called as a scheduler does.

Pods get claims from templates, are filtered, scored and bound, live for a while, and are deleted; controllers make and
release their claims. Names are never used twice. A quarter of the pods fits nowhere, waits, and is deleted as well.
"""

import asyncio
import random
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

import orjson
from fastapi import FastAPI

from extender.autoscaler.autoscaler import make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.cluster.cluster_state import ClusterState
from extender.config.settings import Settings
from extender.faces.assembly import make_extender, make_solver
from extender.faces.http.app import create_app
from extender.kube.api import ObjectKey, key_of
from extender.kube.resources import CLASSES, EVENTS, NODES, PODS, SLICES, TEMPLATES
from extender.lab.api import MemoryApi
from extender.lab.cluster import ClaimController
from extender.planning.templates import read_catalog
from tests.kit.objects.parts import api_object
from tests.kit.objects.worlds import ROOT, SLICES_OF_GPUS, Machine, RawObject, Wish, pending_claim, world

WHOLE: Final = 'device.attributes["gpu.example.com"].profile == "whole"'
WISHES: Final = {
    "whole": Wish(selector=WHOLE),
    "pair": Wish((2,), selector=WHOLE, match=ROOT),
    "part": Wish(selector=SLICES_OF_GPUS),
    "too-many": Wish((9,), selector=WHOLE),
}
_KINDS: Final = ("whole", "pair", "part", "too-many")
_BATCH: Final = 50
_LIVING_PER_NODE: Final = 5
_WAITING: Final = 100


class Churn:
    """A cluster of some nodes with 8 GPUs each, whole or in parts.

    Attributes:
        bound, rejected: pods so far.
    """

    def __init__(self, nodes: int) -> None:
        ids = count()
        self.bound = self.rejected = 0
        self._api = MemoryApi(now=lambda: datetime.now(UTC), new_uid=lambda: f"{next(ids):08}-uid")
        state, settings, solver = ClusterState(), Settings(), make_solver(Settings())
        objects = world(nodes, Machine(partitioned=True), Wish(), in_use=0)
        for resource, listed in ((NODES, "nodes"), (SLICES, "slices"), (CLASSES, "classes")):
            for each in objects[listed]:
                self._api.load(resource, each)
        for name, wish in WISHES.items():
            self._api.load(TEMPLATES, _template(name, wish))
        self._api.follow(state)
        extender = make_extender(self._api, state, solver, settings)
        self._service = extender.service
        negotiating = Negotiating(extender.negotiation.controllers, extender.overview.api)
        autoscaler = make_autoscaler(extender.service, negotiating, solver, settings, read_catalog(settings))
        self._app = create_app(extender, autoscaler, settings)
        self._controller = ClaimController(self._api)
        self._names = [each["metadata"]["name"] for each in objects["nodes"]]
        self._numbers = count()
        self._chance = random.Random(1)
        self._living: list[ObjectKey] = []
        self._waiting: list[ObjectKey] = []

    async def pods(self, number: int) -> None:
        """So many pods come, one after the other, and as many go."""
        for _ in range(0, number, _BATCH):
            await self._turn()

    async def _turn(self) -> None:
        keys = [await self._come() for _ in range(_BATCH)]
        await self._controller.reconcile()
        for key in keys:
            if await self._scheduled(key):
                self.bound += 1
                self._living.append(key)
            else:
                self.rejected += 1
                self._waiting.append(key)
        await self._service.background.tick()
        while len(self._living) > _LIVING_PER_NODE * len(self._names):
            await self._api.delete(PODS, self._living.pop(self._chance.randrange(len(self._living))))
        while len(self._waiting) > _WAITING:
            await self._api.delete(PODS, self._waiting.pop(0))
        await self._controller.reconcile()
        for event in (await self._api.list(EVENTS)).items:
            await self._api.delete(EVENTS, key_of(event))
        await asyncio.sleep(0)

    async def _come(self) -> ObjectKey:
        number = next(self._numbers)
        reference = {"name": "gpu", "resourceClaimTemplateName": _KINDS[number % len(_KINDS)]}
        container = {"name": "main", "image": "registry.example.com/image:1"}
        spec = {"schedulerName": "dra", "containers": [container], "resourceClaims": [reference]}
        pod = api_object("Pod", f"pod-{number:07}", namespace="default", spec=spec)
        return key_of(await self._api.create(PODS, pod))

    async def _scheduled(self, key: ObjectKey) -> bool:
        """Whether the pod could be bound."""
        pod = await self._api.get(PODS, key)
        passed = (await self._call("filter", {"Pod": pod, "NodeNames": self._names}))["NodeNames"]
        if not passed:
            return False
        scores = await self._call("prioritize", {"Pod": pod, "NodeNames": passed})
        node = max(scores, key=lambda each: each["Score"])["Host"]
        binding = {"PodName": key.name, "PodNamespace": key.namespace, "PodUID": pod["metadata"]["uid"], "Node": node}
        error = (await self._call("bind", binding)).get("Error")
        if error:
            raise RuntimeError(f"pod {key} is not bound to {node}: {error}")
        return True

    async def _call(self, verb: str, body: RawObject) -> Any:  # noqa: ANN401  # JSON
        return orjson.loads(await _answered(self._app, f"/{verb}", orjson.dumps(body)))


async def _answered(app: FastAPI, path: str, body: bytes) -> bytes:
    """The reply of an application, without a network."""
    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401  # ASGI's
        sent.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send)
    return b"".join(sent)


def _template(name: str, wish: Wish) -> RawObject:
    spec = {"spec": pending_claim(wish)["spec"]}
    return api_object("ResourceClaimTemplate", name, namespace="default", metadata={"uid": f"uid-{name}"}, spec=spec)
