"""The service's settings: one frozen value from a YAML file, environment variables and flags, in that order.

The file's keys are camelCase, as in Kubernetes' own configuration files. Each leaf can also be set by an environment
variable: ``server.keepAliveSeconds`` is ``DRA_EXTENDER__SERVER__KEEP_ALIVE_SECONDS``. The double underscore avoids a
clash with ``DRA_EXTENDER_PORT``, which Kubernetes sets for a Service called dra-extender.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from allocator import GATES, JSON, POLICIES, Features, label_key, shown, with_gates
from extender.config.wording import expected, suggestion
from extender.config.yamltext import single_mapping

ENVIRONMENT_PREFIX = "DRA_EXTENDER__"

AUTOSCALER_PREFIX = "/autoscaler"
"""Path before the verbs for autoscalers."""

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_RECEIVER = re.compile(r"https?://[^/?#\s]+[^?#\s]*")

_EVERYWHERE = frozenset({"0.0.0.0", "::"})


class SettingsError(Exception):
    """Settings that cannot be used; all of their problems, each naming its source, key and value."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def _policy(name: str) -> str:
    if name not in POLICIES:
        raise ValueError(f'unknown policy "{name}"{suggestion(name, POLICIES)}')
    return name


def _prefix(text: str) -> str:
    trimmed = text.rstrip("/")
    if not _PREFIX.fullmatch(trimmed):
        raise ValueError(f'"{text}" is not a URL path such as "/scheduler"')
    if trimmed == AUTOSCALER_PREFIX:
        raise ValueError(f'"{text}" is the path of the verbs for autoscalers')
    return trimmed


def _host(text: str) -> str:
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ValueError(f"{shown(text)} is not the name or address of a host")
    return text


def _names(names: list[str]) -> list[str]:
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is not the name of a host, without port")
    return names


def _label(text: str) -> str:
    if text and (wrong := label_key(text)):
        raise ValueError(f'"{text}" {wrong}')
    return text


def _receiver(text: str) -> str:
    if text and not _RECEIVER.fullmatch(text):
        raise ValueError(f'"{text}" is not a URL such as "http://collector:4318"')
    return text


def _gates(gates: Mapping[str, bool]) -> Mapping[str, bool]:
    for name in gates:
        if name not in GATES:
            raise ValueError(f'unknown feature gate "{name}"{suggestion(name, GATES)}')
    return gates


class _Section(BaseModel):
    """A group of settings: frozen, camelCase in files, unknown keys and values of another type refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel, allow_inf_nan=False)


class ServerSettings(_Section):
    """Where and how the service listens."""

    host: Annotated[str, AfterValidator(_host)] = Field(
        default="127.0.0.1", description="Address to listen on.", min_length=1
    )
    port: int = Field(default=8888, description="Port to listen on; 0 takes a free one.", ge=0, le=65535)
    prefix: Annotated[str, AfterValidator(_prefix)] = Field(
        default="", description="Path before the verbs; the end of the scheduler's urlPrefix."
    )
    keep_alive_seconds: int = Field(
        default=120,
        description="Idle connections are closed after this time; kube-scheduler closes its own after 90 s.",
        gt=90,
    )
    allowed_hosts: Annotated[list[str], AfterValidator(_names)] = Field(
        default_factory=list,
        description="Host names that callers may use, besides IP addresses, localhost and server.host.",
    )
    body_limit_bytes: int = Field(
        default=64 * 1024 * 1024,
        description="Limit for a request body, and for all bodies together; a whole node is about 10 KiB.",
        ge=1024,
    )
    stop_seconds: int = Field(default=10, description="Time for running calls to end after SIGTERM.", ge=0)
    decisions: int = Field(default=1000, description="How many decisions GET /decisions shows, the latest.", ge=1)


class OperationsSettings(_Section):
    """A second port for health and metrics only: it may be open to the network while the verbs are not."""

    host: Annotated[str, AfterValidator(_host)] = Field(
        default="0.0.0.0", description="Address to listen on.", min_length=1
    )
    port: int = Field(default=0, description="Port to listen on; 0: no second port.", ge=0, le=65535)


class ClusterSettings(_Section):
    """How the API server is watched."""

    stale_seconds: float = Field(
        default=90.0,
        description="If a watch is silent for longer, pods with devices are not decided.",
        ge=70,
    )


class SchedulingSettings(_Section):
    """How pods are decided."""

    policy: Annotated[str, AfterValidator(_policy)] = Field(
        default="best-fit", description=f"Which devices to prefer: {', '.join(sorted(POLICIES))}."
    )
    deadline_seconds: float = Field(
        default=4.0, description="Time for one verb; less than the scheduler's httpTimeout (5 s by default).", gt=0
    )
    max_steps: int = Field(default=100_000, description="Devices tried for one pod on one node before giving up.", ge=1)
    max_seconds: float = Field(default=1.0, description="Time for one pod on one node before giving up.", gt=0)
    best_nodes: int | None = Field(
        default=None,
        description="Most nodes in an answer, the best ones; null: as many as kube-scheduler scores; 0: all.",
        ge=0,
    )

    def most_nodes(self, asked: int) -> int:
        """How many nodes an answer names at most; ``asked``: number of nodes in the call.

        The default is kube-scheduler's own number of nodes to score.
        """
        if self.best_nodes is not None:
            return self.best_nodes or asked
        percentage = max(5, 50 - asked // 125)
        return min(asked, max(100, asked * percentage // 100))


class AutoscalerSettings(_Section):
    """Limits for autoscalers, and where the devices of nodes that do not exist yet are described."""

    node_templates: str = Field(
        default="",
        description="File that describes the devices of new nodes, such as config/node-templates.yaml; empty: none.",
    )
    learn_from_label: Annotated[str, AfterValidator(_label)] = Field(
        default="",
        description="Label that names a node's group: a new node gets the devices of its group's nodes; empty: off.",
    )
    deadline_seconds: float = Field(default=30.0, description="Time for one verb.", gt=0)
    sessions: int = Field(
        default=8, description="How many sessions are kept; the least recently used goes first.", ge=1
    )
    session_seconds: float = Field(default=600.0, description="A session ends this long after its start.", gt=0)
    session_bytes: int = Field(
        default=256 * 1024 * 1024, description="Memory of all sessions together, about.", ge=1024 * 1024
    )


class LogSettings(_Section):
    """What is logged. Logs go to standard error."""

    format: Literal["auto", "console", "json"] = Field(
        default="auto", description="auto: console on a terminal, else JSON lines."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level to log.")


class TracingSettings(_Section):
    """Where traces are sent; needs the extra ``opentelemetry``. OpenTelemetry's own variables apply as well."""

    endpoint: Annotated[str, AfterValidator(_receiver)] = Field(
        default="",
        description="OTLP receiver (HTTP), such as http://collector:4318; empty: OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    sample_ratio: float | None = Field(
        default=None,
        description="Share of the traces that begin here and are kept; null: OTEL_TRACES_SAMPLER.",
        ge=0,
        le=1,
    )


class Settings(_Section):
    """All settings of the service."""

    server: ServerSettings = ServerSettings()
    operations: OperationsSettings = OperationsSettings()
    cluster: ClusterSettings = ClusterSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    autoscaler: AutoscalerSettings = AutoscalerSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    feature_gates: Annotated[dict[str, bool], AfterValidator(_gates)] = Field(
        default_factory=dict,
        description="Kubernetes' DRA feature gates; a gate that is not named has its default of Kubernetes 1.37.",
    )

    @property
    def features(self) -> Features:
        """The allocator's features with the gates applied."""
        return with_gates(Features(), self.feature_gates)

    def as_yaml(self) -> str:
        """The settings as the text of a settings file."""
        return yaml.safe_dump(self.model_dump(by_alias=True, mode="json"), sort_keys=False)


@dataclass(frozen=True, slots=True)
class Source:
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
    read: Callable[[Mapping[str, JSON]], Settings] = Settings.model_validate


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
        SettingsError: all unknown keys and invalid values, two equal ports, or a text that is not YAML.
    """
    given = [(key, value) for key, value in (flags or {}).items() if value is not None]
    sources = [
        Source(file, _from_yaml(file, text)),
        Source("environment", _from_environment(environment or {}), _variable_of, Settings.model_validate_strings),
        Source("flags", _nested((tuple(key.split(".")), value) for key, value in given)),
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
        raise SettingsError(problems)
    settings = Settings.model_validate(merged)
    if clash := _clash(settings):
        raise SettingsError([clash])
    return settings


def keys() -> Iterator[tuple[tuple[str, ...], str]]:
    """The path and the description of each leaf."""
    for name, section in Settings.model_fields.items():
        kind = section.annotation
        if isinstance(kind, type) and issubclass(kind, _Section):
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


def _problems(source: Source, error: ValidationError) -> Iterator[str]:
    for item in error.errors(include_url=False):
        path = tuple(map(str, item["loc"]))
        is_unknown = item["type"] == "extra_forbidden"
        problem = f"unknown key{suggestion(path[-1], _siblings(path))}" if is_unknown else expected(item)
        yield f"{source.name}: {source.label(path)}: {problem}"


def _siblings(path: tuple[str, ...]) -> set[str]:
    """The known keys in the section of a path."""
    return {known[len(path) - 1] for known, _ in keys() if known[: len(path) - 1] == path[:-1]}


def _clash(settings: Settings) -> str:
    """What is wrong if both ports are the same at addresses that overlap; else empty."""
    server, operations = settings.server, settings.operations
    hosts = {server.host, operations.host}
    is_one_family = len({":" in host for host in hosts}) == 1
    if not operations.port or operations.port != server.port:
        return ""
    if len(hosts) > 1 and not (is_one_family and hosts & _EVERYWHERE):
        return ""
    return (
        f"operations.port: {operations.port} is server.port as well ({' and '.join(sorted(hosts))}): "
        "health and metrics need a port of their own, or 0 to be on server.port alone"
    )


def _from_yaml(file: str, text: str | None) -> Mapping[str, JSON]:
    try:
        tree = single_mapping(text or "") or {}
    except ValueError as error:
        raise SettingsError([f"{file}: {error}"]) from error
    # A group whose lines are all commented out is null.
    return {key: value for key, value in tree.items() if value is not None}


def _from_environment(environment: Mapping[str, str]) -> Mapping[str, JSON]:
    paths = {variable(path): path for path, _ in keys()}
    leaves: list[tuple[tuple[str, ...], JSON]] = []
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        if name not in paths:
            raise SettingsError([f"environment: {name}: unknown variable{suggestion(name, paths)}"])
        path, text = paths[name], environment[name]
        leaves.append((path, _LISTS[path](name, text) if path in _LISTS else text))
    return _nested(leaves)


def _names_from_text(_: str, text: str) -> JSON:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def _gates_from_text(name: str, text: str) -> JSON:
    """Kubernetes' notation: ``DRAAdminAccess=false,DRADeviceTaints=true``."""
    gates: dict[str, JSON] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        gate, equals, value = item.partition("=")
        if not equals:
            raise SettingsError([f'environment: {name}: "{item}" is not of the form Gate=true'])
        gates[gate.strip()] = value.strip()
    return gates


_LISTS: Mapping[tuple[str, ...], Callable[[str, str], JSON]] = {
    ("featureGates",): _gates_from_text,
    ("server", "allowedHosts"): _names_from_text,
}
"""Parsers for variables that hold several values."""


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
