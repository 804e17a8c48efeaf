"""A cluster in this process: an API server in memory, its controllers, and the state that follows it."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

import structlog

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.resource_classes import ResourceClass
from extender.cluster.snapshot import Unreadable
from extender.config.settings import Settings
from extender.kube.api import ApiError, Event, EventType, ObjectKey
from extender.kube.resources import CLAIMS, CLASSES, PODS, QUOTAS, RESOURCES, Resource
from extender.lab.api import MemoryApi
from extender.lab.claim_controller import Backlog, ClaimController
from extender.lab.manifests import LOADED
from extender.lab.manifests import ManifestObject as Manifest
from extender.plugins.resource_classes.keeper import keep_device_classes

_NAMESPACE = uuid.UUID("5f3b9f0e-5a43-4c0f-9f53-0d3c6c0f7d11")

logger = structlog.get_logger()


class EmbeddedCluster:
    """A cluster from manifests; equal manifests give equal names and uids. ``state`` follows ``api`` at each write."""

    def __init__(
        self,
        manifests: Iterable[Manifest],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        counts_cpu: bool = False,
        cpu_of_all_pods: bool = False,
        counts_resources: bool = False,
        has_group_claims: bool = False,
    ) -> None:
        """Load the manifests; what is counted is as for `ClusterState`. Raises ApiError: an object is there twice."""
        self._given: set[str] = set()
        """The uids that objects had when they were loaded."""
        new = (str(uuid.uuid5(_NAMESPACE, str(number))) for number in count())
        self.api = MemoryApi(now=now, new_uid=lambda: next(uid for uid in new if uid not in self._given))
        self.state = ClusterState(
            counts_cpu=counts_cpu,
            cpu_of_all_pods=cpu_of_all_pods,
            counts_resources=counts_resources,
            has_group_claims=has_group_claims,
        )
        self._controller = ClaimController(self.api, has_group_claims)
        self._backlog = Backlog()
        self._now = now
        self._kept: tuple[object, object] | None = None
        """ResourceClasses and device classes when the device classes were last kept."""
        self.load(manifests)
        self.api.follow(self.state)
        self.api.follow(self._backlog)

    @classmethod
    def by_settings(cls, settings: Settings, manifests: Iterable[Manifest] = ()) -> "EmbeddedCluster":
        """A cluster that counts what the settings say. Raises ApiError: an object is there twice."""
        return cls(
            manifests,
            counts_cpu=settings.scheduling.counts_cpu,
            cpu_of_all_pods=settings.scheduling.cpu_of_all_pods,
            counts_resources=settings.features.node_resources,
            has_group_claims=settings.features.group_claims,
        )

    def load(self, manifests: Iterable[Manifest]) -> None:
        """Add objects as they are. Raises ApiError: an object is there twice."""
        objects = tuple(manifests)
        self._given.update(each.uid for each in objects)
        for each in objects:
            self.api.load(LOADED[each.kind], each.data, each.value)

    def refuse(self, problems: Mapping[tuple[str, ObjectKey], object]) -> None:
        """Remember why there are no objects of some kinds and keys: pods that need them are told."""
        for (kind, key), problem in problems.items():
            resource = LOADED[kind]
            if kind in RESOURCES and not self.api.has(resource, key):
                absent = {"metadata": {"namespace": key.namespace, "name": key.name}}
                self.state.apply(Event(EventType.ADDED, resource, absent, Unreadable(str(problem), is_refused=True)))

    def has(self, manifest: Manifest) -> bool:
        """Whether there is an object of this kind, namespace and name."""
        return self.api.has(LOADED[manifest.kind], ObjectKey(manifest.namespace, manifest.name))

    async def charged(self) -> tuple[Mapping[str, Any], ...]:
        """All objects that quota concerns: the quotas, and the objects that count in them."""
        listings = [await self.api.list(resource) for resource in (QUOTAS, CLASSES, PODS, CLAIMS)]
        return tuple(each for listing in listings for each in listing.items)

    async def remove(self, resource: Resource, key: ObjectKey) -> None:
        """Delete an object, and let the controllers follow. Raises ApiError: there is no such object."""
        await self.api.delete(resource, key)
        await self.settle()

    async def settle(self) -> None:
        """Run the controllers until they have nothing left to do."""
        await self._keep_device_classes()
        while self._backlog.waiting.is_set():
            try:
                await self._controller.work_off(self._backlog)
            except ApiError as error:
                # After a conflict the backlog has the object again. Any other refusal would only be repeated. A refusal
                # by quota concerns users, who see an Event on the pod.
                if not error.is_over_quota:
                    logger.warning("controller", error=str(error))

    async def _keep_device_classes(self) -> None:
        found = self.state.snapshot
        if found.objects(ResourceClass) and self._kept != (found.objects(ResourceClass), found.classes):
            await keep_device_classes(self.api, self._now)
            found = self.state.snapshot
            self._kept = found.objects(ResourceClass), found.classes

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the controllers after each change while the context is open."""
        await self.settle()
        task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow(self) -> None:
        while True:
            await self._backlog.waiting.wait()
            await self.settle()
