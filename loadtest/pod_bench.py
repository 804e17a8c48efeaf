"""What a pod costs the service in processor time: from the pod's creation to its bind, with all events of the watches.

``python -m loadtest.pod_bench``: the service as ``dra-extender serve`` starts it, over an API server in another
process, with HTTPS; 500 nodes of 8 devices, none in use. Each pod has one claim with CEL from a template. The bench
does what the rest of a cluster does: a client creates the pods, kube-controller-manager makes claims and writes their
names into the pods' statuses, kube-scheduler calls filter, prioritize and, while it goes on with the next pod, bind.

Rounds of pods follow each other. "Computed" is processor time of all threads of the service for a pod. A loop of fixed
work is timed beside each round, so that figures of a busy machine can be compared.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
import uvloop

from loadtest.stage import Connection, Stage, asked_names, request, stage, verb
from tests.kit.certificates import Authority, trusting
from tests.kit.measure import machine
from tests.kit.objects.parts import api_object
from tests.kit.objects.worlds import NAMESPACE, RawObject, Wish, pending_claim, waiting_pod

_TEMPLATE: Final = "one-device"
_AHEAD: Final = 50
"""Pods that exist, with their claims, before the scheduler comes to them."""

_LOOPS: Final = 200_000
_RESOURCES: Final = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_MANAGED: Final = [
    {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {f"f:{field}": {".": {}, **{f"f:part-{part}": {} for part in range(20)}}},
    }
    for manager, field in (("kubectl", "spec"), ("kube-controller-manager", "status"))
]
"""Managed fields, which an API server adds to each object."""


class Lines:
    """As many connections to a port as are used at the same time."""

    def __init__(self, port: int, authority: Authority | None = None) -> None:
        self._port = port
        self._tls = trusting(authority) if authority else None
        self._idle: list[Connection] = []

    async def send(self, sent: bytes) -> Any:  # noqa: ANN401  # JSON
        """A request's answer."""
        async with self._one() as connection:
            return orjson.loads(await connection.send(sent))

    @asynccontextmanager
    async def _one(self) -> AsyncIterator[Connection]:
        connection = self._idle.pop() if self._idle else await Connection.to(self._port, self._tls)
        yield connection
        self._idle.append(connection)


class Cluster:
    """All of a cluster but the service.

    Attributes:
        refused: binds that found no free device any more; their pods are scheduled again at once.
    """

    def __init__(self, on: Stage, api: Lines) -> None:
        self._names = on.names
        self._api = api
        self._service = Lines(on.service.port)
        self._chance = random.Random(1)
        self.refused = 0

    async def run(self, names: Sequence[str]) -> None:
        """Create pods, and schedule one after the other."""
        room = asyncio.Semaphore(_AHEAD)
        ready: asyncio.Queue[RawObject | None] = asyncio.Queue()
        left = len(names)

        async def bind(pod: RawObject, node: str) -> None:
            nonlocal left
            answer = await self._bind(pod["metadata"], node)
            if answer:
                self.refused += 1
                ready.put_nowait(pod)
                return
            left -= 1
            room.release()
            if not left:
                ready.put_nowait(None)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._make(names, ready, room))
            while (pod := await ready.get()) is not None:
                tasks.create_task(bind(pod, await self._node_for(pod)))

    async def _make(
        self, names: Sequence[str], ready: asyncio.Queue[RawObject | None], room: asyncio.Semaphore
    ) -> None:
        for name in names:
            await room.acquire()
            ready.put_nowait(await self._made(name))

    async def _made(self, name: str) -> RawObject:
        """A pod with its claim, as kube-scheduler has it then."""
        pod = waiting_pod(name)
        pod["metadata"] = {"name": name, "namespace": NAMESPACE, "managedFields": _MANAGED}
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": _TEMPLATE}]
        pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        made = await self._api.send(request("POST", _PODS, pod))
        claim = await self._api.send(request("POST", f"{_RESOURCES}/resourceclaims", _claim_of(made["metadata"])))
        named = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]}}
        found: RawObject = await self._api.send(request("PATCH", f"{_PODS}/{name}/status", named))
        del found["metadata"]["managedFields"]  # kube-scheduler does not keep them
        return found

    async def _node_for(self, pod: RawObject) -> str:
        asked = {"Pod": pod, "Nodes": None, "NodeNames": asked_names(self._names, self._chance.shuffle)}
        found = await self._service.send(verb("filter", asked))
        if not found.get("NodeNames"):
            raise RuntimeError(f"filter: {str(found)[:200]}")
        asked = {"Pod": pod, "Nodes": None, "NodeNames": found["NodeNames"]}
        scores = await self._service.send(verb("prioritize", asked))
        most = max(each["Score"] for each in scores)
        return str(self._chance.choice([each["Host"] for each in scores if each["Score"] == most]))

    async def _bind(self, pod: RawObject, node: str) -> RawObject:
        asked = {"PodName": pod["name"], "PodNamespace": NAMESPACE, "PodUID": pod["uid"], "Node": node}
        answer: RawObject = await self._service.send(verb("bind", asked))
        return answer


def _claim_of(pod: RawObject) -> RawObject:
    """The claim that kube-controller-manager makes from the template of a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    metadata = {
        "name": f"{pod['name']}-gpu-x2b7q",
        "namespace": NAMESPACE,
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        "managedFields": _MANAGED,
    }
    return pending_claim(Wish()) | {"metadata": metadata}


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took.

    Attributes:
        computed: milliseconds that the service computed for a pod.
        loop: milliseconds of a fixed loop.
        rate: pods a second.
        refused: binds that were tried again.
    """

    computed: float
    loop: float
    rate: float
    refused: int

    def __str__(self) -> str:
        figures = f"{self.computed:.2f} ms a pod; loop {self.loop:.2f} ms; {self.rate:.0f} pods/s"
        return f"{figures}; {self.refused} binds again"


def _loop_ms() -> float:
    """Processor time of fixed work in this process."""
    started = time.process_time()
    for _ in range(_LOOPS):
        pass
    return 1e3 * (time.process_time() - started)


async def measured(nodes: int, pods: int, rounds: int) -> list[Round]:
    """The rounds, after one that does not count."""
    authority, found = Authority(), list[Round]()
    spec = {"spec": {"spec": pending_claim(Wish())["spec"]}}
    template = api_object("ResourceClaimTemplate", _TEMPLATE, namespace=NAMESPACE, **spec)
    async with stage(nodes, 0, {"templates": [template]}, in_use=0.0, authority=authority) as on:
        cluster = Cluster(on, Lines(on.api.port, authority))
        print(f"service: process {on.service.pid}", flush=True)
        for number in range(rounds + 1):
            loop, refused, computed, began = _loop_ms(), cluster.refused, on.service.computed(), time.perf_counter()
            await cluster.run([f"pod-{number}-{each}" for each in range(pods)])
            passed, computed = time.perf_counter() - began, on.service.computed() - computed
            refused = cluster.refused - refused
            found.append(Round(1e3 * computed / pods, (loop + _loop_ms()) / 2, pods / passed, refused))
            print(found[-1], flush=True)
    return found[1:]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=200, help="in a round")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    before = machine()
    rounds = uvloop.run(measured(asked.nodes, asked.pods, asked.rounds))
    computed, loop = (statistics.median(getattr(each, name) for each in rounds) for name in ("computed", "loop"))
    ratio = statistics.median(each.computed / each.loop for each in rounds)
    print(f"median: {computed:.2f} ms a pod; loop {loop:.2f} ms; ratio {ratio:.3f}")
    print(f"before: {before}; after: {machine()}")


if __name__ == "__main__":
    main()
