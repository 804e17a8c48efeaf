"""Keeps a device class for each ResourceClass, says in its status what became of it, and tells of those refused."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import structlog

from allocator import InvalidObjectError
from allocator.model.json import MATCH_ATTRIBUTE, MEMBERS
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.resource_classes import ResourceClass, parse_resource_class
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.lease import SharedLease
from extender.framework.handle import Handle
from extender.framework.problem import Look, Problem
from extender.framework.task import UNTIL_NEWS, BackgroundTask
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, RawObject, WriteRefusedError, timestamp
from extender.kube.resources import CLASSES, RESOURCE_CLASSES
from extender.plugins.resource_classes.device_class import ClassJudgement, judge

logger = structlog.get_logger()

_LONGEST_MESSAGE: Final = 4096
"""Characters of the message of a condition; the definition allows more."""


async def keep_device_classes(api: Api, now: Callable[[], datetime]) -> bool:
    """Create and change device classes, and write the statuses that are not right.

    A class that is not accepted keeps the device class that it had. The API server deletes the device class of a
    ResourceClass that is deleted: it is its owner.

    Returns:
        Whether all is done; otherwise the log says what is left.

    Raises:
        ApiError, OutcomeUnknownError: the objects could not be listed.
    """
    raw = {each["metadata"]["name"]: each for each in (await api.list(RESOURCE_CLASSES)).items}
    existing = {each["metadata"]["name"]: each for each in (await api.list(CLASSES)).items}
    is_done = True
    for judgement in judge(_readable(raw), list(existing.values()), api.api_version(CLASSES)):
        name = judgement.resource_class.name
        try:
            refusal = await _written(api, judgement.device_class, existing.get(name))
            status = _status(judgement, refusal, raw[name].get("status") or {}, now())
            if {field: value for field, value in status.items() if value is not None} != raw[name].get("status"):
                await api.patch_status(RESOURCE_CLASSES, ObjectKey("", name), {"status": status})
        except (ApiError, OutcomeUnknownError) as error:
            logger.warning("resource class not kept", resource_class=name, error=str(error))
            is_done = False
    return is_done


def _readable(raw: Mapping[str, RawObject]) -> list[ResourceClass]:
    found = []
    for each in raw.values():
        try:
            found.append(parse_resource_class(each))
        except InvalidObjectError as error:
            logger.warning("resource class not read", error=str(error))
    return found


async def _written(api: Api, wanted: RawObject | None, present: RawObject | None) -> str:
    """Write the device class if it is not as wanted. Returns why the API server has not taken it; empty if it has."""
    if wanted is None:
        return ""
    found = present
    try:
        if present is None:
            found = await api.create(CLASSES, wanted)
        elif (changed := _changed(present, wanted)) is not None:
            found = await api.update(CLASSES, changed)
    except ApiError as error:
        if error.reason != "Invalid":
            raise
        return error.message
    is_whole = found is not None and "extendedResourceName" in found["spec"]
    return "" if is_whole else "it drops spec.extendedResourceName, as without the feature gate DRAExtendedResource"


def _changed(present: RawObject, wanted: RawObject) -> RawObject | None:
    """A device class as it is wanted, with the annotations of others; None if it is so already."""
    annotations = present["metadata"].get("annotations") or {}
    others = {name: value for name, value in annotations.items() if name not in (MEMBERS, MATCH_ATTRIBUTE)}
    own = {**others, **wanted["metadata"].get("annotations", {})}
    if (present["spec"], annotations) == (wanted["spec"], own):
        return None
    return {**present, "metadata": {**present["metadata"], "annotations": own}, "spec": wanted["spec"]}


def _status(judgement: ClassJudgement, refusal: str, old: Mapping[str, Any], at: datetime) -> RawObject:
    """The status of a ResourceClass; None removes a field.

    Args:
        judgement: of the class.
        refusal: why the API server refuses its device class.
        old: the status so far.
        at: the time.
    """
    reason, message = judgement.reason, judgement.message
    if refusal:
        reason, message = "Refused", f"the API server does not take the device class: {refusal}"
    is_accepted = judgement.device_class is not None and not refusal
    condition = {
        "type": "Accepted",
        "status": "True" if is_accepted else "False",
        "observedGeneration": judgement.resource_class.generation,
        "reason": reason,
        "message": message[:_LONGEST_MESSAGE],
    }
    kept = ("type", "status")
    same = (each for each in old.get("conditions") or () if all(each.get(field) == condition[field] for field in kept))
    since = next((each.get("lastTransitionTime") for each in same), None)
    return {
        "deviceClassName": judgement.resource_class.name if is_accepted else None,
        "extendedResourceName": judgement.resource_class.asked_as if is_accepted else None,
        "conditions": [{**condition, "lastTransitionTime": since or timestamp(at)}],
    }


LEASE: Final = ObjectKey("kube-system", "dra-extender-resource-classes")
"""The lease of the replica that keeps the device classes of ResourceClasses."""


PAUSE_SECONDS: Final = 1.0
"""The pause between two looks at the classes; by then the watch shows what was written."""

RETRY_SECONDS: Final = 15.0
"""The pause after something could not be written."""


class ResourceClasses(BackgroundTask):
    """Makes a device class of each ResourceClass, in the replica that holds the lease.

    Args:
        state: the cluster.
        api: the API server that the device classes are written to.
        lease: this replica holds it while it writes.
        clock: measures durations, in seconds.
        now: the time, for statuses.
    """

    def __init__(
        self,
        state: ClusterState,
        api: Api,
        lease: SharedLease,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._api = api
        self._lease = lease
        self._clock = clock
        self._now = now
        self._again = 0.0
        self._done: Snapshot | None = None
        """The snapshot after which nothing was left to write."""

    @property
    def idle_seconds(self) -> float:
        """Until the next look, if there are such classes."""
        is_idle = not (self._state.snapshot.objects(ResourceClass) or self._lease.is_held)
        return UNTIL_NEWS if is_idle else self._again - self._clock()

    async def tick(self) -> None:
        """Write what has to be written, if classes have changed."""
        now, snapshot = self._clock(), self._state.snapshot
        if now < self._again or self._state.not_ready:
            return
        self._again = now + PAUSE_SECONDS
        try:
            if not snapshot.objects(ResourceClass) or self._is_done(snapshot):
                await self._lease.give_back()
            elif await self._lease.take():
                if await keep_device_classes(self._api, self._now):
                    self._done = snapshot
                else:
                    self._again = now + RETRY_SECONDS
        except (ApiError, OutcomeUnknownError, WriteRefusedError) as error:
            self._again = now + RETRY_SECONDS
            logger.warning("resource classes not kept", classes=len(snapshot.objects(ResourceClass)), error=str(error))

    def _is_done(self, snapshot: Snapshot) -> bool:
        done = self._done
        return (
            done is not None
            and done.objects(ResourceClass) is snapshot.objects(ResourceClass)
            and done.classes is snapshot.classes
        )


def tasks(handle: Handle) -> Sequence[BackgroundTask]:
    """The background task of ResourceClasses."""
    lease = handle.lease(LEASE)
    return [ResourceClasses(handle.state, handle.api, lease, handle.clock, handle.now)]


def problems(look: Look) -> Iterator[Problem]:
    """One for each class that was refused."""
    for each in look.snapshot.objects(ResourceClass).values():
        if each.refusal:
            key, cost = ObjectKey("", each.name), "pods that ask for the class wait"
            advice = "correct the class"
            yield Problem("resource-class", RESOURCE_CLASSES.kind, key, f"not accepted: {each.refusal}", cost, advice)
