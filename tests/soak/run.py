"""One soak: a control plane, KWOK, the extender with its scheduler, and all that happens."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.binaries import find_binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect
from tests.kit.controlplane.components import START_SECONDS, ControlPlane, Options, control_plane
from tests.kit.controlplane.kwok import find_kwok, kwok
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import Extender, grant_rights, running_extender
from tests.kit.measure import MEGABYTE, machine, resident
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.process import Process
from tests.kit.waiting import WaitError, pause
from tests.soak.figures import Figures, Memory
from tests.soak.happenings import Happenings
from tests.soak.judge import faults, wrong_at_rest, wrong_when_empty
from tests.soak.plan import Happening, Plan, timetable
from tests.soak.pods import Pods
from tests.soak.site import Site
from tests.soak.workloads import KINDS, Workloads

NAMESPACE: Final = "soak"
NODES_OF_A_DEPLOYMENT: Final = 25
"""So that a quarter of the devices is in use with four on each node."""

SAMPLE_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 30.0
RESTART_SECONDS: Final = 1.0

OPTIONS: Final = Options(
    server_flags=(
        # An hour has ten minutes: pods of a lost node are deleted sooner, too.
        "--default-not-ready-toleration-seconds=10",
        "--default-unreachable-toleration-seconds=10",
    ),
    more_controllers=(
        "node-lifecycle-controller",
        "taint-eviction-controller",
        "pod-garbage-collector-controller",
        "deployment-controller",
        "replicaset-controller",
        "job-controller",
        "ttl-after-finished-controller",
    ),
    controller_flags=(
        "--node-monitor-grace-period=40s",
        "--node-eviction-rate=1",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ),
)


async def soak(
    plan: Plan, environ: Mapping[str, str], folder: Path, logs: Path, report: Callable[[str], object]
) -> Figures:
    """Do it.

    Args:
        environ: where Go is, and the version of Kubernetes.
        folder: for files that nobody needs afterwards.
        logs: folder of the log files.
        report: for lines of progress.

    Raises:
        BinariesError: a program is missing and cannot be built.
    """
    binaries, program = find_binaries(environ), find_kwok(environ)
    figures = Figures(plan)
    started = time.monotonic()
    with control_plane(binaries, folder, logs, OPTIONS) as plane:
        async with connect(plane.access()) as client, kwok(plane, program):
            await client.create(NAMESPACES, a_namespace(NAMESPACE))
            await _soak(plane, client, figures, report)
    figures.seconds = time.monotonic() - started
    figures.judge()
    return figures


async def _soak(plane: ControlPlane, client: Client, figures: Figures, report: Callable[[str], object]) -> None:
    plan = figures.plan
    random = Random(plan.seed)
    site = Site(client, random, plan.devices, plan.nodes)
    pods, workloads = Pods(client, NAMESPACE), Workloads(client, NAMESPACE, random)
    report("the nodes come")
    await site.build()
    async with _serving(plane, client) as (extender, scheduling), _beside(pods.follow()):
        await workloads.build(max(len(KINDS), plan.nodes // NODES_OF_A_DEPLOYMENT))
        happenings = Happenings(site, pods, workloads, extender.process, random)
        async with (
            _beside(_sample(extender.process, pods, figures)),
            _beside(_tell(happenings, figures, report)),
            _beside(_restart(scheduling, happenings)),
        ):
            await _follow_timetable(timetable(plan), happenings)
            figures.machine = machine()
            report("nothing happens any more")
            figures.wrong += happenings.stuck
            figures.wrong += await wrong_at_rest(client, site, pods, workloads)
        figures.done, figures.waits, figures.ended = happenings.done, pods.waits, pods.ended
        report("all workloads are deleted")
        figures.wrong += await wrong_when_empty(client, extender.url, workloads)
        figures.wrong += faults(extender.process.log)


@asynccontextmanager
async def _serving(plane: ControlPlane, client: Client) -> AsyncIterator[tuple[Extender, Process]]:
    """The extender and its scheduler, with the configuration that we ship."""
    await grant_rights(client)
    text = SHIPPED.read_text()
    async with AsyncExitStack() as stack:
        extender = await stack.enter_async_context(running_extender(plane))
        config = localize(text, extender.url, plane.kubeconfig(SCHEDULER))
        yield extender, await stack.enter_async_context(scheduler(plane, config, shipped_flags(text)))


async def _restart(scheduling: Process, happenings: Happenings) -> None:
    """Start the scheduler again when it has ended, as kubelet does: it ends if it can't renew its lease in time."""
    while True:
        await pause(RESTART_SECONDS)
        if not scheduling.is_running:
            happenings.done["scheduler that lost its lease"] += 1
            with suppress(WaitError):  # the lease is lost again
                await asyncio.to_thread(scheduling.start, within=START_SECONDS)


async def _follow_timetable(happenings: list[Happening], happen: Happenings) -> None:
    """Begin each thing at its time, and wait for the end of all of them."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for each in happenings:
            await pause(max(0.0, began + each.second - loop.time()))
            tasks.create_task(happen.happen(each.name))


async def _sample(extender: Process, pods: Pods, figures: Figures) -> None:
    """Follow the memory of the extender's newest process, and the number of pods."""
    since = 0.0
    while True:
        try:
            pid = extender.pid
            size = resident(pid)
        except (AssertionError, OSError, StopIteration):  # it is killed
            figures.memory = Memory()
        else:
            if figures.memory.pid != pid:
                since, figures.memory = time.monotonic(), Memory(pid)
            figures.memory.samples.append((time.monotonic() - since, size))
            figures.peak = max(figures.peak, size)
        figures.most_pods = max(figures.most_pods, len(pods.places))
        await pause(SAMPLE_SECONDS)


async def _tell(happenings: Happenings, figures: Figures, report: Callable[[str], object]) -> None:
    began = time.monotonic()
    while True:
        await pause(REPORT_SECONDS)
        pods, done = happenings.pods, happenings.done
        size = figures.memory.samples[-1][1] if figures.memory.samples else 0
        report(
            f"{time.monotonic() - began:.0f} s: {len(pods.places)} pods on nodes, {len(pods.waiting)} wait, "
            f"{pods.ended} ended; {sum(done.values())} happenings, {done['kill']} kills; {size / MEGABYTE:.0f} MB"
        )


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Within the context, something else goes on."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
