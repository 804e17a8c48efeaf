"""How long filter calls take while pods are bound and devices change.

``python -m loadtest.latency_bench``: the service as ``dra-extender serve`` starts it, over an API server in another
process, which it follows and writes to; 5,000 nodes of 8 devices. A scheduler asks for one pod after the other where
it can go, 50 times a second: filter, prioritize, and a bind that nobody waits for. Ten times a second a driver
publishes the devices of some node anew, with another attribute. What counts is the time of filter calls.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import uvloop
from rich.console import Console
from rich.table import Table

from loadtest.stage import Connection, Stage, asked_names, request, stage, verb
from tests.kit.measure import machine, percentile
from tests.kit.objects.worlds import NAMESPACE, RawObject

_NODES: Final = 5000
_PODS_A_SECOND: Final = 50
_SLICES_A_SECOND: Final = 10
_WARM_UP: Final = 100
"""Pods that do not count."""

_GOAL_SECONDS: Final = 0.020
_PERCENTILES: Final = (50, 95, 99, 100)


@dataclass(slots=True)
class Times:
    """Seconds that calls took, by what was called, and what went wrong."""

    of: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ("filter", "prioritize", "bind")})
    slices: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    computed: float = 0.0


class Connections:
    """As many connections to a port as are used at the same time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection]:
        """A connection that nobody else uses meanwhile."""
        connection = self._idle.pop() if self._idle else await Connection.to(self._port)
        yield connection
        self._idle.append(connection)


class Scheduler:
    """What kube-scheduler does with pods, as far as an extender sees it."""

    def __init__(self, on: Stage, times: Times) -> None:
        self._stage = on
        self._times = times
        self._connections = Connections(on.service.port)
        self._chance = random.Random(1)
        self._names = on.names

    async def run(self, pods: Sequence[RawObject], rate: int) -> None:
        """One pod after the other, at this rate per second; it ends after the last bind."""
        async with asyncio.TaskGroup() as binds:
            await at_rate(rate, len(pods), lambda number: self._schedule(pods[number], binds))

    async def _schedule(self, pod: RawObject, binds: asyncio.TaskGroup) -> None:
        asked = {"Pod": pod, "NodeNames": asked_names(self._names, self._chance.shuffle)}
        found = await self._call("filter", asked)
        if not found.get("NodeNames"):
            self._times.failures.append(f"filter: {str(found)[:200]}")
            return
        scores = await self._call("prioritize", {"Pod": pod, "NodeNames": found["NodeNames"]})
        most = max(each["Score"] for each in scores)
        node = self._chance.choice([each["Host"] for each in scores if each["Score"] == most])
        binds.create_task(self._bind(pod["metadata"], node))

    async def _bind(self, pod: RawObject, node: str) -> None:
        args = {"PodName": pod["name"], "PodNamespace": NAMESPACE, "PodUID": pod["uid"], "Node": node}
        answer = await self._call("bind", args)
        if answer:
            self._times.failures.append(f"bind: {answer}")

    async def _call(self, name: str, args: RawObject) -> Any:  # noqa: ANN401  # JSON
        sent = verb(name, args)
        async with self._connections.one() as connection:
            started = time.perf_counter()
            answer = await connection.send(sent)
            self._times.of[name].append(time.perf_counter() - started)
        return orjson.loads(answer)


class Driver:
    """Publishes devices."""

    def __init__(self, on: Stage, times: Times, connection: Connection) -> None:
        self._slices = on.objects["slices"]
        self._times = times
        self._connection = connection
        self._chance = random.Random(2)

    async def publish(self, number: int) -> None:
        """The devices of a node, with another version of the driver."""
        slice_ = self._chance.choice(self._slices)
        spec = slice_["spec"]
        spec["pool"]["generation"] += 1
        for device in spec["devices"]:
            device["attributes"]["driverVersion"] = {"version": f"551.0.{number}"}
        metadata = {name: value for name, value in slice_["metadata"].items() if name != "resourceVersion"}
        path = f"/apis/resource.k8s.io/v1/resourceslices/{metadata['name']}"
        await self._connection.send(request("PUT", path, slice_ | {"metadata": metadata}))
        self._times.slices += 1


async def at_rate(rate: int, times: int, work: Callable[[int], Awaitable[None]]) -> None:
    """Do something this number of times, at this rate per second; after a delay, the next calls come faster."""
    clock = asyncio.get_running_loop().time
    began = clock()
    for number in range(times):
        await asyncio.sleep(began + number / rate - clock())
        await work(number)


async def measured(pods: int) -> Times:
    """The times of this number of pods."""
    async with stage(_NODES, _WARM_UP + pods) as on:
        waiting = on.objects["pods"]
        await Scheduler(on, Times()).run(waiting[:_WARM_UP], _PODS_A_SECOND)
        times = Times()
        driver = Driver(on, times, await Connection.to(on.api.port))
        publishing = asyncio.create_task(at_rate(_SLICES_A_SECOND, sys.maxsize, driver.publish))
        began, computed = time.perf_counter(), on.service.computed()
        await Scheduler(on, times).run(waiting[_WARM_UP:], _PODS_A_SECOND)
        times.seconds, times.computed = time.perf_counter() - began, on.service.computed() - computed
        publishing.cancel()
        await asyncio.wait([publishing])
    return times


def report(times: Times) -> Table:
    """Percentiles, and what there was beside them."""
    rates = f"{len(times.of['bind']) / times.seconds:.1f} binds and {times.slices / times.seconds:.1f} slices a second"
    table = Table("ms", "calls", *(f"p{percent}" if percent < 100 else "max" for percent in _PERCENTILES), "p99 goal")
    for name, values in times.of.items():
        verdict = "met" if percentile(values, 99) < _GOAL_SECONDS else "MISSED"
        goal = f"{_GOAL_SECONDS * 1e3:.0f} {verdict}" if name == "filter" else ""
        figures = (f"{percentile(values, percent) * 1e3:.2f}" for percent in _PERCENTILES)
        table.add_row(name, f"{len(values):,}", *figures, goal)
    busy = f"the service computed {times.computed / times.seconds:.0%} of the time"
    table.caption = f"{rates}; {busy}; {len(times.failures)} failures"
    return table


def main() -> None:
    """Measure and print; a failure of any call is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1500)
    pods = parser.parse_args().pods
    before = machine()
    times = uvloop.run(measured(pods))
    console = Console()
    console.print(report(times))
    console.print(f"before: {before}; after: {machine()}")
    for failure in times.failures[:10]:
        console.print(failure)
    sys.exit(1 if times.failures else 0)


if __name__ == "__main__":
    main()
