"""What a filter call costs on the wire, beside an application that parses the same body and sends it back.

``python -m loadtest.wire_bench``: the service as ``dra-extender serve`` starts it, over HTTP on loopback, 5,000 nodes
(or ``--nodes``) of 8 devices, names alone. Filter and prioritize together are what kube-scheduler waits for in the
cycle of a pod; they are compared with one echo of what filter is sent. Subjects take turns, round by round; figures are
medians of the rounds' medians, and ratios medians of the rounds' ratios. "Computed" is what the server's process
computed, which other work disturbs less.
"""

import argparse
import asyncio
import random
import socket
import statistics
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import orjson
import uvicorn
import uvloop
from rich.console import Console
from rich.table import Table

from extender.config.settings import Settings
from extender.faces.http.connections import VERBS
from extender.faces.serving.listeners import server_config
from loadtest.stage import Connection, Process, Stage, asked_names, request, stage, verb
from tests.kit.measure import machine
from tests.kit.objects.worlds import NAMESPACE, Wish, pending_claim, waiting_pod
from tests.kit.process import free_port, printing

_TOGETHER: Final = {100: 0.0, 500: 2.5, 5000: 3.5}
"""By number of nodes, the goal for filter and prioritize together, as a multiple of echo; 0: it is in milliseconds."""

_PAUSE_SECONDS: Final = 0.01
"""Before each call: what was written to the API server gets to the service."""

_CLAIMS: Final = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"

_Message = MutableMapping[str, Any]
Requests = AsyncGenerator[bytes, bytes | None]
"""Requests, each after the answer to the one before."""


async def echo(
    scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[..., Awaitable[None]]
) -> None:
    """The application to compare with: reads JSON, sends it back as it came."""
    del scope
    chunks, more = [], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"".join(chunks)
    orjson.loads(body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds for a call: that passed for the client, and that the server's process computed."""

    passed: float
    computed: float


@dataclass(slots=True)
class Subject:
    """Who answers, and what is asked.

    Attributes:
        goal: the longest time, as a multiple of the echo's time; 0: there is none.
        in_a_row: how many requests count as one call.
        rounds: what each round found.
    """

    name: str
    server: Process
    connection: Connection
    requests: Requests
    goal: float = 0.0
    in_a_row: int = 1
    rounds: list[Spent] = field(default_factory=list)
    _answer: bytes | None = None

    async def round(self, calls: int) -> None:
        """Make this number of calls."""
        found = [await self._call() for _ in range(calls)]
        self.rounds.append(
            Spent(statistics.median(s.passed for s in found), statistics.median(s.computed for s in found))
        )

    async def _call(self) -> Spent:
        passed = computed = 0.0
        for number in range(self.in_a_row):
            request = await self.requests.asend(self._answer)
            if not number:
                await asyncio.sleep(_PAUSE_SECONDS)
            before, started = self.server.computed(), time.perf_counter()
            self._answer = await self.connection.send(request)
            passed += time.perf_counter() - started
            computed += self.server.computed() - before
        return Spent(passed, computed)


class Asked:
    """Requests to a stage."""

    def __init__(self, on: Stage, connection: Connection, api: Connection) -> None:
        self._connection = connection
        self._api = api
        self._names = on.names
        self._chance = random.Random(1)

    async def without_claims(self) -> Requests:
        """Pods that need nothing of us."""
        for number in count():
            yield self._filter(waiting_pod(f"plain-{number}"))

    async def with_claims(self) -> Requests:
        """Pods with a claim each; the one before gets its device, and is bound."""
        async for pod in self._new_pods("alone"):
            answer = yield self._filter(pod)
            if answer is not None:
                await self._bind(pod, self._chance.choice(orjson.loads(answer)["NodeNames"]))

    async def with_scores(self) -> Requests:
        """The same, with a request for scores after each that asks for nodes."""
        async for pod in self._new_pods("scored"):
            answer = yield self._filter(pod)
            names = orjson.loads(answer or b"{}")["NodeNames"]
            yield verb("prioritize", {"Pod": pod, "NodeNames": names})
            await self._bind(pod, self._chance.choice(names))

    async def _new_pods(self, kind: str) -> AsyncIterator[dict[str, Any]]:
        """Pods that have just been created, each with its claim: as a scheduler comes to them in its turn."""
        for number in count():
            name = f"{kind}-{number}"
            await self._api.send(request("POST", _CLAIMS, pending_claim(Wish(), name)))
            found: dict[str, Any] = orjson.loads(await self._api.send(request("POST", _PODS, waiting_pod(name, name))))
            yield found

    def _filter(self, pod: dict[str, Any]) -> bytes:
        return verb("filter", {"Pod": pod, "NodeNames": asked_names(self._names, self._chance.shuffle)})

    async def _bind(self, pod: dict[str, Any], node: str) -> None:
        """Bind a pod. It keeps waiting if a pod of another subject has taken the last device since filter was asked."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        args = {"PodName": name, "PodNamespace": NAMESPACE, "PodUID": uid, "Node": node}
        answer = orjson.loads(await self._connection.send(verb("bind", args)))
        if answer and "no free device" not in answer.get("Error", ""):
            raise RuntimeError(f"{name} is not bound: {answer}")


async def measured(nodes: int, rounds: int, calls: int) -> list[Subject]:
    """Everybody's rounds, after one that does not count."""
    port = free_port()
    command = [sys.executable, "-m", "loadtest.wire_bench", "--echo", str(port)]
    async with stage(nodes, 0) as on, printing(command) as (pid, output):
        await output.readline()
        echoing, service = await Connection.to(port), await Connection.to(on.service.port)
        asked = Asked(on, service, await Connection.to(on.api.port))
        subjects = [
            Subject("echo", Process(pid, port), echoing, asked.without_claims()),
            Subject("pod without claims", on.service, service, asked.without_claims(), goal=1.5),
            Subject("next pod with a claim", on.service, service, asked.with_claims(), goal=2.5),
            Subject(
                "the same, filter and prioritize",
                on.service,
                service,
                asked.with_scores(),
                goal=_TOGETHER.get(nodes, 0.0),
                in_a_row=2,
            ),
        ]
        for _ in range(rounds + 1):
            for subject in subjects:
                await subject.round(calls)
    for subject in subjects:
        del subject.rounds[0]
    return subjects


def report(subjects: Sequence[Subject], nodes: int) -> Table:
    """Times and ratios. What counts for a goal is the time that passes."""
    table = Table(f"filter, {nodes:,} names", "ms", "to echo", "goal", "computed, ms", "to echo")
    base = subjects[0]
    for each in subjects:
        passed, computed = ([getattr(r, name) for r in each.rounds] for name in ("passed", "computed"))
        of_passed, of_computed = (
            statistics.median(
                getattr(r, name) / getattr(b, name) for r, b in zip(each.rounds, base.rounds, strict=True)
            )
            for name in ("passed", "computed")
        )
        verdict = f"{each.goal}x {'met' if of_passed <= each.goal else 'MISSED'}" if each.goal else ""
        table.add_row(
            each.name,
            f"{statistics.median(passed) * 1e3:.2f}",
            f"{of_passed:.2f}x",
            verdict,
            f"{statistics.median(computed) * 1e3:.2f}",
            f"{of_computed:.2f}x",
        )
    return table


async def _echo(port: int) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    print(port, flush=True)
    await uvicorn.Server(server_config(echo, Settings(), VERBS)).serve(sockets=[listener])


def main() -> None:
    """Measure and print, or be what is compared with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=50, help="in a round, of each subject")
    parser.add_argument("--echo", type=int, metavar="PORT", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.echo:
        uvloop.run(_echo(arguments.echo))
        return
    before = machine()
    subjects = uvloop.run(measured(arguments.nodes, arguments.rounds, arguments.calls))
    Console().print(report(subjects, arguments.nodes))
    Console().print(f"before: {before}; after: {machine()}")


if __name__ == "__main__":
    main()
