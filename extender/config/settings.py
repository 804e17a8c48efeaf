"""The service's settings: one frozen value. Keys are camelCase, as in Kubernetes' own configuration files.

`extender.config.sources` reads them from a file, environment variables and flags.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from allocator import GATES, Features, Problem, Quantity, Request, with_gates
from allocator.model.json import read_claim_spec
from allocator.policies import POLICIES, Shape
from allocator.tools import Fields, dns_label, dns_subdomain, driver_name, label_key, shown
from extender.tools.logs import LogSettings
from extender.tools.section import Section
from extender.tools.user_error import suggestion

Transport = Literal["Http", "PodSchedulingContext"]
"""How a controller is asked: at its URL, or by PodSchedulingContexts of the API server."""

_URL: Final = re.compile(r"https?://[^/?#\s]+[^?#\s]*")


_VERSION: Final = re.compile(r"(?:[a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9][a-z0-9]*")


def _controller(name: str) -> str:
    if wrong := dns_subdomain(name):
        raise ValueError(f"{shown(name)} {wrong}")
    return name


def _url(text: str) -> str:
    if text and not _URL.fullmatch(text):
        raise ValueError(f'{shown(text)} is not a URL such as "https://licenses.example.com"')
    return text.rstrip("/")


_MATCHER: Final = re.compile(r'\s*[A-Za-z_]\w*\s*(?:=|!=|=~|!~)\s*"(?:[^"\\\n]|\\.)*"\s*', re.ASCII)


def _matchers(text: str) -> str:
    """Matchers of PromQL, with commas between them."""
    rest = text
    while rest:
        found = _MATCHER.match(rest)
        if found is None or (found.end() < len(rest) and rest[found.end()] != ","):
            raise ValueError(f'{shown(text)} is not a list of matchers such as cluster="east"')
        rest = rest[found.end() + 1 :]
    return text


def _labels(keys: list[str]) -> list[str]:
    for key in keys:
        if wrong := label_key(key):
            raise ValueError(f"{shown(key)} {wrong}")
    return keys


def _version(text: str) -> str:
    if not _VERSION.fullmatch(text):
        raise ValueError(f'{shown(text)} is not an apiVersion such as "gpu.example.com/v1"')
    return text


def _plural(text: str) -> str:
    if wrong := dns_label(text):
        raise ValueError(f"{shown(text)} {wrong}")
    return text


def _secret_field(kind: str, resource: str) -> str:
    """The field that names Secrets of the core API; empty if none does. The URL has the resource, whatever the kind."""
    if resource == "secrets":
        return "resource"
    return "kind" if kind == "Secret" else ""


class ParameterKind(Section):
    """A kind of objects that are handed to a controller. We need the right to get them.

    In Python, `ParameterKind(api_version=..., kind=..., resource=...)` makes one.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    api_version: Annotated[str, AfterValidator(_version)] = Field(description="As the objects have it.")
    kind: str = Field(description="As the objects have it.", min_length=1)
    resource: Annotated[str, AfterValidator(_plural)] = Field(description="The plural in the URL of the objects.")
    namespaced: bool = Field(default=True, description="Whether the objects have a namespace.")

    @property
    def group(self) -> str:
        """The API group; empty for the core API."""
        return self.api_version.rpartition("/")[0]

    @model_validator(mode="after")
    def _check(self) -> "ParameterKind":
        if not self.group and (field := _secret_field(self.kind, self.resource)):
            text = "Secrets are not handed to controllers: who writes a claim would choose one to read"
            raise ValueError(f"{field}: {text}")
        return self


class ControllerSettings(Section):
    """One controller. The files are read again when they change."""

    name: Annotated[str, AfterValidator(_controller)] = Field(description="As device classes name it.")
    transport: Transport = Field(
        default="Http", description="How it is asked: at its url, or by PodSchedulingContexts of the API server."
    )
    url: Annotated[str, AfterValidator(_url)] = Field(
        default="", description="The address, with transport Http; each question has a path below it."
    )
    ca: str = Field(default="", description="File of the authorities of its certificate, in PEM; empty: the system's.")
    certificate: str = Field(default="", description="File of our certificate, in PEM; empty: none.")
    key: str = Field(default="", description="File of the private key of our certificate, in PEM.")
    token: str = Field(default="", description="File of a token that we send; empty: none.")
    timeout_seconds: float = Field(
        default=2.0, description="How long a question about nodes may take, or the write that asks it.", gt=0
    )
    waiting_share: float = Field(
        default=0.1,
        description="The part of each second that schedulers may wait for its answers about nodes. Over it, its pods "
        "wait, and no others.",
        ge=0,
        le=1,
    )
    allocation_seconds: float = Field(
        default=30.0, description="How long an allocation or a release may take.", gt=0, le=600
    )
    node_labels: Annotated[list[str], AfterValidator(_labels)] = Field(
        default_factory=list, description="Labels of nodes that it is told."
    )
    parameters: list[ParameterKind] = Field(
        default_factory=list, description="Kinds of objects that claims and device classes may name for it."
    )

    @model_validator(mode="after")
    def _check(self) -> "ControllerSettings":
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate and key need each other")
        if self.transport == "Http" and not self.url:
            raise ValueError("url is required with transport Http")
        by_url = ("url", "ca", "certificate", "token", "node_labels", "parameters")
        if self.transport != "Http" and (given := [name for name in by_url if getattr(self, name)]):
            raise ValueError(f"{to_camel(given[0])} has no use with transport {self.transport}")
        is_plain = self.url.startswith("http:")
        for name in ("ca", "certificate", "token"):
            if is_plain and getattr(self, name):
                raise ValueError(f"{name} needs a url with https")
        return self


def problems_of_controllers(controllers: Sequence[ControllerSettings], deadline_seconds: float) -> Iterator[str]:
    """Questions about nodes that leave filter too little of its time, by the settings of all sources."""
    for number, each in enumerate(controllers):
        if each.timeout_seconds > deadline_seconds / 2:
            text = f"is more than half of scheduling.deadlineSeconds, which is {deadline_seconds:g}"
            yield f"controllers.{number}.timeoutSeconds: {each.timeout_seconds:g} {text}: the search needs the rest"


def distinct(controllers: list[ControllerSettings]) -> list[ControllerSettings]:
    """The controllers, if their names differ."""
    names = [each.name for each in controllers]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"controller {name} is there twice")
    return controllers


AUTOSCALER_PREFIX = "/autoscaler"
"""Path before the verbs for autoscalers."""

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_RECEIVER = re.compile(r"https?://[^/?#\s]+[^?#\s]*")


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


def _schedulers(names: list[str]) -> list[str]:
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is not the name of a scheduler")
    return names


def _label(text: str) -> str:
    if text and (wrong := label_key(text)):
        raise ValueError(f'"{text}" {wrong}')
    return text


def _daemon_set_drivers(found: dict[str, list[str]]) -> dict[str, list[str]]:
    for key, drivers in found.items():
        namespace, _, name = key.partition("/")
        if dns_label(namespace) or dns_subdomain(name):
            raise ValueError(f"{shown(key)} is not namespace/name of a DaemonSet")
        for driver in drivers:
            if wrong := driver_name(driver):
                raise ValueError(f"{key}: {shown(driver)} {wrong}")
    return found


def _pod(text: str) -> str:
    namespace, _, name = text.partition("/")
    if text and (dns_label(namespace) or dns_subdomain(name)):
        raise ValueError(f"{shown(text)} is not namespace/name of a pod")
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


def _cpu(text: str) -> str:
    if _millis(text) < 0:
        raise ValueError(f'"{text}" is negative')
    return text


def _millis(text: str) -> int:
    """CPU in thousandths of a core. Raises ValueError: it is no quantity."""
    try:
        return -(-Quantity.parse(text).nano // 10**6)
    except ValueError:
        raise ValueError(f'"{text}" is not an amount of CPU such as "4" or "500m"') from None


def _requests(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    problems: list[Problem] = []
    for number, request in enumerate(_parsed(requests, problems)):
        if not request.alternatives:
            problems.append(Problem(f"spec.devices.requests[{number}]", "neither exactly nor firstAvailable is set"))
    if problems:
        raise ValueError("; ".join(map(str, problems)))
    return requests


def _parsed(requests: list[dict[str, Any]], problems: list[Problem]) -> tuple[Request, ...]:
    return read_claim_spec(Fields({"devices": {"requests": requests}}, "spec", problems), "resource.k8s.io/v1").requests


class TlsSettings(Section):
    """The certificates of a listener. The files are read again when they change."""

    certificate: str = Field(default="", description="File of the listener's certificate, in PEM; empty: no TLS.")
    key: str = Field(default="", description="File of the certificate's private key, in PEM, without a passphrase.")
    client_ca: str = Field(
        default="", description="File of the authorities that issue certificates of clients, in PEM; empty: none."
    )

    @property
    def tls(self) -> bool:
        """Whether the listener has TLS."""
        return bool(self.certificate)


class ServerSettings(TlsSettings):
    """Settings for listening. With an authority for clients, each client needs a certificate."""

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
    decisions: int = Field(
        default=1000, description="How many decisions GET /decisions shows, the latest of each namespace.", ge=1
    )


class OperationsSettings(Section):
    """A second port for health and metrics only: it may be open to the network while the verbs are not."""

    host: Annotated[str, AfterValidator(_host)] = Field(
        default="0.0.0.0", description="Address to listen on.", min_length=1
    )
    port: int = Field(default=0, description="Port to listen on; 0: no second port.", ge=0, le=65535)


class ApiSettings(TlsSettings):
    """A port for callers off the node: verbs of autoscalers, explanations, tables. It always has TLS.

    Callers show a certificate or a token, and the API server says what they may do.
    """

    host: Annotated[str, AfterValidator(_host)] = Field(
        default="0.0.0.0", description="Address to listen on.", min_length=1
    )
    port: int = Field(default=0, description="Port to listen on; 0: no such port.", ge=0, le=65535)
    audience: str = Field(
        default="", description="Audience that tokens must be made for; empty: that of the API server."
    )


class ClusterSettings(Section):
    """Settings for watching the API server."""

    stale_seconds: float = Field(
        default=90.0,
        description="If a watch is silent for longer, pods with devices are not decided.",
        ge=70,
    )
    pods_for_answers: int = Field(
        default=50_000,
        description="Most pods that are listed for an answer about kube-scheduler's own checks; 0: none are.",
        ge=0,
    )


class MemorySettings(Section):
    """The memory that the service counts on. A quarter of it is for what comes from outside, while it is worked on."""

    limit_bytes: int = Field(
        default=0,
        description="Memory that the service may take; 0: as its cgroup says, else a quarter of the machine's memory.",
        ge=0,
    )


class ShapeSettings(Section):
    """A shape of pods: what they ask for, and how often."""

    weight: float = Field(default=1.0, description="How often the shape is asked, beside the other shapes.", gt=0)
    cpu: Annotated[str, AfterValidator(_cpu)] = Field(default="0", description="The CPU that such a pod requests.")
    requests: Annotated[list[dict[str, Any]], AfterValidator(_requests)] = Field(
        description="As spec.devices.requests of a ResourceClaim of resource.k8s.io/v1.", min_length=1
    )

    @property
    def shape(self) -> Shape:
        """The shape."""
        return Shape(_parsed(self.requests, []), _millis(self.cpu))


class EvictionSettings(Section):
    """The most pods that are evicted, also of those that kube-scheduler would evict for pods with devices."""

    for_pod: int = Field(default=32, description="The most pods that are evicted for one pod, in its whole life.", ge=0)
    of_namespace: int = Field(
        default=120, description="The most pods of one namespace that are evicted in a minute.", ge=0
    )
    for_namespace: int = Field(
        default=120, description="The most pods that are evicted in a minute for pods of one namespace.", ge=0
    )


class SchedulingGateSettings(Section):
    """Pods with the scheduling gate dra-extender.dev/turn are tried in fair turns of their namespaces."""

    enabled: bool = Field(
        default=False, description="Lift the gate. It needs the right to patch pods, and the policy that adds the gate."
    )
    most_lifted: int = Field(
        default=256,
        description="The most pods without the gate that were neither bound nor rejected yet; namespaces share.",
        ge=1,
    )
    most_hopeless: int = Field(
        default=64,
        description="The most of them that no node takes, with those that were rejected: preemption and autoscalers "
        "see no more than these; namespaces share.",
        ge=1,
    )


class AdmissionCheckSettings(Section):
    """Jobs of Kueue are admitted once there are devices for all of their pods."""

    enabled: bool = Field(
        default=False,
        description="Answer AdmissionChecks of Kueue whose controllerName is dra-extender.dev/devices. It needs rights "
        "to Kueue's kinds.",
    )
    keep_seconds: int = Field(
        default=60,
        description="How long other jobs of Kueue leave devices to a job that was told they are there, until all of "
        "its pods have come.",
        ge=1,
        le=3600,
    )
    give_back_seconds: int = Field(
        default=0,
        description="A job that has waited for devices for so long gives its quota of Kueue back, and "
        "queues behind others. 0: never.",
        ge=0,
    )


class SchedulingSettings(Section):
    """Settings for deciding pods."""

    policy: Annotated[str, AfterValidator(_policy)] = Field(
        default="fragmentation", description=f"Which devices to prefer: {', '.join(sorted(POLICIES))}."
    )
    shapes: list[ShapeSettings] = Field(
        default_factory=list,
        description="What pods ask for, for the policy fragmentation; empty: it is learned from pods.",
    )
    cpu_of_all_pods: bool = Field(
        default=True, description="Count the CPU of pods without devices, too, for the policy fragmentation."
    )
    deadline_seconds: float = Field(
        default=4.0, description="Time for one verb; less than the scheduler's httpTimeout (5 s by default).", gt=0
    )
    max_steps: int = Field(default=100_000, description="Devices tried for one pod on one node before giving up.", ge=1)
    max_seconds: float = Field(default=1.0, description="Time for one pod on one node before giving up.", gt=0)
    binding_timeout_seconds: float = Field(
        default=600.0,
        description="How long a claim may wait for binding conditions of its devices, after its allocation.",
        ge=1,
    )
    preemption: bool = Field(
        default=True,
        description="Evict pods of lower priority for a pod that fits nowhere for want of devices.",
    )
    pod_condition: bool = Field(
        default=True,
        description="Write on pods that wait the condition dra-extender/DevicesAllocated, which says why, a minute "
        "after their Event. Each write makes their scheduler try them once more.",
    )
    scheduler_names: Annotated[list[str], AfterValidator(_schedulers)] = Field(
        default_factory=list,
        description="Names of the schedulers that call this service, as in spec.schedulerName; empty: not known.",
    )
    scheduler_file: str = Field(
        default="",
        description="File with the configuration of the kube-scheduler beside it, which /problems checks; empty: none.",
    )
    marked_pods_only: bool = Field(
        default=False,
        description="The schedulers have managedResources: they ask only about pods with dra-extender.dev/devices.",
    )
    best_nodes: int | None = Field(
        default=None,
        description="Most nodes in an answer, the best ones; null: as many as kube-scheduler scores; 0: all.",
        ge=0,
    )

    @property
    def counts_cpu(self) -> bool:
        """Whether the CPU that pods with devices request is counted."""
        return POLICIES[self.policy].weighs_leftover

    def most_nodes(self, asked: int) -> int:
        """The most nodes that an answer names; ``asked``: number of nodes in the call.

        The default is kube-scheduler's own number of nodes to score.
        """
        if self.best_nodes is not None:
            return self.best_nodes or asked
        percentage = max(5, 50 - asked // 125)
        return min(asked, max(100, asked * percentage // 100))


class AutoscalerSettings(Section):
    """Limits for autoscalers, and where the devices of nodes that do not exist yet are described."""

    node_templates: str = Field(
        default="",
        description="File that describes the devices of new nodes, such as config/node-templates.yaml; empty: none.",
    )
    learn_from_label: Annotated[str, AfterValidator(_label)] = Field(
        default="",
        description="Label that names a node's group: a new node gets the devices of its group's nodes; empty: off.",
    )
    daemon_set_drivers: Annotated[dict[str, list[str]], AfterValidator(_daemon_set_drivers)] = Field(
        default_factory=dict,
        description="Drivers of DaemonSets without the annotation dra-extender.dev/drivers, by namespace/name.",
    )
    publish_seconds: float = Field(
        default=300.0,
        description="Time of drivers to publish on a new node, if it is not known which drivers it should have.",
        ge=0,
    )
    deadline_seconds: float = Field(default=30.0, description="Time for one verb.", gt=0)
    sessions: int = Field(
        default=8, description="How many sessions are kept; the least recently used goes first.", ge=1
    )
    session_seconds: float = Field(default=600.0, description="A session ends this long after its start.", gt=0)
    session_bytes: int = Field(
        default=256 * 1024 * 1024, description="Memory of all sessions together, about.", ge=1024 * 1024
    )


class PeersSettings(Section):
    """The other replicas. A call about a session that another replica has is passed on to it, over its `api` port."""

    server_name: str = Field(
        default="", description="The name of all replicas in their certificates; empty: no call is passed on."
    )
    pod: Annotated[str, AfterValidator(_pod)] = Field(
        default="", description="This replica's pod, as namespace/name; the ids of sessions name it."
    )
    ca: str = Field(default="", description="File of the authorities that issue the replicas' certificates, in PEM.")
    token: str = Field(
        default="/var/run/secrets/kubernetes.io/serviceaccount/token",
        description="File of a token of the replicas' service account.",
    )


class GrpcSettings(TlsSettings):
    """A port for Cluster Autoscaler's gRPC expander, which calls only with TLS; needs the extra ``grpc``.

    With an authority for clients, each client needs a certificate. Cluster Autoscaler has none, so it needs
    ``anonymous``, and a network policy that lets only its pods reach the port.
    """

    host: Annotated[str, AfterValidator(_host)] = Field(
        default="0.0.0.0", description="Address to listen on.", min_length=1
    )
    port: int = Field(default=0, description="Port to listen on; 0: no gRPC.", ge=0, le=65535)
    anonymous: bool = Field(default=False, description="Answer clients off the node that show no certificate.")


class TracingSettings(Section):
    """Settings for traces; they need the extra ``opentelemetry``. OpenTelemetry's own variables apply as well."""

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


class UsageSettings(Section):
    """The Prometheus that scrapes the replicas: a replica that starts reads the last day of usage there."""

    prometheus: Annotated[str, AfterValidator(_url)] = Field(
        default="", description="Its URL, such as http://prometheus.monitoring:9090; empty: none is read."
    )
    token: str = Field(default="", description="File of a token that we send; empty: none.")
    ca: str = Field(default="", description="File of the authorities of its certificate, in PEM; empty: the system's.")
    selector: Annotated[str, AfterValidator(_matchers)] = Field(
        default="",
        description='Matchers that tell the metrics of this cluster apart, such as cluster="east"; empty: all metrics.',
    )
    grafana: Annotated[str, AfterValidator(_url)] = Field(
        default="", description="URL of a board in Grafana, to which the console leads; empty: to none."
    )


class Settings(Section):
    """All settings of the service."""

    server: ServerSettings = ServerSettings()
    operations: OperationsSettings = OperationsSettings()
    api: ApiSettings = ApiSettings()
    cluster: ClusterSettings = ClusterSettings()
    memory: MemorySettings = MemorySettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    scheduling_gates: SchedulingGateSettings = SchedulingGateSettings()
    admission_checks: AdmissionCheckSettings = AdmissionCheckSettings()
    evictions: EvictionSettings = EvictionSettings()
    autoscaler: AutoscalerSettings = AutoscalerSettings()
    peers: PeersSettings = PeersSettings()
    grpc: GrpcSettings = GrpcSettings()
    log: LogSettings = LogSettings()
    tracing: TracingSettings = TracingSettings()
    usage: UsageSettings = UsageSettings()
    controllers: Annotated[list[ControllerSettings], AfterValidator(distinct)] = Field(
        default_factory=list, description="Controllers of negotiated claims, which device classes name."
    )
    feature_gates: Annotated[dict[str, bool], AfterValidator(_gates)] = Field(
        default_factory=dict,
        description="Kubernetes' DRA feature gates; a gate that is not named is as on the API server.",
    )

    @property
    def features(self) -> Features:
        """The allocator's features with the gates applied."""
        return with_gates(Features(), self.feature_gates)

    def over(self, gates: Mapping[str, bool]) -> "Settings":
        """The same settings, with a value for each of these feature gates that the settings do not name."""
        return self.model_copy(update={"feature_gates": {**gates, **self.feature_gates}})

    def as_yaml(self) -> str:
        """The settings as the text of a settings file."""
        return yaml.safe_dump(self.model_dump(by_alias=True, mode="json"), sort_keys=False)
