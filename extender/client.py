"""A client for autoscalers and simulations, async and sync (httpx). It shares no code with the service.

A verb is written for asyncio: what it sends, how its answer is read, and how several sessions answer it as one. It
awaits nothing but calls. If the calls block, the code never gives up control, so it needs no event loop.

A new verb is a method of `SessionVerbs` and a line in `Session`. If several sessions can answer it together, it is
also a method of `AsyncJointSession` and a line in `JointSession`.

A call is a value: what is sent and answered, how the answer is read, and the errors of calls. Pods and Nodes are raw
API objects: JSON as kubectl prints it.
"""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from http import HTTPStatus
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeAlias, TypeVar

import httpx

__all__ = [
    "AddedNodes",
    "AsyncAutoscalerClient",
    "AsyncJointSession",
    "AsyncSession",
    "AutoscalerClient",
    "AutoscalerError",
    "Filtered",
    "JointSession",
    "NodeGroup",
    "Plan",
    "ProtocolError",
    "Readiness",
    "Session",
    "UnknownSessionError",
    "UnreachableError",
]

ApiObject: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Filtered:
    """The nodes that fit, by name in the order asked; and the other nodes, each with the reason."""

    passed: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether all slices of a node are published, and if not, why."""

    ready: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that can be added.

    Attributes:
        template: a Node as the group's next one will be; its allocatable is what is left for pods.
        limit: how many can be added.
        priority: for the expander "priority"; the highest goes first.
    """

    name: str
    template: ApiObject
    limit: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class AddedNodes:
    """Nodes to add of one group.

    Attributes:
        nodes: for each new node, its pods as namespace/name.
        devices: from where it is known what devices such a node has; empty: it is not known.
    """

    group: str
    nodes: tuple[tuple[str, ...], ...] = ()
    devices: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan: the nodes to add to each group of the call, and the pods that no group helps, each with the reason."""

    groups: tuple[AddedNodes, ...]
    failed: Mapping[str, str] = field(default_factory=dict)


UNKNOWN_SESSION: Final = "UnknownSession"
TOO_LARGE: Final = "SessionTooLarge"


class AutoscalerError(Exception):
    """The service did not do what was asked; its own text says why.

    Attributes:
        code: identifies the error for programs; empty for errors that are for people only.
    """

    def __init__(self, message: str, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class UnknownSessionError(AutoscalerError):
    """The session is gone: expired, dropped, or lost in a restart of the service. Start another one."""


class UnreachableError(AutoscalerError):
    """The service could not be reached, or did not answer in time: the outcome of the call is unknown."""


class ProtocolError(AutoscalerError):
    """The answer is not from the service, or from another version of it."""


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Call(Generic[_T]):
    """A verb, the body of the request, and what the reply's JSON means."""

    verb: str
    body: ApiObject
    read: Callable[[Any], _T]

    @property
    def path(self) -> str:
        """Path of the URL."""
        return f"/autoscaler/{self.verb}"

    def headers(self, session_id: str | None) -> dict[str, str]:
        """Headers that name the session."""
        return {} if session_id is None else {"session": session_id}

    def unreachable(self, url: object, error: Exception) -> UnreachableError:
        """The error for a call without an answer."""
        return UnreachableError(f"{self.verb}: {url}: {str(error) or type(error).__name__}")

    def answer(self, status: int, content: bytes) -> _T:
        """The value of a reply.

        Raises:
            UnknownSessionError: the session is gone.
            AutoscalerError: the service refuses, and why.
            ProtocolError: this is no reply of the service.
        """
        try:
            reply = json.loads(content)
            if isinstance(reply, dict) and isinstance(error := reply.get("Error"), str) and error:
                code = str(reply.get("Code", ""))
                gone = code in {UNKNOWN_SESSION, TOO_LARGE}
                raise UnknownSessionError(error, code) if gone else AutoscalerError(error, code)
            if isinstance(reply, dict) and reply.get("kind") == "Status":
                raise AutoscalerError(f"{self.verb}: {reply['message']}", str(reply["reason"]))
            if status != HTTPStatus.OK:
                raise ProtocolError(f"{self.verb}: status {status}: {_shown(content)}")
            return self.read(reply)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProtocolError(
                f"{self.verb}: status {status}, not an answer of the service: {_shown(content)}"
            ) from error


def _shown(content: bytes) -> str:
    text = content[:200].decode(errors="replace").strip()
    return text or "an empty body"


_P = ParamSpec("_P")
_Verbs = TypeVar("_Verbs")


class Blocking(Generic[_Verbs]):
    """A session that blocks.

    Attributes:
        verbs: what the session can be asked, written for asyncio, over calls that block.
    """

    def __init__(self, verbs: _Verbs) -> None:
        self.verbs = verbs


def blocking(
    verb: Callable[Concatenate[_Verbs, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Blocking[_Verbs], _P], _T]:
    """A verb as a method of a session that blocks."""

    @wraps(verb)
    def method(self: Blocking[_Verbs], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        work = verb(self.verbs, *args, **kwargs)
        while True:
            try:
                work.send(None)
            except StopIteration as end:
                answer: _T = end.value
                return answer

    return method


_Reply: TypeAlias = "dict[str, Any]"


def start(drivers: Iterable[str] | None = None, *, whole_pods: bool = False) -> Call[str]:
    """The id of a new session, which judges some drivers; None: all.

    Args:
        drivers: the drivers.
        whole_pods: it also checks what kube-scheduler's default filters check, except volumes.
    """
    body = {**({} if drivers is None else {"Drivers": list(drivers)}), **({"WholePods": True} if whole_pods else {})}
    return Call("start", body, lambda reply: _text(reply["Session"]))


class SessionVerbs(ABC):
    """The verbs of a session."""

    @abstractmethod
    async def call(self, call: Call[_T]) -> _T:
        """Make a call."""

    async def filter(self, pod: ApiObject, nodes: Iterable[ApiObject]) -> Filtered:
        """Which nodes, real or not, can have a pod, as far as its devices go."""

        def read(reply: _Reply) -> Filtered:
            names = tuple(node["metadata"]["name"] for node in reply["Nodes"]["items"])
            return Filtered(names, {**reply["FailedAndUnresolvableNodes"], **reply["FailedNodes"]})

        return await self.call(Call("filter", _question(pod, nodes), read))

    async def prioritize(self, pod: ApiObject, nodes: Iterable[ApiObject]) -> dict[str, int]:
        """The scores of nodes, 0 to 10, by name."""

        def read(reply: Iterable[_Reply]) -> dict[str, int]:
            return {each["Host"]: int(each["Score"]) for each in reply}

        return await self.call(Call("prioritize", _question(pod, nodes), read))

    async def book(self, pod: ApiObject, node: ApiObject) -> None:
        """Hold the pod's devices on a node for the rest of the session; needs a session."""
        await self.call(Call("NodeSelected", {"Pod": pod, "Node": node}, lambda reply: reply.get("Error")))

    async def node_ready(self, name: str) -> Readiness:
        """Whether all slices of a node are published."""

        def read(reply: _Reply) -> Readiness:
            return Readiness(reply["Ready"], reply.get("Reason", ""))

        return await self.call(Call("NodeReady", {"NodeName": name}, read))

    async def estimate(
        self, pods: Iterable[ApiObject], groups: Iterable[NodeGroup], *, expander: str = "least-waste"
    ) -> Plan:
        """The number of nodes to add to each group for pods that fit on no existing node. Nothing is booked."""
        entries = [
            {"Name": each.name, "Template": each.template, "Limit": each.limit, "Priority": each.priority}
            for each in groups
        ]
        body = {"Pods": {"items": list(pods)}, "NodeGroups": entries, "Expander": expander}

        def read(reply: _Reply) -> Plan:
            return Plan(tuple(map(_added, reply["NodeGroups"])), dict(reply["FailedPods"]))

        return await self.call(Call("estimate", body, read))


class AsyncSession(SessionVerbs):
    """The asyncio variant of `Session`."""

    def __init__(self, http: httpx.AsyncClient, session_id: str | None = None) -> None:
        self._http = http
        self.id = session_id

    async def call(self, call: Call[_T]) -> _T:
        """Make a call."""
        try:
            reply = await self._http.post(call.path, json=call.body, headers=call.headers(self.id))
        except httpx.HTTPError as error:
            raise call.unreachable(self._http.base_url, error) from error
        return call.answer(reply.status_code, reply.content)


class AsyncJointSession:
    """The asyncio variant of `JointSession`."""

    def __init__(self, sessions: Iterable[SessionVerbs]) -> None:
        self._sessions = tuple(sessions)

    async def filter(self, pod: ApiObject, nodes: Iterable[ApiObject]) -> Filtered:
        """The nodes that suit in all sessions. A node that one session refuses is not asked about in the next."""
        left, failed = list(nodes), dict[str, str]()
        for session in self._sessions:
            found = await session.filter(pod, left)
            passed = set(found.passed)
            left = [node for node in left if _name(node) in passed]
            failed.update(found.failed)
        return Filtered(tuple(map(_name, left)), failed)

    async def prioritize(self, pod: ApiObject, nodes: Iterable[ApiObject]) -> dict[str, int]:
        """The sum of the scores of all sessions, by node."""
        asked, scores = list(nodes), Counter[str]()
        for session in self._sessions:
            scores.update(await session.prioritize(pod, asked))
        return dict(scores)

    async def book(self, pod: ApiObject, node: ApiObject) -> None:
        """Book a pod in all sessions, if all of them take it on the node; otherwise in none.

        Raises:
            AutoscalerError: a session does not take the pod.
        """
        for name, reason in (await self.filter(pod, [node])).failed.items():
            raise AutoscalerError(f"pod {_name(pod)} can't be booked on node {name}: {reason}")
        for session in self._sessions:
            await session.book(pod, node)

    async def node_ready(self, name: str) -> Readiness:
        """Whether a node is ready in all sessions; if not, the reason of the first session in which it is not."""
        found = [await session.node_ready(name) for session in self._sessions]
        return next((each for each in found if not each.ready), Readiness(ready=True))


class _OverBlockingCalls(SessionVerbs):
    """The verbs of a session whose calls block."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    async def call(self, call: Call[_T]) -> _T:
        return self._session.call(call)


class Session(Blocking[SessionVerbs]):
    """Calls within a session or, without an id, about the cluster as it is at each call.

    All methods raise AutoscalerError: UnknownSessionError if the session is gone, UnreachableError if nothing answers,
    ProtocolError if something else than the service answers.
    """

    def __init__(self, http: httpx.Client, session_id: str | None = None) -> None:
        super().__init__(_OverBlockingCalls(self))
        self._http = http
        self.id = session_id

    filter = blocking(SessionVerbs.filter)
    prioritize = blocking(SessionVerbs.prioritize)
    book = blocking(SessionVerbs.book)
    node_ready = blocking(SessionVerbs.node_ready)
    estimate = blocking(SessionVerbs.estimate)

    def call(self, call: Call[_T]) -> _T:
        """Make a call."""
        try:
            reply = self._http.post(call.path, json=call.body, headers=call.headers(self.id))
        except httpx.HTTPError as error:
            raise call.unreachable(self._http.base_url, error) from error
        return call.answer(reply.status_code, reply.content)


class JointSession(Blocking[AsyncJointSession]):
    """Several sessions as one: each service judges its own drivers, and a node has to suit all of them (KEP-3063).

    Errors are those of `Session`.

    Args:
        sessions: of one cycle, in the order in which they are asked. Each judges other drivers.
    """

    def __init__(self, sessions: Iterable[Session]) -> None:
        super().__init__(AsyncJointSession(each.verbs for each in sessions))

    filter = blocking(AsyncJointSession.filter)
    prioritize = blocking(AsyncJointSession.prioritize)
    book = blocking(AsyncJointSession.book)
    node_ready = blocking(AsyncJointSession.node_ready)


def _added(entry: _Reply) -> AddedNodes:
    return AddedNodes(entry["Name"], tuple(tuple(node["Pods"]) for node in entry["Nodes"]), entry["Devices"])


def _question(pod: ApiObject, nodes: Iterable[ApiObject]) -> ApiObject:
    return {"Pod": pod, "Nodes": {"items": list(nodes)}, "NodeNames": None}


def _name(obj: ApiObject) -> str:
    return str(obj["metadata"]["name"])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


TIMEOUT_SECONDS: Final = 60.0
"""Longer than the service's own limit, so that the service ends a call first and says why."""


class AutoscalerClient:
    """The service at an address.

    Args:
        http: a client whose base URL is the service's; it is closed with this one.
    """

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.latest = Session(http)

    @classmethod
    def at(cls, url: str) -> "AutoscalerClient":
        """The service at a URL, such as ``http://127.0.0.1:8888``."""
        return cls(httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS))

    def start(self, drivers: Iterable[str] | None = None, *, whole_pods: bool = False) -> Session:
        """A session on the cluster as it is now; the arguments are those of `start`."""
        return Session(self._http, self.latest.call(start(drivers, whole_pods=whole_pods)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()


class AsyncAutoscalerClient:
    """The asyncio variant of `AutoscalerClient`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.latest = AsyncSession(http)

    @classmethod
    def at(cls, url: str) -> "AsyncAutoscalerClient":
        """The service at a URL, such as ``http://127.0.0.1:8888``."""
        return cls(httpx.AsyncClient(base_url=url, timeout=TIMEOUT_SECONDS))

    async def start(self, drivers: Iterable[str] | None = None, *, whole_pods: bool = False) -> AsyncSession:
        """A session on the cluster as it is now; the arguments are those of `start`."""
        session_id = await self.latest.call(start(drivers, whole_pods=whole_pods))
        return AsyncSession(self._http, session_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()
