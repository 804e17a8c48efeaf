"""Plays what makes, runs and ends pods: their owners, and the kubelets of their nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from extender.faces.demo.scheduler import NAME, Follower
from extender.kube.api import Api, ApiError, Event, EventType, ObjectKey, RawObject, key_of
from extender.kube.resources import PODS

SECONDS: Final = "demo.example.com/seconds"
"""The annotation that says how long a pod runs, in seconds of the demo."""

_START_SECONDS: Final = 1.0
_SEEN_SECONDS: Final = 4.0
"""How long a finished pod can be looked at before its owner deletes it."""

_EVICTED: Final = "DisruptionTarget"


def pod_of(key: ObjectKey, template: str, seconds: float, **more: Any) -> RawObject:  # noqa: ANN401 - fields of its spec
    """A pod with a claim from a template.

    Args:
        key: of the pod.
        template: name of the ResourceClaimTemplate.
        seconds: how long it runs.
        more: further fields of its spec; ``annotations`` go to the metadata.
    """
    annotations = {SECONDS: str(seconds), **more.pop("annotations", {})}
    container = {"name": "main", "image": "registry.example.com/job", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**key._asdict(), "annotations": annotations},
        "spec": {
            "schedulerName": NAME,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
            **more,
        },
    }


@dataclass(slots=True)
class Workloads(Follower):
    """Starts and ends pods that have a node, and makes evicted ones again, as a Job does.

    Attributes:
        pause: waits for some seconds of the demo.
        tell: hears what becomes of a pod.
        pods: all of them, as they are now.
    """

    api: Api
    tasks: asyncio.TaskGroup
    pause: Callable[[float], Awaitable[None]]
    tell: Callable[[ObjectKey, str], None]
    pods: dict[ObjectKey, RawObject] = field(default_factory=dict)
    _wanted: dict[ObjectKey, RawObject] = field(default_factory=dict)
    """What was submitted and has not ended, as it was submitted."""
    _started: set[str] = field(default_factory=set)

    async def submit(self, pod: RawObject) -> None:
        """Create a pod, and create it again whenever it is evicted."""
        self._wanted[key_of(pod)] = pod
        await self.api.create(PODS, pod)

    async def withdraw(self, key: ObjectKey) -> None:
        """Delete a pod before its end, as its owner does."""
        self._wanted.pop(key, None)
        with suppress(ApiError):  # it has ended meanwhile
            await self.api.delete(PODS, key)

    def apply(self, event: Event) -> None:
        """Take in an event."""
        if event.resource != PODS:
            return
        pod, uid = event.object, event.object["metadata"]["uid"]
        if event.type is EventType.DELETED:
            self.pods.pop(event.key, None)
            self._started.discard(uid)
            if again := self._wanted.get(event.key):
                self.tell(event.key, f"is evicted{_why(pod)}; its owner makes it again")
                self.tasks.create_task(self.submit(again))
            return
        self.pods[event.key] = pod
        if pod["spec"].get("nodeName") and uid not in self._started:
            self._started.add(uid)
            self.tasks.create_task(self._live(pod))

    async def _live(self, pod: RawObject) -> None:
        """The life of a pod on its node. It ends early if the pod is deleted."""
        key, uid = key_of(pod), pod["metadata"]["uid"]
        with suppress(ApiError):  # the pod is gone
            await self.pause(_START_SECONDS)
            await self._set_phase(key, uid, "Running")
            await self.pause(float(pod["metadata"]["annotations"][SECONDS]))
            await self._set_phase(key, uid, "Succeeded")
            self._wanted.pop(key, None)
            self.tell(key, "has ended; its devices are free")
            await self.pause(_SEEN_SECONDS)
            await self.api.delete(PODS, key, uid=uid)

    async def _set_phase(self, key: ObjectKey, uid: str, phase: str) -> None:
        await self.api.patch_status(PODS, key, {"metadata": {"uid": uid}, "status": {"phase": phase}})


def _why(pod: RawObject) -> str:
    """Why a pod was evicted, as its condition says."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((f" ({each['message']})" for each in conditions if each["type"] == _EVICTED), "")
