"""The extender is killed again and again, at random, while pods come and go; in the end nothing may be lost.

Controllers of negotiated claims may be killed, too: then each pod has a license of one of them as well.

As a program: ``python -m tests.cluster.killing``.
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, get_args

from extender.answers.audit import audit_snapshot
from extender.config.settings import Transport
from extender.faces.commands.audit import listed
from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.access import SCHEDULER
from tests.kit.controlplane.aftermath import is_allocated, losses, why_pending
from tests.kit.controlplane.binaries import find_binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.controlplane.components import ALL_VERSIONS, START_SECONDS, ControlPlane, control_plane
from tests.kit.controlplane.controllers import Licensing, license_findings, licensing, serving_with
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.pair import BACKOFF_SECONDS
from tests.kit.controlplane.population import SHARED, Population
from tests.kit.controlplane.scheduler import SHIPPED, localize, scheduler, shipped_flags
from tests.kit.controlplane.service import grant_rights, running_extender
from tests.kit.licensing import taken
from tests.kit.objects.manifests import is_bound
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.process import Process
from tests.kit.waiting import WaitError, pause, wait_for_answer

STUCK_SECONDS: Final = 60.0
"""After the last kill, until every pod must have a node: several of the scheduler's longest backoffs."""

LONGEST_LIFE: Final = 10.0
"""Seconds that the extender may run, once it is ready, if fewer pods get a node than it was given to bind."""

BLINK: Final = 0.1
"""Seconds within which it is killed after that; a bind takes some milliseconds."""

ALLOCATION_SECONDS: Final = 5
"""The time of a controller. What a killed extender has begun is released after it."""

WAITING: Final = 40
"""Pods that wait at a time, so that each kill meets some."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of what.

    Attributes:
        pods: that come in all.
        most: pods that have a node at a time; then as many go as come.
        seed: of all that is random.
        controllers: of negotiated claims: how each of them is asked.
        controller_kills: of one of these at a time, among the kills of the extender.
    """

    pods: int
    kills: int
    nodes: int
    devices: int
    most: int
    seed: int
    controllers: Sequence[Transport] = ()
    controller_kills: int = 0


@dataclass(slots=True)
class Figures:
    """What has come of it.

    Attributes:
        half_done: kills that left a claim allocated whose pod was not bound yet.
        wrong: everything that is lost or held twice in the end.
    """

    kills: int = 0
    half_done: int = 0
    bound: int = 0
    longest_wait: float = 0.0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Killing:
    """One run."""

    plan: Plan
    client: Client
    population: Population
    victims: Sequence[Process]
    controllers: Sequence[Licensing]
    report: Callable[[str], object]
    figures: Figures = field(default_factory=Figures)

    async def run(self) -> None:
        """Let pods come and go, kill, wait for the rest, and look at what is left."""
        started = time.monotonic()
        await self.population.settle()
        following = asyncio.create_task(self.population.follow())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._let_come())
                tasks.create_task(self._kill())
            await self._wait_for_the_rest()
        finally:
            following.cancel()
        self.figures.bound = self.population.bound
        self.figures.longest_wait = self.population.longest_wait
        self.figures.seconds = time.monotonic() - started

    async def _let_come(self) -> None:
        for number in range(self.plan.pods):
            await self.population.until(lambda people: len(people.waiting) < WAITING)
            await self.population.add(f"pod-{number}")

    async def _kill(self) -> None:
        figures = self.figures
        for victim in self.victims:
            await self._let_live()
            victim.kill()
            figures.half_done += await self._left_half_done()
            figures.kills += 1
            await asyncio.to_thread(victim.start, within=START_SECONDS)
            if figures.kills % 10 == 0:
                self._tell()

    async def _let_live(self) -> None:
        """Wait for a random number of binds; on average, kills and pods come to their end together."""
        random, people = self.population.random, self.population
        average = (self.plan.pods - people.bound) // (len(self.victims) - self.figures.kills)
        enough = people.bound + random.randrange(2 * average + 1)
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_LIFE):
                await people.until(lambda people: people.bound >= enough)
        await pause(random.uniform(0.0, BLINK))

    async def _left_half_done(self) -> bool:
        pods = (await self.client.list(PODS, self.population.namespace)).items
        waiting = {pod["metadata"]["uid"] for pod in pods if not is_bound(pod)}
        claims = (await self.client.list(CLAIMS, self.population.namespace)).items
        users = {user["uid"] for each in filter(is_allocated, claims) for user in each["status"].get("reservedFor", [])}
        return bool(users & waiting)

    async def _wait_for_the_rest(self) -> None:
        """Until all pods have a node, and the controllers have cleaned up after those that went."""

        async def left() -> list[str]:
            return [*self.population.waiting] or await self._wrong()

        with suppress(WaitError):
            await wait_for_answer(left, lambda found: not found, "the end of all work", within=STUCK_SECONDS)
            return
        for name in self.population.waiting:
            pod = await self.client.get(PODS, ObjectKey(self.population.namespace, name))
            self.figures.wrong.append(f"pod {name} has no node: {why_pending(pod)}")
        self.figures.wrong += await self._wrong()

    async def _wrong(self) -> list[str]:
        namespace = self.population.namespace
        claims = {key_of(each).name for each in (await self.client.list(CLAIMS, namespace)).items}
        missing = {f"shared-{number}" for number in range(SHARED)} - claims
        twice = [str(finding) for finding in audit_snapshot(await listed(self.client))]
        twice += await license_findings(self.client, namespace, self.controllers)
        return [*twice, *(f"claim {name} is gone" for name in missing), *await losses(self.client, namespace)]

    def _tell(self) -> None:
        people, figures = self.population, self.figures
        self.report(
            f"{figures.kills} of {len(self.victims)} kills, {figures.half_done} amid a bind; {people.bound} of "
            f"{self.plan.pods} pods bound, {len(people.waiting)} waiting; longest wait {people.longest_wait:.1f} s"
        )


async def run(
    plane: ControlPlane, client: Client, namespace: str, plan: Plan, report: Callable[[str], object]
) -> Figures:
    """Do a run on a control plane.

    Args:
        client: an administrator's.
        namespace: that is there, and empty.
        report: for lines of progress.
    """
    random = Random(plan.seed)  # noqa: S311 - it decides who dies, and that may be guessed
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(fleet(client, nodes=plan.nodes, devices=plan.devices))
        await grant_rights(client)
        with_controllers = licensing(plane, client, plan.controllers, licenses=plan.most)
        controllers = await stack.enter_async_context(with_controllers)
        serve = serving_with(plane, controllers, allocationSeconds=ALLOCATION_SECONDS)
        extender = await stack.enter_async_context(running_extender(plane, serve=serve))
        text = SHIPPED.read_text()
        config = localize(text, extender.url, plane.kubeconfig(SCHEDULER)) | {"podMaxBackoffSeconds": BACKOFF_SECONDS}
        await stack.enter_async_context(scheduler(plane, config, shipped_flags(text)))
        population = Population(client, namespace, random, plan.most, tuple(each.name for each in controllers))
        victims = _in_order(extender.process, [each.process for each in controllers], plan)
        killing = Killing(plan, client, population, victims, controllers, report)
        await killing.run()
        await population.clear()
        killing.figures.wrong += await _still_taken(controllers)
    return killing.figures


def _in_order(extender: Process, controllers: Sequence[Process], plan: Plan) -> Sequence[Process]:
    """Who is killed, kill after kill."""
    random = Random(plan.seed)  # noqa: S311 - as above
    killed = [random.choice(controllers) for _ in range(plan.controller_kills)] if controllers else []
    victims = [extender] * plan.kills + killed
    random.shuffle(victims)
    return victims


async def _still_taken(controllers: Sequence[Licensing]) -> list[str]:
    """Licenses that are not given back when all pods are gone."""

    async def left() -> list[str]:
        return [f"{each.name}: license {name} is still taken" for each in controllers for name in taken(each.folder)]

    with suppress(WaitError):
        await wait_for_answer(left, lambda found: not found, "the release of all licenses", within=STUCK_SECONDS)
    return await left()


def main(arguments: Sequence[str]) -> None:
    """Do a run on a control plane of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--pods", type=int, default=2000, help="that come in all")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--devices", type=int, default=8, help="of each node")
    parser.add_argument("--most", type=int, default=500, help="pods that have a node at a time")
    asked = "of negotiated claims: how each of them is asked"
    parser.add_argument("--controllers", nargs="+", choices=get_args(Transport), default=(), help=asked)
    parser.add_argument("--controller-kills", type=int, default=0, help="of controllers, beside --kills")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of all that is random")
    plan = Plan(**vars(parser.parse_args(arguments)))
    _show(str(plan))
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)  # what was started is stopped, as for Ctrl-C
    figures = asyncio.run(_run_alone(plan))
    _show(str(figures))
    if figures.wrong:
        sys.exit("\n".join(figures.wrong))


async def _run_alone(plan: Plan) -> Figures:
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        logs = Path(folder)
        with control_plane(find_binaries(os.environ), logs, logs, ALL_VERSIONS) as plane:
            async with connect(plane.access()) as client:
                await client.create(NAMESPACES, a_namespace("killing"))
                return await run(plane, client, "killing", plan, _show)


def _show(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
