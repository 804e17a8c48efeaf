"""Drivers in a folder: who is registered, and the example as users run it."""

import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from extender.node.cci import Ask, ClaimName, RefusedError, serving
from extender.node.cci.protocol import SERVICE, admit_request, ask_of
from extender.node.cci.registry import Registry
from extender.node.driver import DriverParameters
from extender.node.sockets import REGISTRATION, Registration, SocketError, listening
from extender.node.topology import Cpu
from tests.extender.node.cci_scenes import EIGHT, Scripted, running
from tests.extender.node.compute_scenes import Node, given
from tests.kit.kubelet import ask as call
from tests.kit.node.containerd import listens
from tests.kit.nri_runtime import FakeRuntime
from tests.kit.places import ROOT
from tests.kit.process import Process
from tests.kit.waiting import wait_for_answer

EXAMPLE = ROOT / "config/example/drivers/packing.py"
PACKING = "packing.example.com"
PACKER: Any = run_path(str(EXAMPLE))["Packing"]


# --- registration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "versions", "problem"),
    [
        ("DRAPlugin", "a.example.com", ("v1alpha1",), 'type "DRAPlugin" is not CCIDriver'),
        ("CCIDriver", "A_B", ("v1alpha1",), 'name "A_B": '),
        ("CCIDriver", "", ("v1alpha1",), 'name "": '),
        ("CCIDriver", "a.example.com", ("v2",), "have no v1alpha1"),
        ("CCIDriver", "one.example.com", ("v1alpha1",), "a driver of the name one.example.com is registered at"),
    ],
)
async def test_a_driver_that_is_not_accepted_is_told_why(
    folder: Path, kind: str, name: str, versions: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[frozenset[str]] = []
    registry = Registry(folder, seen.append)
    async with serving(Scripted(), folder):
        await registry.look()
        accepted: list[str] = []
        wrong = Registration(kind, name, versions, "", lambda: accepted.append("accepted"))
        async with listening(folder / "a.sock", {REGISTRATION: wrong.methods}):
            await registry.look()
            await registry.look()
        assert (set(registry.names), accepted) == ({"one.example.com"}, [])
    told = [each for each in capsys.readouterr().out.splitlines() if "driver not registered" in each]
    assert len(told) == 2, "the driver and our own log, once each"
    assert all(problem in each for each in told)


async def test_the_kit_serves_no_driver_that_would_not_be_accepted(folder: Path) -> None:
    with pytest.raises(ValueError, match='name "A_B" of a CCI driver: is not a DNS subdomain'):
        async with serving(Scripted("A_B"), folder):
            pass


async def test_drivers_that_go_and_come_back_are_noticed(folder: Path) -> None:
    seen: list[frozenset[str]] = []
    registry = Registry(folder, seen.append)
    async with AsyncExitStack() as stack:
        for name in ("one.example.com", "two.example.com"):
            await stack.enter_async_context(serving(Scripted(name), folder))
        await registry.look()
    await registry.look()
    async with serving(Scripted(), folder):
        await registry.look()
    assert [sorted(each) for each in seen] == [["one.example.com", "two.example.com"], [], ["one.example.com"]]


async def test_a_driver_may_have_its_service_at_another_socket(folder: Path) -> None:
    registry = Registry(folder, lambda _: None)
    elsewhere = Registration("CCIDriver", "one.example.com", ("v1alpha1",), "/run/one.sock", lambda: None)
    async with listening(folder / "one.sock", {REGISTRATION: elsewhere.methods}):
        await registry.look()
        assert registry.endpoint("one.example.com") == Path("/run/one.sock")


async def test_a_driver_runs_once(folder: Path) -> None:
    async with serving(Scripted(), folder):
        with pytest.raises(SocketError, match=r"one\.example\.com\.sock: another process listens there"):
            async with serving(Scripted(), folder):
                pytest.fail("it runs twice")


async def test_a_handle_of_somebody_else_is_refused_with_words(folder: Path) -> None:
    request = admit_request(Ask(ClaimName("ns", "a", "uid-a"), "uid-p", "main", 1, EIGHT.cpus))
    request.availableCpus = "9"
    with pytest.raises(ValueError, match=r"resource_handle\.cpus: are not the CPUs of availableCpus"):
        ask_of(request)
    request.resource_handle = '{"cores": "x"}'
    async with serving(Scripted(), folder) as path:
        data = await call(path, SERVICE, "CCIAdmit", request.SerializeToString())
    assert b"internal error of driver one.example.com: ValueError" in data


CPUS = st.builds(Cpu, st.integers(0, 99), st.integers(0, 9), st.integers(0, 1), st.integers(0, 1), st.integers(-1, 3))
ASKS = st.builds(
    Ask,
    st.builds(ClaimName, st.text(max_size=5), st.text(max_size=5), st.text(max_size=5)),
    st.text(max_size=5),
    st.text(max_size=5),
    st.integers(1, 9),
    st.lists(CPUS, max_size=9, unique_by=lambda each: each.number).map(tuple),
    st.just((DriverParameters(("cores-0-0",), {"cores": ["1"], "cci driver": "a"}),)),
)


@examples(ASKS)
def test_law_a_driver_reads_what_was_asked(ask: Ask) -> None:
    assert ask_of(admit_request(ask)) == ask


# --- the example --------------------------------------------------------------------------------------------


@examples(st.sets(st.sampled_from(EIGHT.cpus)), st.integers(1, 8))
def test_law_the_example_splits_at_most_one_core_more_than_it_has_to(free: set[Cpu], cores: int) -> None:
    driver = PACKER()
    ask = Ask(ClaimName("ns", "a", "uid-a"), "uid-p", "main", cores, tuple(free))
    if len(free) < cores:
        with pytest.raises(RefusedError, match=f"{cores} CPUs are asked for, and {len(free)} of the claim are left"):
            driver.admit(ask)
        return
    found = driver.admit(ask).cpus
    left = Counter(each.core for each in free if each.number not in found)
    taken = Counter(each.core for each in free if each.number in found)
    whole = sum(count == 2 for count in Counter(each.core for each in free).values())
    assert (len(found), found <= ask.numbers) == (cores, True)
    assert sum(count == 2 for count in taken.values()) == min(whole, cores // 2)
    assert len(left.keys() & taken.keys()) <= 1


async def wait_registered(node: Node) -> None:
    async def names() -> frozenset[str]:
        await node.manager.registry.look()
        return node.manager.registry.names

    await wait_for_answer(names, lambda found: PACKING in found, "the example is registered", within=20)


async def test_the_example_packs_containers_on_whole_cores_and_outlives_a_kill(folder: Path) -> None:
    (folder / "cci").mkdir()
    socket = folder / "cci" / f"{PACKING}.sock"
    driver = Process("packing", (sys.executable, str(EXAMPLE), str(folder / "cci")), listens(socket), folder / "log")
    driver.start(within=20)
    try:
        runtime = FakeRuntime()
        async with running(folder, runtime) as node:
            await wait_registered(node)
            cdi = await given(node, "a", *(f"cpu-{each}" for each in (1, 2, 3, 5, 6, 7)), driver=PACKING)
            await runtime.create("odd", *cdi, cores=1)
            await runtime.create("pair", *cdi, cores=2)
            driver.kill()
            with pytest.raises(AssertionError, match=f"CCI driver {PACKING}"):
                await runtime.create("waits", *cdi, cores=2)
            driver.start(within=20)
            await wait_registered(node)
            await runtime.create("three", *cdi, cores=3)
            assert runtime.cpus() == {"odd": "1", "pair": "2,6", "three": "3,5,7"}
    finally:
        driver.stop()
