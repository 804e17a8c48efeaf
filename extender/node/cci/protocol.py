"""The protocol of the CCI resource manager and its drivers (KEP-3675), as values and as messages.

The text leaves the resource handle open. Ours is JSON: ``cores``, the least number of CPUs; ``cpus``, the place of
each available CPU in the machine; and ``parameters``, those of the claim.

Drivers are called at their sockets.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from allocator import Problem
from allocator.tools import Fields, printable
from extender.kube.encoding import dumps, loads
from extender.node import cpu_list, sockets
from extender.node.driver import DriverParameters
from extender.node.topology import Cpu, cpu_of, entry_of

SERVICE: Final = "cci.v1alpha1.CCIDriver"
TYPE: Final = "CCIDriver"
VERSION: Final = "v1alpha1"

_LONGEST_ERROR: Final = 300


class CciError(Exception):
    """A driver has not done what it was asked, and why."""


class RefusedError(CciError):
    """A driver says no; the text is the reason, which the Event of the pod shows."""


@dataclass(frozen=True, slots=True)
class ClaimName:
    """A claim, as drivers know it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A container is about to be made: which CPUs of its claim does it get?

    Attributes:
        pod: the uid of the pod.
        container: name of the container.
        cores: the least number of CPUs: those that the container requests.
        available: the CPUs of the claim that it can have. Siblings are next to each other.
        parameters: of the claim and its class, for the driver.
    """

    claim: ClaimName
    pod: str
    container: str
    cores: int
    available: tuple[Cpu, ...]
    parameters: tuple[DriverParameters, ...] = ()

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the CPUs that are available."""
        return frozenset(each.number for each in self.available)


@dataclass(frozen=True, slots=True)
class Grant:
    """The CPUs of a container.

    Attributes:
        exclusive: whether other containers of the claim stay off them.
    """

    cpus: frozenset[int]
    exclusive: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """A container that was admitted is about to start.

    Attributes:
        cgroup: of the pod.
        pod: the uid of the pod.
        container: name of the container.
    """

    cgroup: str
    pod: str
    container: str
    container_id: str


@dataclass(frozen=True, slots=True)
class End:
    """A container has ended, or was not started after all."""

    claim: ClaimName
    container_id: str


def admit_request(ask: Ask) -> Any:  # noqa: ANN401  # messages
    """The message for an ask."""
    handle = {
        "cores": ask.cores,
        "cpus": [entry_of(each) for each in ask.available],
        "parameters": [{"requests": [*each.requests], "value": each.value} for each in ask.parameters],
    }
    return sockets.new_message(
        "AdmitRequest",
        namespace=ask.claim.namespace,
        claim_uid=ask.claim.uid,
        claim_name=ask.claim.name,
        availableCpus=cpu_list.render(ask.numbers),
        pod=ask.pod,
        container=ask.container,
        resource_handle=dumps(handle).decode(),
    )


def ask_of(request: Any) -> Ask:  # noqa: ANN401  # a message
    """The ask in a message. Raises ValueError: the handle is not one of `admit_request`."""
    handle, problems = loads(request.resource_handle.encode()), list[Problem]()
    fields = Fields(handle if isinstance(handle, dict) else {}, "resource_handle", problems)
    available = tuple(cpu_of(each) for each in fields.children("cpus"))
    parameters = tuple(
        DriverParameters(tuple(map(str, each.items("requests"))), each.child("value").data)
        for each in fields.children("parameters")
    )
    cores = fields.integer("cores")
    if problems or {each.number for each in available} != cpu_list.parse(request.availableCpus):
        raise ValueError("; ".join(map(str, problems)) or "resource_handle.cpus: are not the CPUs of availableCpus")
    claim = ClaimName(request.namespace, request.claim_name, request.claim_uid)
    return Ask(claim, request.pod, request.container, cores, available, parameters)


def refusal(text: str) -> RefusedError:
    """What a driver has written into a field ``err``."""
    return RefusedError(printable(text[:_LONGEST_ERROR]))


def grant_of(response: Any) -> Grant:  # noqa: ANN401  # a message
    """The grant in a response. Raises RefusedError: the driver says no. Raises ValueError: it is no list of CPUs."""
    if response.err:
        raise refusal(response.err)
    return Grant(cpu_list.parse(response.rSet.cpuset), response.rSet.exclusive)


def problem_of(grant: Grant, ask: Ask, taken: Iterable[tuple[str, frozenset[int]]]) -> str:
    """The problem with a grant; empty: nothing.

    Args:
        grant: what a driver has answered.
        ask: what it was asked.
        taken: containers with CPUs of which the grant can have none.
    """
    listed = cpu_list.render(grant.cpus)
    for container, cpus in taken:
        if both := grant.cpus & cpus:
            return f"gives CPU {min(both)}, which container {container} has"
    if unknown := grant.cpus - ask.numbers:
        return f"gives CPU {min(unknown)}, which was not available: {cpu_list.render(ask.numbers)} were"
    if len(grant.cpus) < ask.cores:
        return f"gives {len(grant.cpus)} CPUs ({listed or 'none'}), {ask.cores} were asked for"
    return ""


_WORDS: Final = {
    grpc.StatusCode.UNAVAILABLE: "does not run",
    grpc.StatusCode.DEADLINE_EXCEEDED: "does not answer in time",
    grpc.StatusCode.UNIMPLEMENTED: "does not know this call",
}


async def call(path: Path, method: str, request: Any, answer: str, seconds: float) -> Any:  # noqa: ANN401  # messages
    """One call. Each has a connection of its own, so a driver that comes back is reached at once.

    Args:
        path: the socket.
        method: with its service: ``service/method``.
        request: a message.
        answer: name of the message that comes back.
        seconds: how long it may take.

    Raises:
        CciError: it failed.
    """
    try:
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            data = await channel.unary_unary(f"/{method}")(request.SerializeToString(), timeout=seconds)
        return sockets.read_message(answer, data)
    except grpc.aio.AioRpcError as error:
        words = _WORDS.get(error.code(), error.details() or error.code().name)
        raise CciError(f"{method.rpartition('/')[2]}: {words}") from error
    except DecodeError as error:
        raise CciError(f"{method.rpartition('/')[2]}: the answer is no {answer}") from error


async def admit(path: Path, ask: Ask, seconds: float) -> Grant:
    """CCIAdmit. Raises RefusedError: the driver says no. Raises CciError: the call failed."""
    response = await call(path, f"{SERVICE}/CCIAdmit", admit_request(ask), "AdmitResponse", seconds)
    try:
        return grant_of(response)
    except ValueError as error:
        raise CciError(f"CCIAdmit: {error}") from error


async def add(path: Path, start: Start, seconds: float) -> None:
    """CCIAddContainerResource. Raises as `admit`."""
    request = sockets.new_message(
        "AddResourceRequest",
        cgroup=start.cgroup,
        pod=start.pod,
        container=start.container,
        container_id=start.container_id,
    )
    method = f"{SERVICE}/CCIAddContainerResource"
    _check(await call(path, method, request, "AddResourceResponse", seconds))


async def remove(path: Path, end: End, seconds: float) -> None:
    """CCIRemoveContainerResource. Raises as `admit`."""
    request = sockets.new_message(
        "RemoveResourceRequest",
        namespace=end.claim.namespace,
        claim_uid=end.claim.uid,
        claim_name=end.claim.name,
        container_id=end.container_id,
    )
    method = f"{SERVICE}/CCIRemoveContainerResource"
    _check(await call(path, method, request, "RemoveResourceResponse", seconds))


def claim_name(name: str, uid: str) -> ClaimName:
    """A claim by namespace and name, as the store has them."""
    namespace, _, own = name.partition("/")
    return ClaimName(namespace, own, uid)


def _check(response: Any) -> None:  # noqa: ANN401  # a message
    if response.err:
        raise refusal(response.err)
