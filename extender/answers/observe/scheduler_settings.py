"""A check of the configuration of the kube-scheduler beside a service.

Only what concerns dra-extender is checked: whether pods with devices are scheduled safely and without waits.
kube-scheduler itself refuses unknown fields.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from extender.cluster.objects.extended_resources import MARKER
from extender.config.settings import Settings
from extender.framework.problem import Look, Problem
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import DEFAULT_SCHEDULER
from extender.tools.files import UnreadableError, read_text
from extender.tools.yamltext import single_mapping

SCHEDULER: Final = "KubeSchedulerConfiguration"
"""The kind of what is not an object of the API server."""

_PLUGIN: Final = "DynamicResources"
_ALL_NODES: Final = 100
_ENOUGH_REQUESTS: Final = 200
_DEFAULT_REQUESTS: Final = 50
"""Requests a second of kube-scheduler's client, if `clientConnection.qps` is not set. A negative number is no limit."""

_LONGEST_BACKOFF: Final[Mapping[str, int]] = {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 60}
"""The longest first wait, and the longest wait, of a rejected pod that does not count as a problem."""

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DEFAULT_TIMEOUT: Final = 5.0
"""Seconds that kube-scheduler waits for an extender, if `httpTimeout` is not set."""

_VERBS: Final[Mapping[str, str]] = {
    "filter": "which nodes have the devices",
    "prioritize": "which of the nodes are best",
    "preempt": "whose eviction helps",
    "bind": "to allocate them",
}
"""Each verb, and what the scheduler asks with it."""


@dataclass(frozen=True, slots=True)
class SchedulerFinding:
    """A problem with a field of the file.

    Attributes:
        field: path of the field.
        problem: what is wrong, and what follows from it.
        is_error: devices may be given out twice, or pods started without them, or none is started. Else pods only wait
            longer, or people are told less.
    """

    field: str
    problem: str
    is_error: bool

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


def check_scheduler(text: str, settings: Settings) -> tuple[SchedulerFinding, ...]:
    """The problems of a kube-scheduler's configuration beside a service with these settings.

    Args:
        text: YAML of a KubeSchedulerConfiguration.
        settings: of the service that the scheduler calls.

    Raises:
        ValueError: the text is no KubeSchedulerConfiguration.
    """
    config = single_mapping(text) or {}
    if config.get("kind") != SCHEDULER:
        raise ValueError(f"kind: {config.get('kind')!r} is not {SCHEDULER}")
    extenders = _mappings(config.get("extenders"))
    if not extenders:
        return (_unsafe("extenders", "no extender is named, so the scheduler never asks dra-extender"),)
    profiles = _mappings(config.get("profiles"))
    found = [*_of_client(_mapping(config.get("clientConnection"))), *_of_backoff(config)]
    found += _of_extenders(extenders, settings)
    if not profiles:
        found.append(_unsafe("profiles", _ALLOCATES_TWICE))
    for number, profile in enumerate(profiles):
        found += _of_profile(f"profiles[{number}]", profile, settings.scheduling.scheduler_names)
    return (*found, *_of_percentages(config, profiles, settings))


def _of_percentages(
    config: Mapping[str, Any], profiles: Sequence[Mapping[str, Any]], settings: Settings
) -> Iterator[SchedulerFinding]:
    """Each profile has to look at every node; with marked pods only, one has to: policies move these pods there."""
    said = [profile.get("percentageOfNodesToScore", config.get("percentageOfNodesToScore")) for profile in profiles]
    if settings.scheduling.marked_pods_only and _ALL_NODES in said:
        return
    for number, percentage in enumerate(said):
        if percentage != _ALL_NODES:
            shown = "is not set" if percentage is None else f"{percentage} is not {_ALL_NODES}"
            problem = f"{shown}: the scheduler looks at some nodes only, and rejects pods whose devices are on others"
            yield _slow(f"profiles[{number}].percentageOfNodesToScore", problem)


_ALLOCATES_TWICE: Final = (
    f"the plugin {_PLUGIN} is not disabled in multiPoint: it and dra-extender would give one device to two claims"
)
_NO_GATE: Final = (
    f"{_PLUGIN} is not enabled there: each pod with a claim template is first rejected, because its claim is not made "
    "yet, and waits for the end of its backoff"
)


def _of_client(client: Mapping[str, Any]) -> Iterator[SchedulerFinding]:
    said = client.get("qps") or 0
    requests = said or _DEFAULT_REQUESTS
    if isinstance(requests, int | float) and 0 <= requests < _ENOUGH_REQUESTS:
        number = f"{requests:g}" if said else f"it is not set, which means {requests:g}"
        problem = "requests a second: each pod that is rejected takes one, and all other pods wait meanwhile"
        yield _slow("clientConnection.qps", f"{number} {problem}")


def _of_backoff(config: Mapping[str, Any]) -> Iterator[SchedulerFinding]:
    for field, most in _LONGEST_BACKOFF.items():
        seconds = config.get(field)
        if isinstance(seconds, int | float) and seconds > most:
            problem = f"{seconds:g} s: a pod that dra-extender wakes waits for the end of its backoff"
            yield _slow(field, f"{problem}; more than {most} s makes pods wait although their devices are free")


def _of_profile(at: str, profile: Mapping[str, Any], known: Sequence[str]) -> Iterator[SchedulerFinding]:
    plugins, name = _mapping(profile.get("plugins")), str(profile.get("schedulerName") or DEFAULT_SCHEDULER)
    if known and name not in known:
        problem = f"{name} is not in scheduling.schedulerNames ({', '.join(known)}): its pods are not tried again"
        yield _slow(f"{at}.schedulerName", problem)
    if not _names(plugins, "multiPoint", "disabled") & {_PLUGIN, "*"}:
        yield _unsafe(f"{at}.plugins.multiPoint.disabled", _ALLOCATES_TWICE)
    elif _PLUGIN not in _names(plugins, "preEnqueue", "enabled"):
        yield _slow(f"{at}.plugins.preEnqueue.enabled", _NO_GATE)
    for point in plugins:
        if point != "preEnqueue" and _PLUGIN in _names(plugins, point, "enabled"):
            yield _unsafe(f"{at}.plugins.{point}.enabled", _ALLOCATES_TWICE)


def _of_extenders(extenders: Sequence[Mapping[str, Any]], settings: Settings) -> Iterator[SchedulerFinding]:
    """The extender whose URL is that of the service; the only one, if there is one."""
    own = [number for number, each in enumerate(extenders) if _is_service(str(each.get("urlPrefix", "")), settings)]
    number = own[0] if own else 0
    at, extender = f"extenders[{number}]", extenders[number]
    if not own and len(extenders) > 1:
        problem = f"no urlPrefix has the port {settings.server.port} and the path {settings.server.prefix or '/'}"
        yield _slow("extenders", f"{problem} of the settings: none is known to be dra-extender")
        return
    if not own:
        url, server = extender.get("urlPrefix"), settings.server
        problem = f"{url!r} has not the port {server.port} and the path {server.prefix or '/'} of the settings"
        yield _slow(f"{at}.urlPrefix", problem)
    for verb, asks in _VERBS.items():
        if extender.get(f"{verb}Verb") != verb:
            problem = f"{extender.get(f'{verb}Verb')!r} is not {verb!r}: the scheduler does not ask dra-extender {asks}"
            yield (_slow if verb == "prioritize" else _unsafe)(f"{at}.{verb}Verb", problem)
    if extender.get("ignorable"):
        problem = "while dra-extender does not answer, the scheduler binds pods whose claims are not allocated"
        yield _unsafe(f"{at}.ignorable", problem)
    yield from _of_managed(f"{at}.managedResources", extender, is_marked_only=settings.scheduling.marked_pods_only)
    if not extender.get("nodeCacheCapable"):
        problem = "it is not true: the scheduler sends whole nodes, about 10 KiB each, with each call"
        yield _slow(f"{at}.nodeCacheCapable", problem)
    timeout, deadline = _seconds(extender.get("httpTimeout")), settings.scheduling.deadline_seconds
    if timeout is not None and timeout <= deadline:
        problem = f"{timeout:g} s is not longer than scheduling.deadlineSeconds ({deadline:g} s): late answers are lost"
        yield _slow(f"{at}.httpTimeout", problem)


def _of_managed(at: str, extender: Mapping[str, Any], *, is_marked_only: bool) -> Iterator[SchedulerFinding]:
    """Without `managedResources`, the scheduler asks about all pods. With it, it has to name the marker."""
    managed = _mappings(extender.get("managedResources"))
    markers = [(number, each) for number, each in enumerate(managed) if each.get("name") == MARKER]
    if managed and not markers:
        problem = (
            "the scheduler asks only about pods whose containers request one of these; claims do not count. Name "
            f"{MARKER}, and apply the policies of deploy/only-scheduler"
        )
        yield _unsafe(at, problem)
    for number, each in markers:
        if each.get("ignoredByScheduler") is not True:
            problem = f"it is not true: no node offers {MARKER}, so pods with devices fit nowhere"
            yield _unsafe(f"{at}[{number}].ignoredByScheduler", problem)
    if markers and not is_marked_only:
        problem = "scheduling.markedPodsOnly is not true: explain does not say if a pod with devices lacks it"
        yield _slow(at, problem)
    if is_marked_only and not managed:
        yield _slow(at, "it is not set, but scheduling.markedPodsOnly is true: the scheduler asks about all pods")


def _is_service(url: str, settings: Settings) -> bool:
    try:
        parts = urlsplit(url)
        return parts.port == settings.server.port and parts.path.rstrip("/") == settings.server.prefix
    except ValueError:
        return False


def _seconds(duration: object) -> float | None:
    """Seconds of a duration of Go, such as ``1m30s``; None if it is not one."""
    if duration is None:
        return _DEFAULT_TIMEOUT
    parts = _DURATION.findall(str(duration))
    if "".join(number + unit for number, unit in parts) != str(duration):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _names(plugins: Mapping[str, Any], point: str, which: str) -> set[str]:
    return {str(each.get("name")) for each in _mappings(_mapping(plugins.get(point)).get(which))}


def _unsafe(field: str, problem: str) -> SchedulerFinding:
    return SchedulerFinding(field, problem, is_error=True)


def _slow(field: str, problem: str) -> SchedulerFinding:
    return SchedulerFinding(field, problem, is_error=False)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def scheduler_file_of(settings: Settings) -> Callable[[], str] | None:
    """A reader of the file that the settings name; None: they name none."""
    path = settings.scheduling.scheduler_file
    return partial(read_text, Path(path)) if path else None


class OfSchedulerFile:
    """A finder of problems in the file with the scheduler's configuration. It is read at each look.

    Args:
        read: the text of the file; None: no file is known.
        settings: of the service that the scheduler calls.
    """

    def __init__(self, read: Callable[[], str] | None, settings: Settings) -> None:
        self._read = read
        self._settings = settings

    def __call__(self, look: Look) -> Iterator[Problem]:
        """One for each field."""
        if self._read is None:
            return
        look.pause()
        file = self._settings.scheduling.scheduler_file
        key = ObjectKey("", file)
        try:
            found = check_scheduler(self._read(), self._settings)
        except (UnreadableError, ValueError) as error:
            text, told = str(error), "correct scheduling.schedulerFile, or the file"
            yield Problem("scheduler-settings", SCHEDULER, key, text, "its settings are not checked", told)
            return
        for each in found:
            told = "correct the field as in config/scheduler.yaml, and restart kube-scheduler"
            cost = _UNSAFE_COST if each.is_error else _SLOW_COST
            yield Problem("scheduler-settings", SCHEDULER, key, str(each), cost, told)


_UNSAFE_COST: Final = "a device may be given to two pods, or pods start without their devices, or never"
_SLOW_COST: Final = "pods with devices wait longer, or people are told less"
