"""The demo in virtual time: its scenes show what they announce, and a seed repeats them."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import Any, Final

import anyio.to_thread
import pytest

from extender.autoscaler.autoscaler import make_autoscaler
from extender.autoscaler.negotiating import Negotiating
from extender.config.settings import Settings
from extender.faces.assembly import Surroundings, make_extender, make_solver
from extender.faces.demo.demo import MANIFESTS, SCENES, Demo
from extender.faces.http import verb_endpoints
from extender.faces.http.app import Listener, create_app
from extender.faces.http.endpoints import explain
from extender.kube.resources import NODES, PODS
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import load
from extender.planning.templates import read_catalog
from extender.tools.offload import at_once
from tests.corpus.chance import clocks, without_chance
from tests.kit import virtualtime
from tests.kit.clusters import NOW, client_of
from tests.kit.places import ROOT

SETTINGS: Final = Settings.model_validate(
    {
        "scheduling": {"schedulerNames": ["dra-scheduler"]},
        "autoscaler": {"learnFromLabel": "node.kubernetes.io/instance-type"},
    }
)


async def performed(demo: Demo) -> tuple[list[str], list[str]]:
    """The lines of a demo, and what there is at its end: nodes, and pods that are not notebooks."""
    clock = asyncio.get_running_loop().time
    cluster = EmbeddedCluster(
        load([MANIFESTS], lambda _: None).objects,
        now=lambda: NOW + timedelta(seconds=clock()),
        has_whole_pods=True,
    )
    around = Surroundings(now=lambda: NOW + timedelta(seconds=clock()))
    with clocks(clock):
        solver = make_solver(SETTINGS, clock)
        extender = make_extender(cluster.api, cluster.state, solver, SETTINGS, around=around, off_loop=at_once)
        negotiating = Negotiating(extender.negotiation.controllers, extender.overview.api)
        catalog = read_catalog(SETTINGS)
        autoscaler = make_autoscaler(
            extender.service, negotiating, make_solver(SETTINGS, clock), SETTINGS, catalog, at_once
        )
        app = create_app(extender, autoscaler, SETTINGS, Listener.SERVER)
    lines: list[str] = []
    async with cluster.running(), client_of(app) as http:
        background = asyncio.create_task(extender.service.background.run())
        await demo.perform(cluster.api, http, lines.append)
        background.cancel()
    found = [each["metadata"]["name"] for kind in (NODES, PODS) for each in (await cluster.api.list(kind)).items]
    return lines, found


async def _at_once(work: Callable[..., Any], *values: Any, **_: object) -> Any:
    """Instead of a thread, during whose work virtual time would go by."""
    return work(*values)


def play(seed: int, speed: float = 1.0, rounds: int = 1) -> Sequence[str]:
    """The lines of a demo that was played now."""
    with without_chance(), pytest.MonkeyPatch.context() as patch:
        for module in (anyio.to_thread, explain, verb_endpoints):
            patch.setattr(module, "run_sync", _at_once)
        lines, left = virtualtime.run(performed(Demo(seed, speed, rounds)))
    assert sorted(left) == ["falcon-1", "falcon-2", "sparrow-1", "sparrow-2"]
    return lines


@cache
def played(seed: int, speed: float = 1.0, rounds: int = 1) -> Sequence[str]:
    return play(seed, speed, rounds)


def scene(lines: Sequence[str], number: int) -> list[str]:
    """What is told in a scene, without the times."""
    told = [line.split(" s  ", 1)[1] for line in lines]
    starts = [at for at, line in enumerate(told) if line.startswith("== ")]
    return told[starts[number - 1] + 1 : [*starts, len(told)][number]]


def comes(lines: Sequence[str], *parts: str) -> bool:
    """Whether lines with these parts come in this order."""
    rest = iter(lines)
    return all(any(part in line for line in rest) for part in parts)


def test_a_pod_that_waits_says_why_and_runs_when_devices_are_free() -> None:
    told = scene(played(1), 1)
    assert comes(
        told,
        "research/train-1 is bound to falcon",
        "research/train-2 is bound to falcon",
        "research/train-3 waits: all 8 devices with memory of at least 80Gi are in use",
        "has ended; its devices are free",
        "research/train-3 is bound to falcon",
    )


def test_an_autoscaler_plans_for_the_pod_that_waits_and_adds_nothing_yet() -> None:
    told = scene(played(1), 1)
    assert "autoscaler: 1 more falcon node would run research/train-3" in told
    assert not any("joins" in line for line in told)


def test_a_wish_that_nothing_fulfils_is_named_and_withdrawn() -> None:
    told = scene(played(1), 2)
    assert comes(told, "render-1 waits: no device has memory of at least 141Gi (80Gi 8, 24Gi 8)", "render-2 is bound")


def test_a_pod_over_quota_waits_for_its_own_team() -> None:
    told = scene(played(1), 3)
    assert comes(told, "transcribe-3 waits: device quota two-gpus", "has ended", "transcribe-3 is bound")


def test_a_gang_waits_for_its_last_pod_and_then_runs_as_a_whole() -> None:
    told = scene(played(1), 4)
    assert comes(told, "waits: waiting for the pods of group", "is bound", "is bound", "is bound", "has ended")


def test_an_urgent_pod_takes_devices_and_the_evicted_pod_comes_again() -> None:
    told = scene(played(1), 5)
    assert comes(
        told,
        "urgent-1 waits: all 8 devices",
        "is evicted (dra-extender: preempting to accommodate pod research/urgent-1",
        "urgent-1 is bound",
        "urgent-1 has ended",
        "research/batch-",
    )


def test_a_new_node_serves_the_pod_for_which_it_came_and_leaves() -> None:
    told = scene(played(1), 6)
    assert comes(told, "node falcon-3 joins", "falcon-3: 4 GPUs are published", "is bound to falcon-3", "leaves")


def test_equal_seeds_tell_the_same_and_others_tell_another_story() -> None:
    assert play(1) == played(1)
    assert played(2) != played(1)


def test_a_second_round_shows_all_again() -> None:
    told = played(3, rounds=2)
    assert sum(" == " in line for line in told) == 2 * len(SCENES)
    assert sum("is evicted" in line for line in told) == 2


def test_the_clock_can_be_faster() -> None:
    told = played(1, speed=4.0)
    times = [float(line.split(" s ")[0]) for line in told]
    assert all(before <= after for before, after in pairwise(times))
    assert sum(" == " in line for line in told) == len(SCENES)
    usual = float(played(1)[-1].split(" s ")[0])
    assert times[-1] < usual / 2


def test_the_first_minute_shows_a_reason_a_plan_and_decisions() -> None:
    first = [line for line in played(1) if float(line.split(" s ")[0]) < 60]
    assert comes(first, "waits:", "autoscaler:")
    assert sum("is bound" in line for line in first) > 2


async def test_the_command_tells_where_to_look_and_ends_when_it_is_asked_to(unused_tcp_port: int) -> None:
    command = (sys.executable, "-m", "extender", "demo", "--port", str(unused_tcp_port), "--speed", "20")
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=PIPE)
    assert process.stdout
    async with asyncio.timeout(60):
        lines = [(await process.stdout.readline()).decode() for _ in range(6)]
        process.terminate()
        rest, messages = (each.decode() for each in await process.communicate())
    assert f"Open http://127.0.0.1:{unused_tcp_port}/" in lines[0]
    assert "research/train-1 is bound to falcon" in "".join(lines)
    assert (process.returncode, messages) == (0, ""), rest
