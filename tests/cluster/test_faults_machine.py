"""What a machine does to the extender: no file descriptors, a full disk, a clock that jumps; and a network that fails.

Nothing is lost, and nothing is held twice.
"""

import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from extender.kube.resources import PODS
from tests.kit.clock.shifted import ShiftedClock
from tests.kit.controlplane.aftermath import losses, wait_settled
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.components import ControlPlane
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.pair import pair
from tests.kit.controlplane.proxy import WATCH
from tests.kit.controlplane.scenario import add_pod, bound, findings
from tests.kit.controlplane.service import SERVE
from tests.kit.controlplane.unruly import Unruly
from tests.kit.process import Process
from tests.kit.waiting import pause

HOUR, DAY = 3600, 86_400
NODES, DEVICES = 2, 30

WITHOUT_DISK = ("sh", "-c", 'exec "$0" "$@" >/dev/full 2>&1', *SERVE)
"""The extender's command line; each line that it logs meets a full disk."""


@pytest.fixture
async def nodes(client: Client) -> AsyncIterator[list[str]]:
    async with fleet(client, nodes=NODES, devices=DEVICES) as names:
        yield names


async def bind_some(client: Client, namespace: str, prefix: str, number: int = 4) -> None:
    """Some pods come, and each gets a node and a device."""
    for made in [await add_pod(client, namespace, f"{prefix}-{index}") for index in range(number)]:
        await bound(client, key_of(made))


async def check_nothing_is_lost(client: Client, namespace: str) -> None:
    assert await findings(client, namespace) == []
    await wait_settled(client, namespace, within=WAIT_SECONDS)
    assert await losses(client, namespace) == []


@contextmanager
def no_more_files(process: Process) -> Iterator[None]:
    """Within, a process can open nothing: neither files nor connections (Linux)."""
    used = sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())
    before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("nodes")
async def test_file_descriptors_are_used_up(client: Client, plane: ControlPlane, namespace: str) -> None:
    """Meanwhile all watches end, too. It goes on as soon as there are some, without a restart."""
    async with pair(client, plane) as ours:
        await bind_some(client, namespace, "before")
        pid = ours.extender.process.pid
        with no_more_files(ours.extender.process):
            ours.proxy.cut_streams(WATCH)
            waiting = [await add_pod(client, namespace, f"meanwhile-{index}") for index in range(4)]
            await pause(5.0)
        for made in waiting:
            await bound(client, key_of(made))
        await bind_some(client, namespace, "after")
        assert ours.extender.process.is_running
        assert ours.extender.process.pid == pid
        await check_nothing_is_lost(client, namespace)


@pytest.mark.usefixtures("nodes")
async def test_the_disk_of_the_log_is_full(client: Client, plane: ControlPlane, namespace: str) -> None:
    async with pair(client, plane, serve=WITHOUT_DISK) as ours:
        await bind_some(client, namespace, "first")
        ours.proxy.cut_streams(WATCH)  # it has something to log
        await bind_some(client, namespace, "second")
        assert ours.extender.process.is_running
        await check_nothing_is_lost(client, namespace)


@pytest.mark.usefixtures("nodes")
async def test_the_clock_is_set_back_an_hour_and_forward_a_day(
    client: Client, plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The extender's alone: it disagrees with the API server and the scheduler then."""
    clock = ShiftedClock(tmp_path)
    async with pair(client, plane, serve=clock.seen_by(SERVE)) as ours:
        await bind_some(client, namespace, "before")
        for name, seconds in (("back", -HOUR), ("forward", DAY), ("again", 0)):
            clock.set(seconds)
            await bind_some(client, namespace, name)
            await pause(2.0)
        assert ours.extender.process.is_running
        await check_nothing_is_lost(client, namespace)


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(("seed", "seconds"), [(1, 15.0), pytest.param(2, 300.0, marks=pytest.mark.nightly)])
async def test_requests_and_watches_fail_by_chance(
    client: Client, plane: ControlPlane, namespace: str, seed: int, seconds: float
) -> None:
    """As in the simulation, and before a real API server. Pods come and go; then all of them run."""
    weather = Unruly(seed, share=0.15)
    async with pair(client, plane) as ours:
        ours.proxy.weather = weather
        made = []
        for number in range(round(seconds * 2)):
            made.append(await add_pod(client, namespace, f"pod-{number}"))
            await pause(0.5)
            if len(made) > NODES * DEVICES // 2:
                await client.delete(PODS, key_of(made.pop(0)))
        weather.is_over = True
        for each in made:
            await bound(client, key_of(each), within=60.0)
        print(f"\n{sum(weather.counted.values())} faults: {dict(weather.counted)}")  # noqa: T201 - `-s` shows them
        assert len(weather.counted) > 5
        await check_nothing_is_lost(client, namespace)
