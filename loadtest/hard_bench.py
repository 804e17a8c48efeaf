"""How long easy calls wait while others ask for pods whose search comes to no end.

``python -m loadtest.hard_bench``: the service as ``dra-extender serve`` starts it, over an API server in another
process; 1,000 nodes of 8 devices, and one with 24 on which some claims can't be told to fit or not: their search ends
at its limits. A scheduler filters and binds one easy pod after the other, 20 a second, and ``/livez`` is asked 100
times a second: first alone, then beside callers that filter and bind a hard pod each, again and again. What counts is
the 99th percentile beside them, over that alone.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from loadtest.latency_bench import Connections, at_rate
from loadtest.stage import Stage, request, stage, verb
from tests.kit.measure import machine, percentile
from tests.kit.objects.parts import DRIVER, api_object, claim_spec, exactly, slice_spec
from tests.kit.objects.worlds import NAMESPACE, RawObject, waiting_pod

_NODES: Final = 1000
_EASY_A_SECOND: Final = 20
_LIVEZ_A_SECOND: Final = 100
_HARD_NODE: Final = "node-hard"
_HARD_DEVICES: Final = 24
_HARD_REQUESTS: Final = 11
"""A ring of an odd number, in which neighbours must differ in an attribute that has two values."""


def hard_objects(pods: int) -> Mapping[str, Sequence[RawObject]]:
    """The node, and pods whose claims have different shapes and do not fit there."""
    devices = [
        {"name": f"hard-{n}", "attributes": {"side": {"int": n % 2}, "number": {"int": n}}}
        for n in range(_HARD_DEVICES)
    ]
    spec = slice_spec(_HARD_NODE, devices, nodeName=_HARD_NODE)
    return {
        "hard node": [
            api_object("Node", _HARD_NODE, metadata={"uid": "uid-hard"}),
            api_object("ResourceSlice", "hard", metadata={"uid": "uid-hard-slice"}, spec=spec),
        ],
        "hard claims": [_hard_claim(number) for number in range(pods)],
        "hard pods": [waiting_pod(f"hard-{number}", f"hard-{number}") for number in range(pods)],
    }


def _hard_claim(number: int) -> RawObject:
    names = [f"request-{n}" for n in range(_HARD_REQUESTS)]
    other = f'device.attributes["{DRIVER}"].number != {{}} && {number} == {number}'
    requests = [exactly(name, DRIVER, 1, other.format(n)) for n, name in enumerate(names)]
    constraints = [
        {"requests": [name, names[(n + 1) % len(names)]], "distinctAttribute": f"{DRIVER}/side"}
        for n, name in enumerate(names)
    ]
    metadata = {"uid": f"uid-hard-claim-{number}"}
    spec = claim_spec(requests, constraints=constraints)
    return api_object("ResourceClaim", f"hard-{number}", namespace=NAMESPACE, metadata=metadata, spec=spec)


class Caller:
    """Calls the service, and notes how long each call takes.

    Attributes:
        seconds: by what was called, for each call.
        failures: answers to easy pods that are none.
        hard: answers to hard pods.
    """

    def __init__(self, on: Stage) -> None:
        self.seconds: dict[str, list[float]] = {"livez": [], "filter": [], "bind": []}
        self.failures: list[str] = []
        self.hard = 0
        self._names = on.names
        self._connections = Connections(on.service.port)

    async def livez(self, _: int) -> None:
        """Ask whether the process answers."""
        await self._timed("livez", request("GET", "/livez"))

    async def easy(self, pod: RawObject) -> None:
        """Filter and bind a pod."""
        found = await self._timed("filter", verb("filter", {"Pod": pod, "NodeNames": self._names}))
        nodes = orjson.loads(found).get("NodeNames")
        answer = await self._timed("bind", _bind(pod, nodes[0])) if nodes else found
        if not nodes or orjson.loads(answer):
            self.failures.append(answer[:200].decode())

    async def hard_filter(self, pod: RawObject) -> None:
        """Filter a pod again and again."""
        while True:
            await self._send(verb("filter", {"Pod": pod, "NodeNames": [_HARD_NODE]}))
            self.hard += 1

    async def hard_bind(self, pod: RawObject) -> None:
        """Bind a pod again and again."""
        while True:
            await self._send(_bind(pod, _HARD_NODE))
            self.hard += 1

    async def _timed(self, name: str, sent: bytes) -> bytes:
        started = time.perf_counter()
        answer = await self._send(sent)
        self.seconds[name].append(time.perf_counter() - started)
        return answer

    async def _send(self, sent: bytes) -> bytes:
        async with self._connections.one() as connection:
            return await connection.send(sent)


def _bind(pod: RawObject, node: str) -> bytes:
    of = pod["metadata"]
    return verb("bind", {"PodName": of["name"], "PodNamespace": NAMESPACE, "PodUID": of["uid"], "Node": node})


async def measured(seconds: int, hard: int) -> tuple[Caller, Caller]:
    """Easy calls alone, and easy calls beside hard pods."""
    pods = (2 * seconds + 1) * _EASY_A_SECOND
    async with stage(_NODES, pods, hard_objects(hard)) as on:
        waiting = iter(on.objects["pods"])
        await _easy(Caller(on), waiting, 1)
        alone, beside = Caller(on), Caller(on)
        await _easy(alone, waiting, seconds)
        callers = (beside.hard_filter, beside.hard_bind)
        asking = [
            asyncio.create_task(callers[number % 2](pod)) for number, pod in zip(count(), on.objects["hard pods"])
        ]
        await _easy(beside, waiting, seconds)
        for each in asking:
            each.cancel()
        await asyncio.wait(asking)
    return alone, beside


async def _easy(caller: Caller, pods: Iterator[RawObject], seconds: int) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(at_rate(_LIVEZ_A_SECOND, seconds * _LIVEZ_A_SECOND, caller.livez))
        tasks.create_task(at_rate(_EASY_A_SECOND, seconds * _EASY_A_SECOND, lambda _: caller.easy(next(pods))))


def report(alone: Caller, beside: Caller) -> Table:
    """Percentiles and their ratios."""
    table = Table("ms", "calls", "alone p50", "p99", "max", "beside hard pods p50", "p99", "max", "p99 ratio")
    for name, values in alone.seconds.items():
        others = beside.seconds[name]
        figures = [percentile(each, percent) * 1e3 for each in (values, others) for percent in (50, 99, 100)]
        ratio = percentile(others, 99) / percentile(values, 99)
        table.add_row(name, f"{len(others):,}", *(f"{each:.1f}" for each in figures), f"{ratio:.1f}")
    failures = len(alone.failures) + len(beside.failures)
    table.caption = f"{beside.hard} hard calls answered meanwhile; {failures} failures of easy ones"
    return table


def main() -> None:
    """Measure and print; a failure of an easy call is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=15, help="for each of the two")
    parser.add_argument("--hard", type=int, default=6, help="hard pods")
    wanted = parser.parse_args()
    before = machine()
    alone, beside = uvloop.run(measured(wanted.seconds, wanted.hard))
    console = Console()
    console.print(report(alone, beside))
    console.print(f"before: {before}; after: {machine()}")
    failures = (*alone.failures, *beside.failures)
    for failure in failures[:10]:
        console.print(failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
