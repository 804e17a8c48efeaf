"""Pods that come, wait, get a node, live for a while and go, with claims of all kinds."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from extender.kube.api import ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, PODS, TEMPLATES
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.controllers import ENTRY
from tests.kit.controlplane.scenario import by_name, by_template
from tests.kit.objects.manifests import claim, claim_spec, is_bound, pod, request, requests, template

TEMPLATE_COUNTS: Final[Mapping[str, int]] = {"one": 1, "two": 2}
"""Devices of a claim from each template."""

SHARED: Final = 20
"""Claims that stay, and have any number of users at a time."""


@dataclass(slots=True)
class Population:
    """The pods of one namespace.

    Attributes:
        most: that live at a time.
        licensed: device classes of negotiated claims: each pod has a claim of one of them as well.
        waiting: since when, by the event loop's clock; by name.
        living: those that have a node, oldest first.
        bound: how many have ever got one.
        longest_wait: seconds, of those that have got a node.
    """

    client: Client
    namespace: str
    random: Random
    most: int
    licensed: Sequence[str] = ()
    waiting: dict[str, float] = field(default_factory=dict, init=False)
    living: list[str] = field(default_factory=list, init=False)
    bound: int = field(default=0, init=False)
    longest_wait: float = field(default=0.0, init=False)
    _noticed: asyncio.Condition = field(default_factory=asyncio.Condition, init=False)

    async def settle(self) -> None:
        """Make what pods refer to."""
        for name, count in TEMPLATE_COUNTS.items():
            await self.client.create(TEMPLATES, template(self.namespace, name, claim_spec(count)))
        for name in self.licensed:
            await self.client.create(TEMPLATES, template(self.namespace, name, requests(request(ENTRY, name))))
        for number in range(SHARED):
            await self.client.create(CLAIMS, claim(self.namespace, f"shared-{number}"))

    async def add(self, name: str) -> None:
        """One more pod."""
        self.waiting[name] = asyncio.get_running_loop().time()
        claims = [self._claim()]
        if self.licensed:
            claims.append({"name": ENTRY, "resourceClaimTemplateName": self.random.choice(self.licensed)})
        await self.client.create(PODS, pod(self.namespace, name, claims=claims))

    async def until(self, holds: "Callable[[Population], bool]") -> None:
        """Wait until something holds of it; asked again whenever pods have got a node."""
        async with self._noticed:
            await self._noticed.wait_for(lambda: holds(self))

    async def clear(self) -> None:
        """Delete all pods, and with them what they hold."""
        for each in (await self.client.list(PODS, self.namespace)).items:
            await self.client.delete(PODS, key_of(each))

    async def follow(self) -> None:
        """Notice who has got a node, until cancelled; for each that there is too many, another goes."""
        while True:
            listing = await self.client.list(PODS, self.namespace)
            await self._notice(listing.items)
            try:
                async for event in self.client.watch(PODS, ObjectKey(self.namespace, ""), since=listing.revision):
                    if event.type == "MODIFIED":
                        await self._notice([event.object])
            except OutcomeUnknownError:
                continue

    async def _notice(self, pods: Sequence[RawObject]) -> None:
        now = asyncio.get_running_loop().time()
        for name in (key_of(each).name for each in pods if is_bound(each)):
            since = self.waiting.pop(name, None)
            if since is not None:
                self.living.append(name)
                self.bound += 1
                self.longest_wait = max(self.longest_wait, now - since)
        while len(self.living) > self.most:
            gone = self.living.pop(self.random.randrange(len(self.living)))
            await self.client.delete(PODS, ObjectKey(self.namespace, gone))
        async with self._noticed:
            self._noticed.notify_all()

    def _claim(self) -> RawObject:
        if self.random.random() < 0.25:
            return by_name(f"shared-{self.random.randrange(SHARED)}")
        return by_template(self.random.choice([*TEMPLATE_COUNTS]))
