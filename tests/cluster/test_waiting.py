"""No pod that could run waits for long, whatever happens to schedulers, extenders and the API server.

``python -m tests.cluster.waiting`` is the long form.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.cluster.waiting import DISTURBANCES, KINDS, LEADING_SECONDS, going, longest, scene
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import WAIT_SECONDS, Client, connect
from tests.kit.controlplane.components import ALL_VERSIONS, ControlPlane, control_plane
from tests.kit.controlplane.definitions import DEVICE_QUOTA, define
from tests.kit.controlplane.replicas import flushed, leader
from tests.kit.waiting import pause, wait_for_answer

AWAY_SECONDS = 12.0
"""Longer than a leading scheduler goes on without the API server."""

LONGEST = {
    "the extender is killed": 10.0,
    "the leading scheduler is killed": 30.0,
    "both are killed": 30.0,
    "both are told to end": 15.0,
    "rolling upgrade": 15.0,
    "the API server is killed": 30.0,
    "the API server is silent": 30.0,
    "etcd stands still": 30.0,
    "the leader changes every 5 s": 15.0,
    "the leader stands still": 30.0,
}
"""Seconds of the longest wait. The lease of a scheduler that is killed is free after 15 s."""

QUIET_SECONDS = 5.0
"""After these, a new leader has asked about all pods, and a new process has woken whom it wakes at its start."""

LONGEST_QUIET = 15.0
"""Longer than the longest backoff of the scheduler, and far below its own try after five minutes."""

FREED_SECONDS = 60.0
"""Twice the longest pause of a watch of kube-controller-manager."""


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that has DeviceQuotas before the extenders start."""
    (own := logs / "waiting").mkdir()
    with (
        TemporaryDirectory(prefix="dra-extender-") as folder,
        control_plane(binaries, Path(folder), own, ALL_VERSIONS) as running,
    ):
        asyncio.run(_defined(running))
        yield running


async def _defined(plane: ControlPlane) -> None:
    async with connect(plane.access()) as admin:
        await define(admin, DEVICE_QUOTA)


def each_of(*happenings: str) -> list[Any]:
    """The kill of the extender for each commit, the others in the night."""
    return [
        pytest.param(each, marks=() if each == "the extender is killed" else pytest.mark.nightly, id=each)
        for each in happenings
    ]


@pytest.mark.parametrize("happens", each_of(*LONGEST))
async def test_no_pod_that_could_run_waits_for_long(
    client: Client, plane: ControlPlane, namespace: str, happens: str
) -> None:
    setting = scene(client, plane, namespace, relays=1, seed=1, away_seconds=AWAY_SECONDS)
    async with setting as running, going(running):
        await running.disturbed(DISTURBANCES["nothing"])
        waits = longest(await running.disturbed(DISTURBANCES[happens]))
    print(f"\n{happens}: {waits}")  # noqa: T201 - `-s` shows the figures
    assert waits.keys() == KINDS.keys()
    assert max(waits.values()) < LONGEST[happens], waits
    assert flushed(running.replicas) == 0


@pytest.mark.parametrize(
    "happens", each_of("the extender is killed", "both are killed", "both are told to end", "the API server is killed")
)
async def test_in_a_quiet_cluster_nobody_is_forgotten(
    client: Client, plane: ControlPlane, namespace: str, happens: str
) -> None:
    """Each unit is freed after the one before has led to something: no other event makes the scheduler try again.

    What kube-controller-manager takes to free devices does not count: it may watch an API server that was away again
    only after its longest pause.
    """
    async with scene(client, plane, namespace, relays=1, seed=1, away_seconds=AWAY_SECONDS) as quiet:
        relays = [each for each in quiet.relays if each.kind.waits and not each.kind.evicts]
        first = [await each.add(0) for each in relays]
        for relay, unit in zip(relays, first, strict=True):
            await relay.until(unit, "placed")
        second = [await each.add(1) for each in relays]
        await wait_for_answer(quiet.unexplained, lambda left: not left, "all pods are rejected", within=WAIT_SECONDS)
        await DISTURBANCES[happens](quiet)
        await leader(quiet.replicas, within=LEADING_SECONDS)
        await pause(QUIET_SECONDS)
        for relay, last, unit in zip(relays, first, second, strict=True):
            await relay.remove(last)
            async with asyncio.timeout(FREED_SECONDS):
                await relay.until(last, "freed")
            async with asyncio.timeout(LONGEST_QUIET):
                await relay.until(unit, "placed")
    assert flushed(quiet.replicas) == 0
