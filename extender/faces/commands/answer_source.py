"""Sources of answers to a command: the leader through the API server, a URL, or this process."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import httpx
import typer

from extender.cluster.live import connect
from extender.config.settings import Settings
from extender.faces.commands.options import ConfigOption, Kubeconfig, KubeconfigOptions, OptionGroup
from extender.faces.commands.output import fail, note, warn
from extender.faces.commands.port_forward import Tunnel, forward, pod_path
from extender.faces.commands.reading import EXPLAINED, settings_of, settings_on
from extender.faces.commands.remote import Remote, RemoteError, RemoteOptions, document
from extender.kube.api import ApiError, ConnectError, ObjectKey, OutcomeUnknownError, RawObject, key_of
from extender.kube.connection.connection import ApiConnection, open_connection
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.connection.kubeconfig import choose
from extender.kube.connection.transport import decoded
from extender.kube.discovery import discover
from extender.kube.permissions import Permission, denied
from extender.kube.remote import RemoteApi
from extender.kube.resources import LEASES, PODS
from extender.tools.logs import log_quietly
from extender.tools.user_error import UserError

_DEFAULT_NAMESPACE: Final = "default"
_ACCOUNT_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""In a pod, the namespace of its account."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place where a command looks.

    Attributes:
        origin: of the address and the credentials of the API server; None: a URL of the service is given instead.
        namespace: of the objects that are named; empty: all namespaces.
        service_namespace: of the pods of dra-extender.
        service_port: of dra-extender in its pods.
        remote: the service, if its URL is given.
        settings: for what is computed here.
        is_local: no service is asked.
    """

    origin: Origin | None
    namespace: str = _DEFAULT_NAMESPACE
    service_namespace: str = "kube-system"
    service_port: int = 8888
    remote: Remote | None = None
    settings: Settings = field(default_factory=Settings)
    is_local: bool = False


class _Service(NamedTuple):
    """Whether a service is asked, and where it is."""

    namespace: str
    port: int
    is_local: bool
    remote: Remote | None

    @property
    def is_given(self) -> bool:
        """A URL is given."""
        return self.remote is not None


def _service_options(
    *,
    service_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="The namespace of the pods of dra-extender.")
    ] = "kube-system",
    service_port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65535, help="The port of dra-extender in its pods.")
    ] = 8888,
    local: Annotated[
        bool, typer.Option("--local", help="Ask no service: compute from the objects of the API server.")
    ] = False,
    server: Annotated[
        str, typer.Option(metavar="URL", help="The service is here: no pod is looked for, and no port is forwarded.")
    ] = "",
    remote: RemoteOptions,
) -> _Service:
    remote = remote.at(server)
    if server and local:
        fail("--server and --local: only one of them")
    return _Service(service_namespace, service_port, local, remote if server else None)


_ServiceOptions = Annotated[_Service, OptionGroup(_service_options)]
_NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace; default: that of the context.")
]


def _place(
    *,
    namespace: _NamespaceOption = "",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")] = False,
    kubeconfig: KubeconfigOptions,
    config: ConfigOption = None,
    service: _ServiceOptions,
) -> Place:
    """The place by the options; ends the command if they contradict each other.

    Raises:
        RemoteError, SettingsError: options of the service or settings cannot be used.
        ConnectError: there is no kubeconfig.
    """
    if namespace and all_namespaces:
        fail("-n and -A: only one of them")
    found = _named_place(namespace=namespace, kubeconfig=kubeconfig, config=config, service=service)
    return replace(found, namespace="") if all_namespaces else found


def _named_place(
    *,
    namespace: _NamespaceOption = "",
    kubeconfig: KubeconfigOptions,
    config: ConfigOption = None,
    service: _ServiceOptions,
) -> Place:
    if service.is_given and kubeconfig.is_given:
        fail("--server needs no --kubeconfig and no --context")
    origin, own = (None, "") if service.is_given else _origin(kubeconfig)
    return Place(
        origin,
        namespace or own or _DEFAULT_NAMESPACE,
        service.namespace,
        service.port,
        service.remote,
        settings_of(config),
        service.is_local,
    )


class ClusterPlace(NamedTuple):
    """A live cluster, for a command that asks no service; the namespace of what is named without one."""

    origin: Origin
    namespace: str
    settings: Settings


def _cluster_place(
    *, namespace: _NamespaceOption = "", kubeconfig: KubeconfigOptions, config: ConfigOption = None
) -> ClusterPlace:
    origin, own = _origin(kubeconfig)
    return ClusterPlace(origin, namespace or own or _DEFAULT_NAMESPACE, settings_of(config))


def _origin(kubeconfig: Kubeconfig) -> tuple[Origin, str]:
    """The API server, and the namespace of the context."""
    origin = find_origin(*kubeconfig, os.environ)
    if origin.files:
        return origin, choose(origin.files, origin.context).namespace
    return origin, _ACCOUNT_NAMESPACE.read_text().strip() if _ACCOUNT_NAMESPACE.exists() else ""


PlaceOptions = Annotated[Place, OptionGroup(_place)]
NamedPlaceOptions = Annotated[Place, OptionGroup(_named_place)]
"""For commands about one object: it is in one namespace."""
ClusterPlaceOptions = Annotated[ClusterPlace, OptionGroup(_cluster_place)]


_SECONDS: Final = 60.0
_LISTING_SECONDS: Final = 10.0
"""Between two lists of all objects."""

_JSON: Final = {"accept": "application/json"}

_T = TypeVar("_T")

Query = Mapping[str, str | Sequence[str]]
Get = Callable[[str, Query], Awaitable[Mapping[str, Any]]]
Post = Callable[[str, bytes], Awaitable[Mapping[str, Any]]]

_LABEL: Final = "app.kubernetes.io/name=dra-extender"
_LEASE: Final = "dra-scheduler"
"""The lease of the schedulers beside dra-extender (config/scheduler.yaml)."""


class NoServiceError(Exception):
    """There is no pod of dra-extender that this user can ask; the text says why."""


@dataclass(frozen=True, slots=True)
class ServicePod:
    """A pod of dra-extender.

    Attributes:
        warning: why its answers may be less than those of the leader; empty: it leads.
    """

    key: ObjectKey
    warning: str = ""


async def find_pod(api: RemoteApi, namespace: str) -> ServicePod:
    """The pod whose scheduler leads; else one that is ready.

    Raises:
        NoServiceError: there is none, or a right is missing.
        ApiError, OutcomeUnknownError: the API server does not tell.
    """
    needed = (
        Permission("list", PODS, namespace=namespace),
        Permission("get", PODS, "portforward", namespace),
        Permission("create", PODS, "portforward", namespace),
    )
    if lacking := await denied(api.transport, needed):
        raise NoServiceError(f"you may not: {', '.join(map(str, lacking))}")
    path = api.served.path(PODS, ObjectKey(namespace, ""))
    found = await api.read_page(path, {"labelSelector": _LABEL}, decoded)
    ready = sorted(key_of(pod) for pod in found.get("items") or () if _is_ready(pod))
    if not ready:
        seen = f"{len(found['items'])} with the label, none of them ready" if found.get("items") else "none"
        raise NoServiceError(f"no ready pod with the label {_LABEL} in namespace {namespace} ({seen})")
    holder, problem = await _holder(api, namespace)
    for key in ready:
        if holder.rpartition("_")[0] == key.name:
            return ServicePod(key)
    why = problem or f"the leader {holder.rpartition('_')[0]} is not among the ready pods"
    return ServicePod(
        ready[0], f"{ready[0]} answers, which may not lead: {why}; reasons of waiting pods may be missing"
    )


async def _holder(api: RemoteApi, namespace: str) -> tuple[str, str]:
    """Who holds the lease of the schedulers, or why that is not known."""
    try:
        lease = await api.get(LEASES, ObjectKey(namespace, _LEASE))
    except ApiError as error:
        return "", f"lease {namespace}/{_LEASE}: {error}"
    holder: Any = (lease.get("spec") or {}).get("holderIdentity")
    return (holder, "") if holder else ("", f"nobody holds the lease {namespace}/{_LEASE}")


def _is_ready(pod: RawObject) -> bool:
    conditions: Iterable[RawObject] = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return is_ready and not pod["metadata"].get("deletionTimestamp")


class SourceError(UserError):
    """Nobody answers; each problem says why."""


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """Answers with the service's JSON.

    Attributes:
        name: who answers, for people.
        get: the document at a path with parameters; raises RemoteError: it is refused, or there is no answer.
        post: the answer of a path to a body in JSON; raises as `get`.
        refresh: to be called before the next answers are to be newer ones.
        has_decisions: the source has the decisions of a scheduler.
        seconds: the shortest time between two refreshes; a refresh may list all objects of the cluster.
    """

    name: str
    get: Get
    post: Post
    refresh: Callable[[], Awaitable[None]] = _nothing
    has_decisions: bool = True
    seconds: float = 2.0


def run(place: Place, ask: Callable[[AnswerSource], Awaitable[_T]]) -> _T:
    """Ask the source of a place.

    Raises:
        SourceError: nobody answers.
        RemoteError, ApiError, OutcomeUnknownError: there is no answer, or it is refused.
    """

    async def asked() -> _T:
        async with open_source(place) as source:
            return await ask(source)

    try:
        return asyncio.run(asked())
    except KeyboardInterrupt:
        raise SystemExit(130) from None


@asynccontextmanager
async def open_source(place: Place) -> AsyncIterator[AnswerSource]:
    """Who answers, within the context.

    Raises:
        SourceError: nobody does.
    """
    log_quietly()
    async with AsyncExitStack() as stack:
        yield await _source(place, stack)


async def _source(place: Place, stack: AsyncExitStack) -> AnswerSource:
    remote, origin = place.remote, place.origin
    if remote is not None:
        return AnswerSource(
            remote.url,
            lambda path, query: asyncio.to_thread(remote.get, path, _lists(query)),
            lambda path, body: asyncio.to_thread(remote.post, path, body),
        )
    if origin is None:
        raise SourceError("no API server and no service is named")
    why = ""
    if not place.is_local:
        try:
            return await _service(place, origin, stack)
        except ConnectError as error:
            raise SourceError(*error.problems) from error
        except (NoServiceError, RemoteError) as error:
            why = str(error)
    try:
        source = await _computed(place, origin, stack)
    except ConnectError as error:
        raise SourceError(*([f"the service is not asked: {why}"] if why else []), *error.problems) from error
    except (ApiError, OutcomeUnknownError) as error:
        raise SourceError(str(error)) from error
    if why:
        note(f"no service answers, so this is computed here: {why}")
    return source


async def _service(place: Place, origin: Origin, stack: AsyncExitStack) -> AnswerSource:
    """The leader.

    Raises:
        ConnectError: the API server cannot be used.
        NoServiceError, RemoteError: no pod of the service can be asked.
    """
    connection = await stack.enter_async_context(open_connection(origin))
    try:
        api = RemoteApi(connection, await discover(connection), random=random.random)
        pod = await find_pod(api, place.service_namespace)
    except (ApiError, OutcomeUnknownError) as error:
        raise ConnectError(f"{connection.url}: {error}") from error
    fresh = asyncio.create_task(connection.keep_fresh(), name="keep credentials fresh")
    stack.callback(fresh.cancel)
    source = await stack.enter_async_context(tunneled(connection, pod, place.service_port))
    index = await source.get("/", {})
    if index.get("name") != "dra-extender":
        raise RemoteError(f"pod {pod.key}, port {place.service_port}: the program there is not dra-extender")
    if pod.warning:
        warn(pod.warning)
    return source


@asynccontextmanager
async def tunneled(connection: ApiConnection, pod: ServicePod, port: int) -> AsyncIterator[AnswerSource]:
    """A pod of the service."""
    dial = partial(forward, connection, pod_path(pod.key), port)
    name = f"pod {pod.key}"
    async with httpx.AsyncClient(transport=Tunnel(dial), base_url=f"http://127.0.0.1:{port}", timeout=_SECONDS) as http:
        yield AnswerSource(name, partial(_get, http, name), partial(_post, http, name))


async def _computed(place: Place, origin: Origin, stack: AsyncExitStack) -> AnswerSource:
    """The service in this process.

    Raises:
        ConnectError: the API server cannot be used, or a right is missing.
        ApiError, OutcomeUnknownError: objects cannot be read.
    """
    cluster = await stack.enter_async_context(connect(origin, random=random.random, listing=EXPLAINED))
    service = import_module(
        "extender.faces.commands.computed_service"
    )  # brings all of the service, which few commands need
    found = service.ComputedService(cluster.api, await settings_on(cluster.api, place.settings))
    stack.push_async_callback(found.close)
    await found.refresh()
    return AnswerSource(
        "this process",
        partial(_get, found.http, ""),
        partial(_post, found.http, ""),
        found.refresh,
        has_decisions=False,
        seconds=_LISTING_SECONDS,
    )


async def _get(http: httpx.AsyncClient, name: str, path: str, query: Query) -> Mapping[str, Any]:
    """A document; a part of the path that is a name is quoted already."""
    return await _answer(name, path, http.get(path, params=_lists(query), headers=_JSON))


async def _post(http: httpx.AsyncClient, name: str, path: str, body: bytes) -> Mapping[str, Any]:
    return await _answer(name, path, http.post(path, content=body, headers=_JSON))


async def _answer(name: str, path: str, asking: Awaitable[httpx.Response]) -> Mapping[str, Any]:
    try:
        response = await asking
    except httpx.HTTPError as error:
        raise RemoteError(f"{name}: {str(error) or type(error).__name__}") from error
    return document(f"{name}: {path}" if name else path, response)


def _lists(query: Query) -> dict[str, Sequence[str]]:
    return {name: [value] if isinstance(value, str) else value for name, value in query.items()}
