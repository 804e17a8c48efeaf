"""What pods without devices cost, by who places them: ``python -m loadtest.plain_pods_bench``.

Three schedulers take turns on one control plane, each with its configuration as it comes. They place the same pods,
which name no scheduler and wait already: kube-scheduler alone with its plugin (in-tree); the cluster's only scheduler,
which asks dra-extender about pods with the marker alone (deploy/only-scheduler, with its policies); and a scheduler
that asks about all pods (config/scheduler.yaml). For each turn: pods that get a node in a second, from the first to the
last one, and milliseconds of processor time for a pod, of scheduler, extender and API server; and what it costs the API
server to make a pod, with the policies or without. In the end the medians, and their ratio to in-tree.
"""

import argparse
import asyncio
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from extender.kube.api import RawObject
from extender.kube.resources import PODS
from loadtest.endtoend import processor
from loadtest.endtoend.bench import Bench, furnished
from loadtest.endtoend.objects import NAMESPACE
from loadtest.endtoend.plan import Site
from loadtest.endtoend.sightings import Sightings
from loadtest.endtoend.subjects import Processes, unhurried
from loadtest.endtoend.workload import named
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.binaries import find_binaries
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.only_scheduler import CONFIGURATION, DEFAULT, SERVE_MARKED, policies_in_force
from tests.kit.controlplane.pair import SHIPPED_NAME
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import SERVE, running_extender
from tests.kit.objects.manifests import pod
from tests.kit.waiting import wait_for_answer

IN_TREE: Final = "in-tree"
_WITHIN: Final = 240.0
"""Seconds for all pods of a turn."""


@dataclass(frozen=True, slots=True)
class Placer:
    """Who places pods.

    Attributes:
        admission: what is in force while pods are made.
        running: it runs while this lasts, as these processes.
    """

    admission: Callable[[Client], AbstractAsyncContextManager[None]]
    running: Callable[[ControlPlane], AbstractAsyncContextManager[Processes]]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one turn has shown.

    Attributes:
        rate: pods that got a node in a second.
        spent: milliseconds of processor time for a pod, by process.
        creation: milliseconds of the API server's processor time to make a pod.
    """

    rate: float
    spent: Mapping[str, float]
    creation: float


@asynccontextmanager
async def _alone(plane: ControlPlane) -> AsyncIterator[Processes]:
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(plane.kubeconfig(SCHEDULER))},
    }
    async with scheduler(plane, unhurried(config), ()) as process:
        yield {process.name: process}


def _asking(file: Path, serve: Sequence[str]) -> Callable[[ControlPlane], AbstractAsyncContextManager[Processes]]:
    """A scheduler of this configuration, and its extender. A profile of its own name takes the pods that name none."""
    text = file.read_text()
    if DEFAULT not in text:
        text = text.replace(SHIPPED_NAME, DEFAULT)

    @asynccontextmanager
    async def running(plane: ControlPlane) -> AsyncIterator[Processes]:
        async with running_extender(plane, serve=serve) as extender:
            config = unhurried(localize(text, extender.url, plane.kubeconfig(SCHEDULER)))
            async with scheduler(plane, config, shipped_flags(text)) as process:
                yield {process.name: process, "extender": extender.process}

    return running


def _nothing(_: Client) -> AbstractAsyncContextManager[None]:
    return nullcontext()


PLACERS: Final[Mapping[str, Placer]] = {
    IN_TREE: Placer(_nothing, _alone),
    "marked": Placer(policies_in_force, _asking(CONFIGURATION, SERVE_MARKED)),
    "unmarked": Placer(_nothing, _asking(SHIPPED, SERVE)),
}


async def _turn(bench: Bench, placer: Placer, pods: Sequence[RawObject]) -> Figures:
    """Make the pods, start who places them, and wait for the last one."""
    sightings = Sightings(frozenset(each["metadata"]["name"] for each in pods))
    api_server = {name: each.pid for name, each in bench.plane.components.items() if name == "kube-apiserver"}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(placer.admission(bench.client))
        before = processor.used(api_server)
        await bench.make(PODS, pods)
        (creation,) = processor.spent(before, processor.used(api_server)).values()
        started = await stack.enter_async_context(placer.running(bench.plane))
        processes = {**api_server, **{name: each.pid for name, each in started.items()}}
        before = processor.used(processes)
        await _all_bound(bench, sightings)
        spent = processor.spent(before, processor.used(processes))
    await bench.clear()
    at = sorted(sightings.at.values())
    each_pod = 1000 / len(pods)
    return Figures(
        rate=(len(at) - 1) / (at[-1] - at[0]),
        spent={name: seconds * each_pod for name, seconds in spent.items()},
        creation=creation * each_pod,
    )


async def _all_bound(bench: Bench, sightings: Sightings) -> None:
    """See pods get nodes, until all have one."""
    watching = asyncio.create_task(bench.watch(sightings))

    async def seen() -> int:
        return len(sightings.at)

    try:
        everything = f"{len(sightings.expected)} pods have a node"
        await wait_for_answer(seen, lambda found: found == len(sightings.expected), everything, within=_WITHIN)
    finally:
        watching.cancel()


def _in_words(figures: Figures) -> str:
    of_processes = ", ".join(f"{name} {milliseconds:.2f}" for name, milliseconds in figures.spent.items())
    return f"{figures.rate:.0f} pods/s; ms for a pod: {of_processes}; to make one: {figures.creation:.2f}"


def _median(turns: Sequence[Figures]) -> Figures:
    return Figures(
        rate=statistics.median(each.rate for each in turns),
        spent={name: statistics.median(each.spent[name] for each in turns) for name in turns[0].spent},
        creation=statistics.median(each.creation for each in turns),
    )


async def _run(nodes: int, pods: int, turns: int, names: Sequence[str], logs: Path) -> None:
    site = Site(nodes, named("none")[1].devices, ())
    plain = [pod(NAMESPACE, f"plain-{number}", scheduler=DEFAULT) for number in range(pods)]
    found = defaultdict[str, list[Figures]](list)
    async with furnished(site, find_binaries(os.environ), logs) as bench:
        for turn in range(turns):
            for number in range(len(names)):
                name = names[(turn + number) % len(names)]
                load = os.getloadavg()[0]
                figures = await _turn(bench, PLACERS[name], plain)
                found[name].append(figures)
                print(f"turn {turn + 1}, {name} (load {load:.1f}): {_in_words(figures)}", flush=True)
    for name, each in found.items():
        figures = _median(each)
        ratio = f", {figures.rate / _median(found[IN_TREE]).rate:.2f} of in-tree" if IN_TREE in found else ""
        print(f"median, {name}: {_in_words(figures)}{ratio}")


def main(arguments: Sequence[str]) -> None:
    """Run from a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--placers", nargs="+", choices=[*PLACERS], default=[*PLACERS])
    asked = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        asyncio.run(_run(asked.nodes, asked.pods, asked.turns, asked.placers, Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
