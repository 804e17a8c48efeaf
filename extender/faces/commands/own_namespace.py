"""Answers about a pod or a claim for who has rights in its namespace alone: from the object and its Events.

dra-extender and kube-scheduler write there what they decide. Nothing is decided anew here: that needs the nodes,
devices and pods of others, or the service.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from extender.answers.explain.explainer import unknown_claim
from extender.answers.explain.explanation import Conclusion, unknown_pod
from extender.cluster.objects.pods import WAITS
from extender.cluster.writes.events import REPORTER
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.connection.connection import open_connection
from extender.kube.connection.credentials import Origin
from extender.kube.discovery import discover
from extender.kube.remote import RemoteApi
from extender.kube.resources import CLAIMS, PODS, Resource
from extender.tools.table import duration
from extender.tools.user_error import UserError

_EVENTS: Final = Resource("Event", "events", "", ("v1",), namespaced=True)
"""In the group where kubectl reads them: the role `view` has no others before Kubernetes 1.35."""

_MOST_TOLD: Final = 3
"""Events that are named, newest first."""

NOT_TOLD: Final = "not told"
"""The verdict about an object without a node or devices, of which neither it nor an Event says why."""


class NotReadError(UserError):
    """The object itself cannot be read; the text says why."""


async def told_in_namespace(origin: Origin, key: ObjectKey, *, is_claim: bool, unseen: Sequence[str]) -> RawObject:
    """What a pod or a claim of a live cluster and its Events say, as JSON.

    Args:
        origin: of the API server.
        key: of the object.
        is_claim: it is a claim.
        unseen: why there is no explanation.

    Raises:
        NotReadError: there is no such object, or this user may not read it.
        ConnectError: the API server cannot be used.
        OutcomeUnknownError: it does not answer.
    """
    resource = CLAIMS if is_claim else PODS
    async with open_connection(origin) as connection:
        try:
            api = RemoteApi(connection, await discover(connection), random=random.random)
            obj = await api.get(resource, key)
            involved = {"involvedObject.kind": resource.kind, "involvedObject.name": key.name}
            events, hidden = await _events(api, key.namespace, involved)
        except ApiError as error:
            missing = unknown_claim(key, ()) if is_claim else unknown_pod(key, ())
            why = missing if error.is_missing else str(error)
            raise NotReadError(why, *unseen) from error
    return told_by(obj, events, is_claim=is_claim, unseen=[*hidden, *unseen], now=datetime.now(UTC))


async def _events(
    api: RemoteApi, namespace: str, involved: Mapping[str, str]
) -> tuple[Sequence[RawObject], Sequence[str]]:
    """The Events on an object; and why they are not known, if so."""
    try:
        return await api.select(_EVENTS, namespace, involved), ()
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return (), (f"you may not: list events in namespace {namespace}",)


def told_by(
    obj: RawObject, events: Iterable[RawObject], *, is_claim: bool, unseen: Sequence[str], now: datetime
) -> RawObject:
    """Like `told_in_namespace`, for objects that were read.

    Args:
        obj: the pod or the claim.
        events: on it (``v1``).
        is_claim: it is a claim.
        unseen: why there is no explanation.
        now: the time.
    """
    metadata, own = obj["metadata"], {each["reason"]: each for each in sorted(_ours(events, obj), key=_datetime_of)}
    newest = sorted(own.values(), key=_datetime_of, reverse=True)[:_MOST_TOLD]
    place = _place_of_claim(obj) if is_claim else _place_of_pod(obj)
    said, asked = _condition_of_ours(obj), tuple(_answers_of_scheduler(obj))
    name = f"{'claim' if is_claim else 'pod'} {metadata['namespace']}/{metadata['name']}"
    causes = ([newest[0]["message"]] if newest else []) + ([said] if said else []) + list(asked)
    lines = list(_lines(name, place, newest, said, asked, now))
    if place is not None:
        verdict = (Conclusion.ALLOCATED if is_claim else Conclusion.BOUND).value
    elif _is_gated(obj):
        verdict = Conclusion.BLOCKED.value
    else:
        verdict = Conclusion.FITS_NOWHERE.value if causes else NOT_TOLD
    hidden = [f"  {each}" for each in unseen]
    text = "\n".join([*lines, "This is what the object and its Events say. Nothing more was seen:", *hidden, ""])
    headline = next(iter(causes if place is None else asked), "")
    return {
        "verdict": verdict,
        "headline": headline or None,
        "text": text,
        "events": [{"reason": each["reason"], "message": each["message"], "at": _time(each)} for each in newest],
        "unseen": list(unseen),
    }


def _ours(events: Iterable[RawObject], obj: RawObject) -> Iterator[RawObject]:
    """The Events of dra-extender on this object, not on an earlier one of its name."""
    for each in events:
        reporter = each.get("reportingComponent") or (each.get("source") or {}).get("component")
        if reporter == REPORTER and each["involvedObject"].get("uid") == obj["metadata"]["uid"]:
            yield each


def _lines(
    name: str, place: str | None, newest: Sequence[RawObject], said: str, asked: Sequence[str], now: datetime
) -> Iterator[str]:
    if place is not None:
        yield f"{name} {place}"
    elif newest or said or asked:
        yield f"{name} waits: {newest[0]['message'] if newest else said or asked[0]}"
    else:
        yield f"{name} waits, and nobody has said why yet"
    for each in newest:
        age = max(0, int((now - _datetime_of(each)).total_seconds()))
        yield f"  dra-extender, {duration(age)} ago, {each['reason']}: {each['message']}"
    if said and all(each["message"] != said for each in newest):
        yield f"  dra-extender: {said}"
    yield from (f"  kube-scheduler: {each}" for each in asked)


def _place_of_pod(pod: RawObject) -> str | None:
    node = pod["spec"].get("nodeName")
    return f"has node {node}" if node else None


def _place_of_claim(claim: RawObject) -> str | None:
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        return None
    results: Any = (allocation.get("devices") or {}).get("results") or ()
    devices = [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results]
    return f"is allocated: {', '.join(devices) or 'by its controller'}"


def _is_gated(obj: RawObject) -> bool:
    """Whether it is a pod that no scheduler tries yet."""
    return bool(obj["spec"].get("schedulingGates"))


def _condition_of_ours(obj: RawObject) -> str:
    """What dra-extender says of a pod that waits, in the condition that outlasts its Events; empty if nothing."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("type") == WAITS and each.get("status") == "False":
            return str(each.get("message") or "")
    return ""


def _answers_of_scheduler(obj: RawObject) -> Iterator[str]:
    """What kube-scheduler says of a pod without a node; of a claim it says nothing."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            yield each.get("message") or each.get("reason") or "the pod is not scheduled"


def _datetime_of(event: RawObject) -> datetime:
    return datetime.fromisoformat(_time(event))


def _time(event: RawObject) -> str:
    """The time at which an Event was seen last."""
    series = event.get("series") or {}
    found = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(found or event["metadata"]["creationTimestamp"])
