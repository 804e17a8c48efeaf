"""Sources of settings: a YAML file, environment variables and flags; later sources win.

Each leaf can be set by an environment variable: ``server.keepAliveSeconds`` is
``DRA_EXTENDER__SERVER__KEEP_ALIVE_SECONDS``. The double underscore avoids a clash with ``DRA_EXTENDER_PORT``, which
Kubernetes sets for a Service called dra-extender. What listeners may not have together is refused here, too.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from itertools import combinations
from typing import Final, TypeAlias

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from allocator.tools import JSON
from extender.config.settings import (
    ApiSettings,
    GrpcSettings,
    OperationsSettings,
    ServerSettings,
    Settings,
    TlsSettings,
    UsageSettings,
    problems_of_controllers,
)
from extender.tools.section import Section
from extender.tools.user_error import UserError, expected, suggestion
from extender.tools.yamltext import single_mapping

_Listener: TypeAlias = ServerSettings | OperationsSettings | ApiSettings | GrpcSettings

_EVERYWHERE = frozenset({"0.0.0.0", "::"})

ENVIRONMENT_PREFIX = "DRA_EXTENDER__"


class SettingsError(UserError):
    """Settings that cannot be used; all of their problems, each naming its source, key and value."""


_of_tree: Final = partial(Settings.model_validate, by_alias=True, by_name=False)
"""Keys are camelCase in all sources."""


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """One source of settings.

    Attributes:
        name: for messages.
        tree: the settings, as nested keys.
        label: the name of a key in this source.
        read: makes values from the tree; values from the environment are strings.
    """

    name: str
    tree: Mapping[str, JSON]
    label: Callable[[tuple[str, ...]], str] = ".".join
    read: Callable[[Mapping[str, JSON]], Settings] = _of_tree


def load(
    text: str | None = None,
    *,
    file: str = "settings",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, JSON] | None = None,
) -> Settings:
    """The settings from a YAML text, the environment and flags; later sources win.

    Args:
        text: the file's content; None: no file.
        file: its name, for messages.
        environment: variables; only those with `ENVIRONMENT_PREFIX` count.
        flags: dotted key to value, such as ``{"server.port": 8080}``; None: the flag was not given.

    Raises:
        SettingsError: all unknown keys and invalid values, listeners that cannot be, controllers that may
            take too long, or a text that is not YAML.
    """
    given = [(key, value) for key, value in (flags or {}).items() if value is not None]
    texts, lists = _from_environment(environment or {})
    sources = [
        SettingsSource(file, _from_yaml(file, text)),
        SettingsSource("environment", texts, _variable_of, Settings.model_validate_strings),
        SettingsSource("environment", lists, _variable_of),
        SettingsSource("flags", _nested((tuple(key.split(".")), value) for key, value in given)),
    ]
    merged: dict[str, JSON] = {}
    problems: list[str] = []
    for source in sources:
        try:
            read = source.read(source.tree)
        except ValidationError as error:
            problems += _problems(source, error)
        else:
            merged = _merge(merged, read.model_dump(by_alias=True, exclude_unset=True))
    if problems:
        raise SettingsError(*problems)
    settings = Settings.model_validate(merged)
    deadline = settings.scheduling.deadline_seconds
    problems += [*problems_of_listeners(settings), *problems_of_controllers(settings.controllers, deadline)]
    problems += _of_usage(settings.usage)
    if problems:
        raise SettingsError(*problems)
    return settings


def keys() -> Iterator[tuple[tuple[str, ...], str]]:
    """The path and the description of each leaf."""
    for name, section in Settings.model_fields.items():
        kind = section.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            for leaf, info in kind.model_fields.items():
                yield (to_camel(name), to_camel(leaf)), info.description or ""
        else:
            yield (to_camel(name),), section.description or ""


def variable(path: tuple[str, ...]) -> str:
    """The environment variable of a leaf."""
    return ENVIRONMENT_PREFIX + "__".join(re.sub(r"(?<!^)(?=[A-Z])", "_", part).upper() for part in path)


def _variable_of(path: tuple[str, ...]) -> str:
    """The variable for a key; one variable has all feature gates."""
    leaf = next(known for known, _ in keys() if path[: len(known)] == known)
    return ": ".join((variable(leaf), *path[len(leaf) :]))


def _problems(source: SettingsSource, error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_url=False):
        path = tuple(map(str, item["loc"]))
        is_unknown = item["type"] == "extra_forbidden"
        problem = f"unknown key{suggestion(path[-1], _siblings(path))}" if is_unknown else expected(item)
        yield f"{source.name}: {source.label(path)}: {problem}"


def _siblings(path: tuple[str, ...]) -> set[str]:
    """The known keys in the section of a path."""
    return {known[len(path) - 1] for known, _ in keys() if known[: len(path) - 1] == path[:-1]}


def _from_yaml(file: str, text: str | None) -> Mapping[str, JSON]:
    try:
        tree = single_mapping(text or "") or {}
    except ValueError as error:
        raise SettingsError(f"{file}: {error}") from error
    # A group whose lines are all commented out is null.
    return {key: value for key, value in tree.items() if value is not None}


def _from_environment(environment: Mapping[str, str]) -> tuple[Mapping[str, JSON], Mapping[str, JSON]]:
    """Variables with one value, which are texts, and those with lists, which pydantic does not read from texts."""
    paths = {variable(path): path for path, _ in keys()}
    texts: list[tuple[tuple[str, ...], JSON]] = []
    lists: list[tuple[tuple[str, ...], JSON]] = []
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        if name not in paths:
            raise SettingsError(f"environment: {name}: unknown variable{suggestion(name, paths)}")
        path, text = paths[name], environment[name]
        if path in _TREES:
            lists.append((path, _tree_from_text(name, text)))
        elif path in _LISTS:
            lists.append((path, [part for part in map(str.strip, text.split(",")) if part]))
        else:
            texts.append((path, _gates_from_text(name, text) if path == _GATES else text))
    return _nested(texts), _nested(lists)


def _tree_from_text(name: str, text: str) -> JSON:
    """One value as YAML or JSON."""
    try:
        found: JSON = (single_mapping(f"value: {text}") or {}).get("value")
    except ValueError as error:
        raise SettingsError(f"environment: {name}: {error}") from error
    return found


def _gates_from_text(name: str, text: str) -> JSON:
    """Kubernetes' notation: ``DRAAdminAccess=false,DRADeviceTaints=true``."""
    gates: dict[str, JSON] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        gate, equals, value = item.partition("=")
        if not equals:
            raise SettingsError(f'environment: {name}: "{item}" is not of the form Gate=true')
        gates[gate.strip()] = value.strip()
    return gates


_GATES = ("featureGates",)
_LISTS = frozenset({("server", "allowedHosts"), ("scheduling", "schedulerNames")})
"""Settings whose variables hold values with commas between them."""

_TREES = frozenset({("autoscaler", "daemonSetDrivers"), ("scheduling", "shapes"), ("controllers",)})
"""Settings whose variables hold JSON."""


def _nested(leaves: Iterable[tuple[tuple[str, ...], JSON]]) -> dict[str, JSON]:
    tree: dict[str, JSON] = {}
    for path, value in leaves:
        branch = value
        for part in reversed(path):
            branch = {part: branch}
        tree = _merge(tree, branch if isinstance(branch, dict) else {})
    return tree


def _merge(base: Mapping[str, JSON], over: Mapping[str, JSON]) -> dict[str, JSON]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


# --- listeners -----------------------------------------------------------------------------------------------


def _of_usage(usage: UsageSettings) -> Iterator[str]:
    """Keys that have no use without another one."""
    for name in ("token", "ca", "selector"):
        if getattr(usage, name) and not usage.prometheus:
            yield f"usage.{name}: it needs usage.prometheus"
        elif name != "selector" and getattr(usage, name) and usage.prometheus.startswith("http:"):
            yield f"usage.{name}: it needs a usage.prometheus with https"


def problems_of_listeners(settings: Settings) -> Iterator[str]:
    """Equal ports at addresses that overlap, and certificates that are not complete; each names its keys."""
    yield from _clashes(settings)
    yield from _incomplete("server", settings.server)
    yield from _incomplete("api", settings.api)
    yield from _lacking_for_peers(settings)
    yield from _incomplete("grpc", settings.grpc)
    yield from _open_to_everybody(settings.grpc)
    if settings.api.port and not settings.api.certificate:
        yield "api.certificate: a port for callers off the node has TLS; give the files of a certificate and its key"


def _open_to_everybody(grpc: GrpcSettings) -> Iterator[str]:
    """Whoever reaches the port may make the service work for it. On loopback, these are the pod's own containers."""
    if grpc.port and not (grpc.client_ca or grpc.anonymous or _is_loopback(grpc.host)):
        yield (
            "grpc.clientCa: a port off the loopback asks clients for certificates; give the file of their authorities, "
            "or set grpc.anonymous if a network policy lets only Cluster Autoscaler reach the port"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _incomplete(name: str, tls: TlsSettings) -> Iterator[str]:
    if tls.certificate and not tls.key:
        yield f"{name}.key: {name}.certificate needs the file of its private key"
    elif tls.key and not tls.certificate:
        yield f"{name}.certificate: {name}.key needs the file of its certificate"
    elif tls.client_ca and not tls.certificate:
        yield f"{name}.certificate: {name}.clientCa asks clients for certificates, which needs TLS"


def _lacking_for_peers(settings: Settings) -> Iterator[str]:
    peers = settings.peers
    if peers.server_name:
        needed = {"peers.pod": peers.pod, "peers.ca": peers.ca, "api.port": settings.api.port}
        for key, value in needed.items():
            if not value:
                yield f"peers.serverName: to pass calls on to other replicas, {key} is needed as well"


def _clashes(settings: Settings) -> Iterator[str]:
    listeners: dict[str, _Listener] = {
        "server": settings.server,
        "operations": settings.operations,
        "api": settings.api,
        "grpc": settings.grpc,
    }
    for (name, one), (other_name, other) in combinations(listeners.items(), 2):
        if one.port and one.port == other.port and _overlap(one, other):
            hosts = " and ".join(sorted({one.host, other.host}))
            yield f"{other_name}.port: {other.port} is {name}.port as well ({hosts}): {_ADVICE[other_name]}"


_ADVICE = {
    "operations": "health and metrics need a port of their own, or 0 to be on server.port alone",
    "api": "callers off the node need a port of their own, or 0 for none",
    "grpc": "gRPC needs a port of its own, or 0 for none",
}


def _overlap(one: _Listener, other: _Listener) -> bool:
    hosts = {one.host, other.host}
    is_one_family = len({":" in host for host in hosts}) == 1
    return len(hosts) == 1 or (is_one_family and bool(hosts & _EVERYWHERE))
