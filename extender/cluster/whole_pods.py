"""All pods of a live cluster, with all that kube-scheduler's default filters read; listed when somebody asks.

The service follows pods with devices alone: pods without devices are most of a cluster, and their events would take
time from filter. People and autoscalers ask rarely. So the pods are listed for an answer. A thread reads the list in
pieces, and verbs go first. The next answers use the same list for as long as it took to read.

Pods with devices are as the snapshot has them; only their conditions on nodes and neighbors come from the list.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import msgspec
from immutables import Map

from allocator import InvalidObjectError
from extender.cluster.indexes import PlacedPods
from extender.cluster.objects.pod_conditions import NO_CONDITIONS, PodConditions
from extender.cluster.objects.pods import Pod, parse_whole_pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ApiError, OutcomeUnknownError, RawObject
from extender.kube.encoding import loads
from extender.kube.remote import PageReader, pages
from extender.kube.resources import NAMESPACES, PODS
from extender.tools.offload import Offload, in_thread

_FRESH_SECONDS: Final = 0.2
"""The shortest time for which a list counts."""

_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_AT_ONCE: Final = 50
"""Pods that are read between two pauses: 4 ms."""
_MOST_NAMED: Final = 3


class _Container(msgspec.Struct, omit_defaults=True):
    name: Any = None
    resources: Any = None
    ports: Any = None
    restartPolicy: Any = None  # noqa: N815 - a field of the API


class _Spec(msgspec.Struct, omit_defaults=True):
    nodeName: Any = None  # noqa: N815
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815
    resourceClaims: Any = None  # noqa: N815
    affinity: Any = None
    topologySpreadConstraints: Any = None  # noqa: N815
    overhead: Any = None
    resources: Any = None


class _Metadata(msgspec.Struct, omit_defaults=True):
    name: Any = None
    namespace: Any = None
    uid: Any = None
    labels: Any = None
    deletionTimestamp: Any = None  # noqa: N815


class _Status(msgspec.Struct, omit_defaults=True):
    phase: Any = None


class _Pod(msgspec.Struct, omit_defaults=True):
    """The fields that count. The others are most of a pod's JSON, and are skipped."""

    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


_DECODER: Final = msgspec.json.Decoder(_Pod)


def read_listed_pod(text: bytes) -> Pod:
    """A pod of a list.

    Raises:
        InvalidObjectError: a field that counts has a wrong type.
    """
    try:
        obj: RawObject = msgspec.to_builtins(_DECODER.decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        obj = loads(text)
    return parse_whole_pod(obj)


@dataclass(frozen=True, slots=True)
class ListedPods:
    """All pods that are not finished, as a list has shown them.

    Attributes:
        placed: those that have a node; None: they are not known.
        conditions: of the pods that have some, by uid.
        devices: the uids of those that need devices.
        problems: what is not known, and why, in words.
    """

    placed: PlacedPods | None = None
    conditions: Map[str, PodConditions] = field(default_factory=Map)
    devices: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    def beside(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with whole pods. Its own pods count as it has them, with the conditions of the list."""
        placed, known = self.placed, snapshot.pods
        if placed is None or snapshot.placed is not None:
            return snapshot
        for key in [key for key, pod in placed.pods.items() if pod.uid in self.devices]:
            placed = placed.without_pod(key)
        for key, pod in snapshot.pods.items():
            whole = self.whole(pod)
            known = known if whole is pod else known.set(key, whole)
            placed = placed.with_pod(whole)
        return snapshot._replace(pods=known, placed=placed)

    def whole(self, pod: Pod) -> Pod:
        """A pod with its conditions, if it was listed."""
        conditions = self.conditions.get(pod.uid)
        return pod if conditions is None else replace(pod, conditions=conditions)


NOT_LISTED: Final = ListedPods()


class WholePods:
    """Lists the pods of a live cluster for answers to people and autoscalers.

    Args:
        reader: of the API server.
        most: pods that are read for an answer; 0: none.
        off_loop: where they are read.
    """

    def __init__(self, reader: PageReader, most: int, off_loop: Offload = in_thread) -> None:
        self._reader = reader
        self._most = most
        self._off_loop = off_loop
        self._turn = asyncio.Lock()
        self._known: ListedPods | None = None

    async def listed(self, pause: Callable[[], None]) -> ListedPods:
        """The pods as they are, or were a short time ago.

        Args:
            pause: called in a thread between small pieces of work, so that verbs go first.
        """
        if not self._most:
            return NOT_LISTED
        async with self._turn:
            if self._known is None:
                loop = asyncio.get_running_loop()
                began = loop.time()
                self._known = await self._answer(pause)
                loop.call_later(max(_FRESH_SECONDS, loop.time() - began), self._forget)
            return self._known

    def _forget(self) -> None:
        """Give back the memory of a list that is too old for another answer."""
        self._known = None

    async def _answer(self, pause: Callable[[], None]) -> ListedPods:
        try:
            return await self._read(pause)
        except (ApiError, OutcomeUnknownError, _TooManyError) as error:
            return ListedPods(problems=(f"pods without devices can't be read: {error}",))

    async def _read(self, pause: Callable[[], None]) -> ListedPods:
        found: list[Pod] = []
        unread: list[str] = []
        async with aclosing(self._pages()) as listed:
            async for texts in listed:
                pods, failed = await self._off_loop(partial(_parsed, texts, pause))
                found += pods
                unread += failed
        problems = [_unread(unread)] if unread else []
        labels: Map[str, Mapping[str, str]] = Map()
        if any(pod.conditions.selects_namespaces for pod in found):
            try:
                labels = await self._labels_of_namespaces()
            except (ApiError, OutcomeUnknownError) as error:
                problems.append(f"labels of namespaces, which affinity between pods selects, can't be read: {error}")
        return await self._off_loop(partial(_indexed, found, labels, tuple(problems), pause))

    async def _pages(self) -> AsyncGenerator[Sequence[bytes], None]:
        count = 0
        async with aclosing(pages(self._reader, PODS, fields=_UNFINISHED)) as read:
            async for page in read:
                count += len(page.items)
                if count > self._most:
                    raise _TooManyError(f"the cluster has more than {self._most} (cluster.podsForAnswers)")
                yield [bytes(item) for item in page.items]

    async def _labels_of_namespaces(self) -> Map[str, Mapping[str, str]]:
        found: dict[str, Mapping[str, str]] = {}
        async with aclosing(pages(self._reader, NAMESPACES)) as read:
            async for page in read:
                for metadata in (loads(bytes(item)).get("metadata") or {} for item in page.items):
                    found[metadata.get("name", "")] = metadata.get("labels") or {}
        return Map(found)


class _TooManyError(Exception):
    """There are more pods than may be read for an answer."""


def _parsed(texts: Sequence[bytes], pause: Callable[[], None]) -> tuple[list[Pod], list[str]]:
    """The pods, and what is wrong with those that can't be read."""
    found, unread = [], []
    for number, text in enumerate(texts):
        if number % _AT_ONCE == 0:
            pause()
        try:
            found.append(read_listed_pod(text))
        except InvalidObjectError as error:
            unread.append(f"{error.name}: {error.summary}")
    return found, unread


def _indexed(
    pods: Sequence[Pod], labels: Map[str, Mapping[str, str]], problems: tuple[str, ...], pause: Callable[[], None]
) -> ListedPods:
    placed = PlacedPods(namespaces=labels)
    for number, pod in enumerate(pods):
        if number % (10 * _AT_ONCE) == 0:
            pause()
        placed = placed.with_pod(pod)
    conditions = {pod.uid: pod.conditions for pod in pods if pod.conditions is not NO_CONDITIONS}
    return ListedPods(placed, Map(conditions), frozenset(pod.uid for pod in pods if pod.needs_devices), problems)


def _unread(errors: Sequence[str]) -> str:
    more = f" and {len(errors) - _MOST_NAMED} more" if len(errors) > _MOST_NAMED else ""
    return f"pods that can't be read do not count: {'; '.join(errors[:_MOST_NAMED])}{more}"
