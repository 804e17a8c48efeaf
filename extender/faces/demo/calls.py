"""The calls of a scheduler to the service, over HTTP, as kube-scheduler makes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from extender.kube.api import ObjectKey, RawObject, key_of


class CallError(Exception):
    """The service does not do what it was asked; its own text says why."""


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer of filter: the nodes that suit, and the reasons of the others, by node."""

    passed: Sequence[str]
    reasons: Mapping[str, str] = field(default_factory=dict)


class Calls:
    """The verbs of a kube-scheduler extender, and the explanation that people read.

    All methods raise httpx.TransportError if nobody answers.

    Args:
        http: a client whose base URL is the service's.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def filter(self, pod: RawObject, nodes: Sequence[str]) -> Judged:
        """Which nodes suit a pod. Raises CallError."""
        reply = await self._post("filter", {"Pod": pod, "NodeNames": nodes})
        failed = {**(reply["FailedAndUnresolvableNodes"] or {}), **(reply["FailedNodes"] or {})}
        return Judged(reply["NodeNames"] or (), failed)

    async def best(self, pod: RawObject, nodes: Sequence[str]) -> str:
        """The node with the highest score; of equals, the first. Raises CallError."""
        scores = await self._post("prioritize", {"Pod": pod, "NodeNames": nodes})
        return str(max(scores, key=lambda each: each["Score"])["Host"])

    async def bind(self, pod: RawObject, node: str) -> None:
        """Allocate the pod's devices on a node, and bind it. Raises CallError."""
        metadata = pod["metadata"]
        names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        await self._post("bind", {**names, "Node": node})

    async def headline(self, pod: RawObject) -> str:
        """The reason why a pod waits, in one line; empty if it need not wait any more, or is gone. Raises CallError."""
        key: ObjectKey = key_of(pod)
        reply = await self._http.get(f"explain/{key.namespace}/{key.name}", headers={"accept": "application/json"})
        return (reply.json().get("headline") or "") if reply.is_success else ""

    async def _post(self, verb: str, body: object) -> Any:  # noqa: ANN401 - JSON of any verb
        reply = (await self._http.post(verb, json=body)).json()
        if isinstance(reply, dict) and (problem := reply.get("Error")):
            raise CallError(str(problem))
        return reply
