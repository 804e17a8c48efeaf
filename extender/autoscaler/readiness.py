"""NodeReady: which drivers are expected on a new node, and whether they have published all their devices there.

The first source that knows something of expected drivers counts: node templates, then the other nodes of the node's
group, then DaemonSets that are known to run drivers. A source may also know that nothing is expected.

Kubernetes does not say which driver a DaemonSet runs. An annotation says so, or the settings. DaemonSets are read from
the API server when they are needed. They are not watched, because few calls ask for them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from allocator import InvalidObjectError
from allocator.tools import Fields, driver_name
from extender.autoscaler.simulated_cluster import World
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import NodeRequirements, read_requirements
from extender.framework.decisions.verdict import UNKNOWN_NODE
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError, key_of
from extender.kube.resources import DAEMON_SETS
from extender.planning.kube_scheduler import rejection, tolerating
from extender.planning.templates import Supply, local_pools

DRIVERS: Final = "dra-extender.dev/drivers"
"""Annotation of a DaemonSet: the names of the drivers that its pods run, with commas between them."""


@dataclass(frozen=True, slots=True)
class DriverDaemonSet:
    """A DaemonSet whose pods run drivers.

    Attributes:
        node_name: ``spec.nodeName`` of its pods; empty: the other requirements decide.
    """

    key: ObjectKey
    drivers: tuple[str, ...]
    requirements: NodeRequirements
    node_name: str = ""

    def runs_on(self, node: NodeObject) -> bool:
        """Whether the daemon controller puts a pod on the node."""
        return self.node_name in {"", node.name} and not rejection(self.requirements, node)


@dataclass(frozen=True, slots=True)
class DriverDaemonSets:
    """All DaemonSets that are known to run drivers.

    Attributes:
        unread: why DaemonSets are missing here; empty if none is.
    """

    known: tuple[DriverDaemonSet, ...] = ()
    unread: str = ""

    def on(self, node: NodeObject) -> Mapping[str, str]:
        """Each driver that is expected on the node, with the DaemonSet that runs it."""
        running = (each for each in self.known if each.runs_on(node))
        return {driver: f"DaemonSet {each.key}" for each in running for driver in each.drivers}


def read_daemon_sets(
    objects: Iterable[Mapping[str, Any]], named: Mapping[str, Sequence[str]]
) -> tuple[tuple[DriverDaemonSet, ...], tuple[str, ...]]:
    """The DaemonSets of a list that run drivers, and what is wrong with the others that say so.

    Args:
        objects: apps/v1 DaemonSets.
        named: namespace/name of a DaemonSet to its drivers; it goes before the annotation.
    """
    found: list[DriverDaemonSet] = []
    problems: list[str] = []
    for each in objects:
        try:
            found += _read(each, named)
        except InvalidObjectError as error:
            problems.append(str(error))
    return tuple(found), tuple(problems)


def _read(obj: Mapping[str, Any], named: Mapping[str, Sequence[str]]) -> Iterator[DriverDaemonSet]:
    key = key_of(dict(obj))
    top = Fields(obj, "", [])
    drivers = tuple(named.get(str(key), ())) or _annotated(top)
    if drivers:
        pod = top.child("spec").child("template").child("spec")
        spec = Fields(tolerating(dict(pod.data)), "spec.template.spec", top.problems)
        found = DriverDaemonSet(key, drivers, read_requirements(spec), spec.text("nodeName"))
        if not top.problems:
            yield found
    if top.problems:
        raise InvalidObjectError("DaemonSet", str(key), tuple(top.problems))


def _annotated(top: Fields) -> tuple[str, ...]:
    value = top.child("metadata").text_mapping("annotations").get(DRIVERS, "")
    names = tuple(name for name in map(str.strip, value.split(",")) if name)
    for name in names:
        if wrong := driver_name(name):
            top.problem(f"metadata.annotations[{DRIVERS}]", f'"{name}" {wrong}')
    return names


_FRESH_SECONDS: Final = 10.0
"""An answer of the API server, or its failure, counts for this time."""

_READING_SECONDS: Final = 5.0
"""The longest wait for the API server."""

logger = structlog.get_logger()


class DaemonSetReader:
    """The DaemonSets that run drivers. Calls that come at once share one request.

    Args:
        named: namespace/name of a DaemonSet to its drivers.
        clock: seconds, from any point.
    """

    def __init__(self, api: Api, named: Mapping[str, Sequence[str]], clock: Callable[[], float]) -> None:
        self._api = api
        self._named = named
        self._clock = clock
        self._turn = asyncio.Lock()
        self._read = DriverDaemonSets()
        self._until = float("-inf")

    async def latest(self) -> DriverDaemonSets:
        """The DaemonSets, a few seconds old at most. What cannot be read is said in the value."""
        async with self._turn:
            if self._clock() >= self._until:
                self._read = await self._list()
                self._until = self._clock() + _FRESH_SECONDS
            return self._read

    async def _list(self) -> DriverDaemonSets:
        try:
            async with asyncio.timeout(_READING_SECONDS):
                listing = await self._api.list(DAEMON_SETS)
        except (ApiError, OutcomeUnknownError) as error:
            return self._unread(f"DaemonSets can't be listed: {error}")
        except TimeoutError:
            return self._unread(f"DaemonSets can't be listed: no answer within {_READING_SECONDS:g} s")
        found, problems = read_daemon_sets(listing.items, self._named)
        if problems:
            self._unread("; ".join(problems))
        return DriverDaemonSets(found, "; ".join(problems))

    def _unread(self, why: str) -> DriverDaemonSets:
        if why != self._read.unread:
            logger.warning("daemon sets not read", error=why)
        return DriverDaemonSets(unread=why)


@dataclass(frozen=True, slots=True)
class Expectations:
    """The sources that tell which drivers a node has.

    Attributes:
        patience: after this time, a node without slices is taken to be a node without drivers.
    """

    daemon_sets: DriverDaemonSets
    now: datetime
    patience: timedelta

    def of(self, node: NodeObject, supply: Supply) -> Mapping[str, str] | None:
        """Each driver that is expected, with where that is known from; None: nothing is known."""
        blueprints = supply.blueprints(node.node)
        if blueprints:
            return {driver: each.origin for each in blueprints for driver in each.drivers}
        if any(self._is_without_drivers(each, supply) for each in supply.group_of(node.node)):
            return {}
        return self.daemon_sets.on(node) if self.daemon_sets.known else None

    def ends(self, node: NodeObject) -> datetime | None:
        """The end of the time of a new node's drivers; None: it is over."""
        if not node.created:
            return None
        end = datetime.fromisoformat(node.created) + self.patience
        return end if self.now < end else None

    def _is_without_drivers(self, node: NodeObject, supply: Supply) -> bool:
        return self.ends(node) is None and not local_pools(node.node, supply.snapshot, supply.catalog.features)


NOTHING_KNOWN: Final = "nothing is known of what it should have"


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a node is complete; while it is not, why."""

    reason: str = ""

    @property
    def ready(self) -> bool:
        """There is no reason why not."""
        return not self.reason


def node_readiness(name: str, world: World, expectations: Expectations) -> Readiness:
    """Whether the slices of a node are all there: of every driver that is expected, all of the newest generation.

    Only the drivers that the world judges count. If nothing is known of the drivers, they have some time from the
    creation of the node. A node that has slices then is ready, and a node without slices never is.
    """
    found = world.supply.snapshot.nodes.get(name)
    if found is None:
        made_up = "the node does not exist: it was made up in this session"
        return Readiness(made_up if name in world.fictional else UNKNOWN_NODE.in_words())
    judged = None if world.scope is None else world.scope.drivers
    published = local_pools(found.node, world.snapshot, world.supply.catalog.features)
    pools = {pool: view for pool, view in published.items() if judged is None or pool.driver in judged}
    for pool, view in pools.items():
        if view is None:
            return Readiness(f"pool {pool}: slices of the newest generation are missing")
        if view.problem:
            return Readiness(f"pool {pool}: {view.problem}")
    expected = expectations.of(found, world.supply)
    if expected is not None:
        ours = expected.keys() if judged is None else expected.keys() & judged
        missing = sorted(ours - {pool.driver for pool in pools})
        return Readiness(_unpublished(missing[0], expected[missing[0]])) if missing else Readiness()
    unread = expectations.daemon_sets.unread
    reason = f"{NOTHING_KNOWN} ({unread})" if unread else NOTHING_KNOWN
    end = expectations.ends(found)
    if end is not None:
        return Readiness(f"{reason}: its drivers have time until {end:%Y-%m-%dT%H:%M:%SZ}")
    return Readiness() if pools else Readiness(reason)


def _unpublished(driver: str, source: str) -> str:
    return f"driver {driver} has published nothing for the node yet ({source})"
