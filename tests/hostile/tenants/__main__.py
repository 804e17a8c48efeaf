"""``python -m tests.hostile.tenants``: nine ordinary tenants without and with a hostile one; see docs/reliability.md.

First the nine are alone, then the hostile tenant does all that it can at once. Ends with status 1 if the nine got less
than they should.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from extender.kube.resources import PODS
from tests.hostile.tenants.attacks import Attack, attacks
from tests.hostile.tenants.controller import controllers
from tests.hostile.tenants.ordinary import Phase, Tenant
from tests.hostile.tenants.site import Site, build, serving, serving_alone
from tests.kit.controlplane.binaries import BinariesError, find_binaries
from tests.kit.controlplane.client import Client, connect
from tests.kit.controlplane.components import ControlPlane, Options, control_plane
from tests.kit.measure import MEGABYTE, machine, percentile, resident
from tests.kit.waiting import WaitError, pause

LEAST_RATE: Final = 0.9
"""Of the pods per second that the nine get alone."""

MOST_WAIT: Final = 2.0
"""Times the 99th percentile from creation to bound that the nine have alone."""

_CONTROL_PLANE: Final = Options(controller_flags=("--kube-api-qps=500", "--kube-api-burst=1000"))
"""By default, the controller manager makes and releases ten claims a second in all: one tenant's pods take them all."""

_LOGS: Final = Path(__file__).parent / ".logs"
_TENANTS: Final = 9
_STEADY: Final = 2
"""Pods of each tenant that stay: its DeviceQuota allows four devices, so that one that comes never waits for it."""
_SLOWEST: Final = 10
"""Pods of which is told what they waited for."""

_PREPARING_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the parts take, and how fast the nine make pods.

    Attributes:
        calm: seconds in which the nine are alone.
        hostile: seconds in which the hostile tenant attacks.
        every: seconds between two pods of one ordinary tenant.
        life: seconds that a pod of an ordinary tenant runs.
        names: of the attacks.
        gates: pods wait at a scheduling gate before kube-scheduler's queue.
        in_tree: kube-scheduler's own plugin serves instead of dra-extender, without quotas.
    """

    calm: float
    hostile: float
    every: float
    life: float
    names: Sequence[str]
    in_tree: bool
    gates: bool


def _plan() -> Plan:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [each.name for each in attacks()]
    parser.add_argument("--calm", type=float, default=120.0, help="seconds in which the nine are alone: 120")
    parser.add_argument("--hostile", type=float, default=600.0, help="seconds of attacks: 600")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two pods of a tenant: 3")
    parser.add_argument("--life", type=float, default=1.0, help="seconds that a pod runs: 1")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these attacks")
    parser.add_argument("--in-tree", action="store_true", help="with kube-scheduler's own plugin, to compare")
    parser.add_argument("--gates", action="store_true", help="pods wait at a scheduling gate, lifted in fair turns")
    args = parser.parse_args()
    return Plan(args.calm, args.hostile, args.every, args.life, args.only, args.in_tree, args.gates)


async def scenario(plan: Plan, plane: ControlPlane, client: Client) -> list[str]:
    """Run both parts, print the figures, and return what is wrong."""
    chosen = [each for each in attacks() if each.name in plan.names]
    namespaces = [f"tenant-{number}" for number in range(_TENANTS)]
    await build(client, namespaces, {each.namespace: each.quota for each in attacks()})
    settling, alone, preparing, beside = map(Phase, ("settling", "alone", "preparing", "beside the hostile one"))
    tenants = [Tenant(client, each, plan.every, plan.life, settling) for each in namespaces]
    async with AsyncExitStack() as stack:
        known = await stack.enter_async_context(controllers())
        served = serving_alone(plane, client) if plan.in_tree else serving(plane, client, known, gates=plan.gates)
        site = await stack.enter_async_context(served)
        tasks = [asyncio.create_task(each.follow()) for each in tenants]
        for each in tenants:
            await each.settle(_STEADY)
        tasks += [asyncio.create_task(each.run()) for each in tenants]
        await pause(10.0)
        await _measured(alone, tenants, plan.calm, site)
        for each in tenants:
            each.phase = preparing
        for attack in chosen:
            await asyncio.wait_for(attack.prepare(attack, client), _PREPARING_SECONDS)
            tasks.append(asyncio.create_task(attack.run(client)))
        print(f"{len(chosen)} attacks go on", flush=True)
        await _measured(beside, tenants, plan.hostile, site)
        _tell_slowest(beside)
        await _tell_attacks(chosen, client)
        print(f"controllers were asked: {dict(known.asked)}")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return _judge(alone, beside, chosen)


async def _measured(phase: Phase, tenants: Sequence[Tenant], seconds: float, site: Site) -> None:
    for each in tenants:
        each.phase = phase
    loop = asyncio.get_running_loop()
    began = loop.time()
    while (left := began + seconds - loop.time()) > 0:
        await pause(min(left, 20.0))
        site.check()
        phase.seconds = loop.time() - began
        print(f"  {phase.seconds:.0f} s: {_line(phase, tenants, site)}", flush=True)
    print(f"{phase.name}: {_line(phase, tenants, site)}; {machine()}", flush=True)


def _line(phase: Phase, tenants: Sequence[Tenant], site: Site) -> str:
    p50, p99 = (percentile(phase.waits, each) for each in (50, 99)) if phase.waits else (0.0, 0.0)
    waiting = sum(len(each.waiting) for each in tenants)
    decides = site.scheduler if site.extender is None else site.extender.process
    return (
        f"{len(phase.made)} made, {len(phase.waits)} bound ({phase.rate:.2f} a second), {waiting} wait, "
        f"p50 {p50:.2f} s, p99 {p99:.2f} s, {len(phase.evicted)} evicted; "
        f"{decides.name} {resident(decides.pid) / MEGABYTE:.0f} MB"
    )


def _tell_slowest(phase: Phase) -> None:
    """Tell the parts of the wait, and what the slowest pods waited for."""
    for what, found in (("creation to gate lifted", phase.lifts), ("gate lifted to bound", phase.rest)):
        if found:
            print(f"{what}: p50 {percentile(found, 50):.2f} s, p99 {percentile(found, 99):.2f} s")
    print("the slowest pods:", *phase.slowest(_SLOWEST), sep="\n  ")


async def _tell_attacks(chosen: Sequence[Attack], client: Client) -> None:
    for each in chosen:
        pods = (await client.list(PODS, each.namespace)).items
        bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        went = f"{each.done} times, {each.refused} times refused"
        print(f"attack {each.name}: {len(pods)} pods, {bound} bound (quota {each.quota}), {went}")


def _judge(alone: Phase, beside: Phase, chosen: Sequence[Attack]) -> list[str]:
    found = []
    if beside.rate < LEAST_RATE * alone.rate:
        found.append(f"{beside.rate:.2f} pods a second are bound, {alone.rate:.2f} without the hostile tenant")
    if beside.waits and alone.waits:
        ours, before = percentile(beside.waits, 99), percentile(alone.waits, 99)
        if ours > MOST_WAIT * before:
            found.append(f"p99 of creation to bound is {ours / before:.1f} times that without")
    due = sum(each.quota for each in chosen)
    if len(beside.evicted) > due:
        found.append(f"{len(beside.evicted)} pods were evicted; quota and priority allow {due}")
    return found


def main() -> int:
    """Run, report, and judge."""
    plan = _plan()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    shutil.rmtree(_LOGS, ignore_errors=True)
    _LOGS.mkdir()
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        try:
            binaries = find_binaries(os.environ)
            with control_plane(binaries, Path(folder), _LOGS, _CONTROL_PLANE) as plane:
                wrong = asyncio.run(_run(plan, plane))
        except (BinariesError, WaitError) as error:
            sys.exit(f"error: {error}")
    print(*(f"WRONG: {each}" for each in wrong), f"logs: {_LOGS}", sep="\n")
    return 1 if wrong else 0


async def _run(plan: Plan, plane: ControlPlane) -> list[str]:
    async with connect(plane.access()) as client:
        return await scenario(plan, plane, client)


if __name__ == "__main__":
    sys.exit(main())
