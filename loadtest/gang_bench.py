"""What a large gang costs: filter and bind of its pods, and filter of other pods while devices are kept for it.

``python -m loadtest.gang_bench``: a service with its HTTP interface and its background tasks, without a network, over
an API server in memory. All figures are CPU time of the whole process: requests, the service, and the API server. The
same pods without a gang are the measure.
"""

import argparse
import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import structlog
from httpx import AsyncClient
from rich.console import Console
from rich.table import Table

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.config.settings import Settings
from extender.faces.assembly import make_extender, make_solver
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS
from tests.kit.clusters import GPU, Cluster, Object, app_over, asking, binding, claim, client_of, local_slice, node, pod
from tests.kit.measure import machine

_DEVICES: Final = 8
"""Of each node."""

_SPARE_NODES: Final = 16
_OTHERS: Final = 100
_PODS_A_TURN: Final = 10
"""Pods that start between two turns of the background tasks."""


@dataclass(slots=True)
class Figures:
    """Milliseconds of CPU time, for each pod."""

    starts: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    after_bind: list[float] = field(default_factory=list)
    first: float = 0.0


def nodes(size: int) -> Sequence[Object]:
    """The device class, and nodes with devices for a number of pods, and for some more."""
    names = [f"n{number:04}" for number in range(-(-size // _DEVICES) + _SPARE_NODES)]
    return [GPU, *(each for name in names for each in (node(name), local_slice(name, _DEVICES)))]


class Bench:
    """A scheduler that asks one thing after the other.

    Attributes:
        figures: what it has cost so far.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.figures = Figures()
        self._cluster = cluster
        extender = make_extender(cluster.api, cluster.state, make_solver(Settings()), Settings())
        self._service = extender.service
        self._client: AsyncClient = client_of(app_over(extender))
        self._names = sorted(cluster.state.snapshot.nodes)

    def make(self, name: str, gang_size: int = 0) -> None:
        """A pod with a claim comes into being. A pod that no scheduler asks about for long would be woken."""
        raw = pod(name, f"{name}-c")
        if gang_size:
            raw["metadata"]["annotations"] = {GROUP: "x", GROUP_SIZE: str(gang_size)}
        self._cluster.load(raw)
        self._cluster.load(claim(f"{name}-c"))

    async def filter(self, name: str) -> Sequence[str]:
        """The nodes that a pod may have."""
        raw = await self._cluster.api.get(PODS, ObjectKey("ns", name))
        reply = await self._client.post("/filter", json=asking(raw, *self._names))
        found: Sequence[str] = reply.raise_for_status().json()["NodeNames"] or ()
        return found

    async def start(self, name: str) -> None:
        """Filter and bind."""
        (first, *_) = await self.filter(name)
        reply = await self._client.post("/bind", json=binding(name, first))
        if error := reply.raise_for_status().json().get("Error"):
            raise RuntimeError(f"{name}: {error}")

    async def timed(self, name: str) -> float:
        """Milliseconds of a filter call."""
        began = time.process_time()
        await self.filter(name)
        return (time.process_time() - began) * 1e3

    async def run(self, size: int, *, is_gang: bool) -> AsyncIterator[None]:
        """The gang is planned, other pods are filtered, and all pods of the gang start; a step for each pod."""
        if is_gang:
            for number in range(size):
                self.make(f"x{number}", size)
            for number in range(size):
                await self.filter(f"x{number}")
            await self._service.background.tick()
            await asyncio.gather(*self._service.background.unfinished)
        for number in range(_OTHERS):
            self.make(f"o{number}")
        self.figures.first = await self.timed("o0")
        for number in range(1, _OTHERS):
            self.figures.others.append(await self.timed(f"o{number}"))
            yield
        for number in range(size):
            if not is_gang:
                self.make(f"x{number}")
            began = time.process_time()
            await self.start(f"x{number}")
            if number % _PODS_A_TURN == 0:
                await self._service.background.tick()
            self.figures.starts.append((time.process_time() - began) * 1e3)
            if number < _OTHERS:
                self.figures.after_bind.append(await self.timed(f"o{number}"))
            yield


async def measured(size: int) -> Sequence[Figures]:
    """The figures of the pods without a gang, and those with it. Both take turns: a busy machine slows both alike."""
    kinds = (False, True)
    benches = [Bench(Cluster.of(*nodes(size))) for each in kinds]
    runs = [bench.run(size, is_gang=each) for bench, each in zip(benches, kinds, strict=True)]
    for _ in range(_OTHERS - 1 + size):
        for run in runs:
            await anext(run)
    return [bench.figures for bench in benches]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="pods of the gang")
    size = parser.parse_args().size
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    plain, gang = asyncio.run(measured(size))
    table = Table(
        "CPU time, ms", "gang", "plain", "ratio", title=f"A gang of {size} pods, and the same pods without it"
    )
    for what, ours, theirs in (
        ("filter, bind and turns for a pod that starts, mean", sum(gang.starts) / size, sum(plain.starts) / size),
        ("filter of another pod, median", median(gang.others), median(plain.others)),
        ("the same after each start, median", median(gang.after_bind), median(plain.after_bind)),
        ("the first filter after the plan", gang.first, plain.first),
    ):
        table.add_row(what, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}")
    Console().print(table)
    Console().print(machine())


if __name__ == "__main__":
    main()
