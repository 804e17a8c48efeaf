"""The extender's verbs, called as kube-scheduler calls them, one by one and when a test wants it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from extender.cluster.objects.pods import parse_pod
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.waiting import wait_for_answer

_COUNTED: Final = {
    "nodes": NODES,
    "slices": SLICES,
    "deviceClasses": CLASSES,
    "claims": CLAIMS,
    "podsWithDevices": PODS,
}
"""By the name of their number in what the extender says of itself."""


@dataclass(frozen=True, slots=True)
class Verbs:
    """A connection to one extender."""

    http: httpx.AsyncClient

    async def filter(self, pod: RawObject, *nodes: str) -> RawObject:
        """The reply as it is."""
        reply: RawObject = await self._post("filter", {"Pod": pod, "NodeNames": list(nodes)})
        return reply

    async def prioritize(self, pod: RawObject, *nodes: str) -> dict[str, int]:
        """The score of each node."""
        reply = await self._post("prioritize", {"Pod": pod, "NodeNames": list(nodes)})
        return {each["Host"]: each["Score"] for each in reply}

    async def bind(self, pod: RawObject, node: str) -> str:
        """The error; empty if the pod is bound."""
        key = key_of(pod)
        uid = pod["metadata"]["uid"]
        reply = await self._post(
            "bind", {"PodName": key.name, "PodNamespace": key.namespace, "PodUID": uid, "Node": node}
        )
        return str(reply.get("Error", ""))

    async def explained(self, key: ObjectKey, *, about: str) -> str:
        """The explanation of a pod, once it has a text."""

        async def ask() -> str:
            return (await self.http.get(f"/explain/{key}")).raise_for_status().text

        what = f"an explanation with {about!r}"
        return await wait_for_answer(ask, lambda text: about in text, what, within=WAIT_SECONDS)

    async def answered(self, verb: str) -> int:
        """How many calls of a verb it has answered."""
        text = (await self.http.get("/metrics")).raise_for_status().text
        counts = re.findall(rf'_duration_seconds_count{{[^}}]*verb="{verb}"}} ([0-9.]+)', text)
        return sum(int(float(count)) for count in counts)

    async def wait_answered(self, verb: str, count: int) -> None:
        """Wait until it has answered this number of calls."""
        await wait_for_answer(
            lambda: self.answered(verb), lambda found: found >= count, f"{count} calls of {verb}", within=WAIT_SECONDS
        )

    async def wait_in_step(self, client: Client) -> None:
        """Wait until it knows just the objects that there are."""
        await wait_for_answer(
            lambda: self._lag(client), lambda lag: not lag, "the extender knows what there is", within=WAIT_SECONDS
        )

    async def _lag(self, client: Client) -> dict[str, str]:
        """What it does not know yet: whoever has seen the newest object and has as many knows all, and no others."""
        found = (await self.http.get("/")).raise_for_status().json()
        lag = {}
        for counted, resource in _COUNTED.items():
            there = (await client.list(resource)).items
            if resource is PODS:
                there = tuple(pod for pod in there if parse_pod(pod).needs_devices)
            newest = max((int(obj["metadata"]["resourceVersion"]) for obj in there), default=0)
            known, seen = found["cluster"][counted], found["seen"][resource.plural]
            if known != len(there) or seen < newest:
                lag[counted] = f"{known} of {len(there)}, seen {seen} of {newest}"
        return lag

    async def _post(self, verb: str, body: RawObject) -> Any:
        return (await self.http.post(f"/{verb}", json=body)).raise_for_status().json()


@asynccontextmanager
async def connect_verbs(url: str) -> AsyncIterator[Verbs]:
    """Verbs of the extender at ``url``, in the running event loop."""
    async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS, trust_env=False) as http:
        yield Verbs(http)
