"""The pods of the cluster, followed by a watch: where they are, and how long they have waited."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import PODS
from tests.kit.controlplane.client import Client, key_of
from tests.kit.objects.manifests import is_bound


@dataclass(slots=True)
class Pods:
    """The pods of one namespace.

    Attributes:
        waiting: since when, by the event loop's clock.
        places: nodes of pods that have one.
        waits: seconds, of each pod that has got a node.
        ended: pods that had a node and are gone.
    """

    client: Client
    namespace: str
    waiting: dict[ObjectKey, float] = field(default_factory=dict, init=False)
    places: dict[ObjectKey, str] = field(default_factory=dict, init=False)
    waits: list[float] = field(default_factory=list, init=False)
    ended: int = field(default=0, init=False)

    async def follow(self) -> None:
        """Keep up with the cluster, until cancelled."""
        while True:
            try:
                listing = await self.client.list(PODS, self.namespace)
                self._replace(listing.items)
                async for event in self.client.watch(PODS, ObjectKey(self.namespace, ""), since=listing.revision):
                    match event.type:
                        case "ADDED" | "MODIFIED":
                            self._see(event.object)
                        case "DELETED":
                            self._forget(key_of(event.object))
            except (ApiError, OutcomeUnknownError, OSError):
                continue

    def on(self, node: str) -> list[ObjectKey]:
        """The pods of a node."""
        return [key for key, place in self.places.items() if place == node]

    def _replace(self, pods: Sequence[RawObject]) -> None:
        there = {key_of(each) for each in pods}
        for gone in (self.waiting.keys() | self.places.keys()) - there:
            self._forget(gone)
        for each in pods:
            self._see(each)

    def _see(self, pod: RawObject) -> None:
        key, now = key_of(pod), asyncio.get_running_loop().time()
        if not is_bound(pod):
            self.waiting.setdefault(key, now)
        elif key not in self.places:
            self.places[key] = pod["spec"]["nodeName"]
            self.waits.append(now - self.waiting.pop(key, now))

    def _forget(self, key: ObjectKey) -> None:
        self.waiting.pop(key, None)
        self.ended += self.places.pop(key, None) is not None
