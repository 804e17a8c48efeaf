"""CCI drivers choose the CPUs of containers, in the text's order; what they get wrong harms nobody else."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from prometheus_client import generate_latest

from extender.node.cci import Ask, ClaimName, End, Grant, Start, serving
from extender.node.driver import PrepareError
from extender.node.store import ResourceStore
from tests.extender.node.cci_scenes import DRIVER, EIGHT, Scripted, lowest, running
from tests.extender.node.compute_scenes import Node, claim, given
from tests.kit.nri_runtime import FakeRuntime, container
from tests.kit.waiting import wait_for_answer

CLAIM = ClaimName("ns", "a", "uid-a")


@pytest.fixture(autouse=True)
def _plain_tracebacks() -> None:
    """A drawn traceback of a driver's error takes longer, on a busy machine, than a driver may take."""
    structlog.configure([structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)])


async def wait_ended(driver: Scripted, *containers: str) -> None:
    async def ended() -> list[str]:
        return driver.ended

    await wait_for_answer(ended, lambda found: found == [*containers], "the driver is told of the end", within=10)


async def wait_nothing_owed(node: Node) -> None:
    async def owed() -> int:
        return len(node.store.removals)

    await wait_for_answer(owed, lambda found: not found, "no driver is to be told", within=10)


# --- the order of the text ----------------------------------------------------------------------------------


async def test_a_container_is_admitted_and_added_before_it_starts_and_removed_when_it_has_ended(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime({"plain": container("plain")})
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", "cpu-2", driver=DRIVER)
        assert driver.heard == [], "a claim that is prepared has no container yet"
        await runtime.create("main-1", *cdi, cores=2)
        ask, start = driver.heard
        assert isinstance(ask, Ask)
        assert (ask.claim, ask.pod, ask.container, ask.cores) == (CLAIM, "uid-p", "main", 2)
        assert [each.number for each in ask.available] == [1, 5, 2]
        assert [each.value for each in ask.parameters] == [{"cci driver": DRIVER}]
        assert start == Start("/kubepods/poduid-p", "uid-p", "main", "main-1")
        assert runtime.cpus() == {"plain": "0,3-4,6-7", "main-1": "1-2"}

        await runtime.stop("main-1")
        await wait_ended(driver, "main-1")
        assert driver.heard[2] == End(CLAIM, "main-1")
        await node.cpus.unprepare("uid-a")
        assert runtime.cpus() == {"plain": "0-7"}


async def test_containers_of_a_claim_share_it_as_the_driver_says(folder: Path) -> None:
    runtime, driver = FakeRuntime(), Scripted()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", "cpu-2", "cpu-6", driver=DRIVER)
        await runtime.create("own", *cdi, cores=2)
        driver.choose = lambda ask: Grant(ask.numbers, exclusive=False)
        await runtime.create("shared-1", *cdi)
        await runtime.create("shared-2", *cdi)
        assert runtime.cpus() == {"own": "1-2", "shared-1": "5-6", "shared-2": "5-6"}
        await runtime.stop("own")
        await runtime.create("again", *cdi)
        assert runtime.cpus()["again"] == "1-2,5-6"


async def test_a_container_that_is_made_again_is_removed_and_admitted_again(folder: Path) -> None:
    runtime, driver = FakeRuntime(), Scripted()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", driver=DRIVER)
        for name in ("first", "second"):
            await runtime.create(name, *cdi)
            assert runtime.cpus() == {name: "1"}
            await runtime.stop(name)
        await wait_ended(driver, "first", "second")
        assert [type(each) for each in driver.heard] == [Ask, Start, End, Ask, Start, End]


async def test_a_container_with_some_requests_of_a_claim_gets_cpus_of_these(folder: Path) -> None:
    runtime, driver = FakeRuntime(), Scripted(choose=lambda ask: Grant(ask.numbers))
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", "cpu-2", driver=DRIVER)
        await runtime.create("part", *cdi[1:], cores=7)
        assert runtime.cpus() == {"part": "2,5"}


async def test_two_drivers_serve_their_own_claims_and_the_built_in_one_the_others(folder: Path) -> None:
    one, two, runtime = Scripted(), Scripted("two.example.com"), FakeRuntime()
    async with running(folder, runtime, one, two) as node:
        for name, cpus, driver in (("a", ("cpu-1", "cpu-5"), one.name), ("b", ("cpu-2", "cpu-6"), two.name)):
            await runtime.create(name, *await given(node, name, *cpus, driver=driver))
        await runtime.create("c", *await given(node, "c", "cpu-3", "cpu-7"))
        assert runtime.cpus() == {"a": "1", "b": "2", "c": "3,7"}
        assert [each.claim.name for each in (*one.heard, *two.heard) if isinstance(each, Ask)] == ["a", "b"]


# --- what drivers get wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choose", "problem"),
    [
        (lambda _: Grant(frozenset({5, 7})), r"gives CPU 7, which was not available: 2,5-6 were"),
        (lambda _: Grant(frozenset({0, 5})), r"gives CPU 0, which was not available: 2,5-6 were"),
        (lambda _: Grant(frozenset({1, 2})), r"gives CPU 1, which container ns/p/main has"),
        (lambda _: Grant(frozenset({5})), r"gives 1 CPUs \(5\), 2 were asked for"),
        (lambda _: Grant(frozenset()), r"gives 0 CPUs \(none\), 2 were asked for"),
        (lambda _: 1 // 0, r"internal error of driver one\.example\.com: ZeroDivisionError; see its log"),
        (lambda _: None, r"internal error of driver one\.example\.com: AttributeError; see its log"),
        (
            lambda ask: Grant(frozenset(ask.available)),
            r"internal error of driver one\.example\.com: TypeError; see its",
        ),
    ],
)
async def test_a_wrong_answer_is_refused_with_words(folder: Path, choose: Callable[[Ask], Grant], problem: str) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", "cpu-2", "cpu-6", driver=DRIVER)
        await runtime.create("first", *cdi)
        driver.choose = choose
        with pytest.raises(AssertionError, match=problem):
            await runtime.create("second", *cdi, cores=2)
        driver.choose = lowest
        await runtime.create("third", *cdi, cores=2)
        await runtime.create("plain")
        assert runtime.cpus() == {"first": "1", "third": "2,5", "plain": "0,3-4,7"}


@pytest.mark.parametrize(("method", "told"), [("admit", []), ("add", ["own"])])
async def test_a_driver_that_refuses_keeps_only_its_container_from_starting(
    folder: Path, method: str, told: list[str]
) -> None:
    driver, runtime = Scripted(refusing={method}), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", driver=DRIVER)
        refusal = f"claim ns/a: CCI driver {DRIVER} refuses container main: no {method} today"
        with pytest.raises(AssertionError, match=refusal):
            await runtime.create("own", *cdi)
        await runtime.create("plain")
        assert runtime.cpus() == {"plain": "0,2-7"}
        await wait_ended(driver, *told)
        driver.refusing.clear()
        await runtime.create("next", *cdi)
        assert runtime.cpus()["next"] == "1"


async def test_a_container_of_two_claims_starts_only_if_both_drivers_admit_it(folder: Path) -> None:
    one, two, runtime = Scripted(), Scripted("two.example.com", refusing={"admit"}), FakeRuntime()
    async with running(folder, runtime, one, two) as node:
        cdi = [
            *await given(node, "a", "cpu-1", "cpu-5", driver=one.name),
            *await given(node, "b", "cpu-2", "cpu-6", driver=two.name),
        ]
        with pytest.raises(AssertionError, match=r"CCI driver two\.example\.com refuses container main"):
            await runtime.create("first", *cdi)
        await wait_ended(one, "first")
        two.refusing.clear()
        await runtime.create("second", *cdi)
        assert runtime.cpus() == {"second": "1-2"}


async def test_a_driver_that_hangs_holds_up_its_own_containers_and_is_told_to_forget_them(folder: Path) -> None:
    driver, other, runtime = Scripted(), Scripted("two.example.com"), FakeRuntime()
    async with running(folder, runtime, driver, other) as node:
        cdi = await given(node, "a", "cpu-1", driver=DRIVER)
        driver.hanging.clear()
        with pytest.raises(AssertionError, match=r"CCI driver one\.example\.com has not answered within 1\.5 s"):
            await runtime.create("own", *cdi)
        await runtime.create("b", *await given(node, "b", "cpu-2", driver=other.name))
        await runtime.create("c", *await given(node, "c", "cpu-3"))
        assert runtime.cpus() == {"b": "2", "c": "3"}
        driver.hanging.set()
        await node.manager.registry.look()
        await wait_nothing_owed(node)
        assert set(driver.ended) == {"own"}
        await runtime.create("next", *cdi)
        assert runtime.cpus()["next"] == "1"


async def test_how_long_a_container_waits_for_its_driver_is_set(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver, seconds=0.2) as node:
        cdi = await given(node, "a", "cpu-1", driver=DRIVER)
        driver.hanging.clear()
        with pytest.raises(AssertionError, match=r"CCI driver one\.example\.com has not answered within 0\.2 s"):
            await runtime.create("own", *cdi)


async def test_an_unknown_driver_is_named_with_those_that_there_are(folder: Path) -> None:
    async with running(folder, FakeRuntime(), Scripted()) as node:
        words = (
            r"claim ns/a: CCI driver two\.example\.com is not registered in .*/cci \(registered: one\.example\.com\)"
        )
        with pytest.raises(PrepareError, match=words):
            await given(node, "a", "cpu-1", driver="two.example.com")
        assert node.store.available_resources() == EIGHT.numbers - {0}


async def test_a_driver_that_died_is_waited_for_and_told_what_it_missed(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime) as node:
        async with serving(driver, folder / "cci"):
            await node.manager.registry.look()
            cdi = await given(node, "a", "cpu-1", "cpu-5", driver=DRIVER)
            await runtime.create("first", *cdi)
        with pytest.raises(AssertionError, match="CCIAdmit: does not run"):
            await runtime.create("second", *cdi)
        await node.manager.registry.look()
        with pytest.raises(AssertionError, match="is not registered"):
            await runtime.create("third", *cdi)
        with pytest.raises(PrepareError, match=r"is not registered in .* \(registered: none is\)"):
            await given(node, "b", "cpu-2", driver=DRIVER)
        await given(node, "a", "cpu-1", "cpu-5", driver=DRIVER)
        await runtime.stop("first")
        await runtime.create("plain", *await given(node, "c", "cpu-3"))
        assert runtime.cpus() == {"plain": "3"}

        returned = Scripted()
        async with serving(returned, folder / "cci"):
            await node.manager.registry.look()
            await wait_nothing_owed(node)
            assert returned.ended == ["second", "first"]
            await runtime.create("fourth", *cdi)
            assert runtime.cpus()["fourth"] == "1"


async def test_cpus_of_a_claim_come_back_without_its_driver(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime({"plain": container("plain")})
    async with running(folder, runtime) as node:
        async with serving(driver, folder / "cci"):
            await node.manager.registry.look()
            await runtime.create("own", *await given(node, "a", "cpu-1", driver=DRIVER))
        await runtime.stop("own")
        await node.cpus.unprepare("uid-a")
        assert runtime.cpus() == {"plain": "0-7"}
        assert [each.container_id for each in node.store.removals] == ["own"]


async def test_a_driver_that_cannot_remove_is_asked_again(folder: Path) -> None:
    driver, runtime = Scripted(refusing={"remove"}), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        await runtime.create("own", *await given(node, "a", "cpu-1", driver=DRIVER))
        await runtime.stop("own")
        await wait_ended(driver, "own")
        driver.refusing.clear()
        await node.manager.registry.look()
        await wait_nothing_owed(node)
        assert driver.ended == ["own", "own"]


async def test_a_driver_whose_answer_is_lost_is_told_to_forget_the_container(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()

    async def heard() -> int:
        return len(driver.heard)

    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", driver=DRIVER)
        driver.hanging.clear()
        asking = asyncio.create_task(runtime.create("own", *cdi))
        await wait_for_answer(heard, bool, "the driver is asked", within=10)
        killed = Node.started(folder, EIGHT)
        assert [each.container_id for each in killed.store.removals] == ["own"], "known after a kill -9, too"
        runtime.disconnect()
        asking.cancel()
        driver.hanging.set()
        async with asyncio.timeout(10):
            await runtime.synchronized.wait()
        await node.manager.registry.look()
        await wait_ended(driver, "own")
        await runtime.create("next", *cdi)
        await node.manager.registry.look()
        await wait_nothing_owed(node)
        assert runtime.cpus() == {"next": "1"}
        assert driver.ended == ["own"], "what has started is not forgotten"


# --- the node part is killed --------------------------------------------------------------------------------


async def test_a_node_part_that_was_killed_knows_who_has_what_and_tells_who_has_ended(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", driver=DRIVER)
        await runtime.create("stays", *cdi)
        await runtime.create("ends", *cdi)
    del runtime.containers["ends"]
    async with running(folder, runtime, driver) as node:
        assert runtime.cpus() == {"stays": "1"}
        await node.manager.registry.look()
        await wait_ended(driver, "ends")
        await runtime.create("next", *cdi)
        assert runtime.cpus() == {"stays": "1", "next": "5"}


async def test_a_store_that_was_lost_is_filled_from_the_containers_that_run(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", driver=DRIVER)
        await runtime.create("stays", *cdi)
        before = dict(node.store.sets)
    store = ResourceStore(EIGHT.numbers - {0})
    store.add_resource("dra.cpu/uid-a", node.cpus.resources(claim("a", "cpu-1", "cpu-5", driver=DRIVER)))
    store.save(folder / "state")
    async with running(folder, runtime, driver) as node:
        assert node.store.sets == before


async def test_a_container_does_not_start_on_cpus_that_could_not_be_written_down(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", driver=DRIVER)
        (folder / "state.new").mkdir()
        with pytest.raises(AssertionError, match="state: Is a directory"):
            await runtime.create("own", *cdi)
        await wait_ended(driver, "own")
        (folder / "state.new").rmdir()
        await runtime.create("next", *cdi)
        assert runtime.cpus() == {"next": "1"}


async def test_a_container_that_was_made_without_the_node_part_is_moved_to_what_is_left(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", driver=DRIVER)
        await runtime.create("stays", *cdi)
    runtime.containers["meanwhile"] = container("meanwhile", *cdi)
    async with running(folder, runtime, driver):
        assert runtime.cpus() == {"stays": "1", "meanwhile": "5"}


async def test_a_container_that_was_made_without_the_node_part_leaves_cpus_to_the_others_of_its_claim(
    folder: Path,
) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", "cpu-2", "cpu-6", driver=DRIVER)
    runtime.containers["meanwhile"] = container("meanwhile", *cdi, cores=2)
    async with running(folder, runtime, driver) as node:
        await node.manager.registry.look()
        await runtime.create("sidecar", *cdi, cores=2)
        assert runtime.cpus() == {"meanwhile": "1-2", "sidecar": "5-6"}


async def test_a_driver_that_is_away_when_the_node_part_starts_counts_as_down_if_a_claim_has_it(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        await given(node, "a", "cpu-1", driver=DRIVER)
    async with running(folder, runtime) as node:
        up = 'cci_manager_driver_up{driver="one.example.com"} 0.0'
        assert up in generate_latest(node.metrics.registry).decode().splitlines()


async def test_metrics_count_containers_by_driver(folder: Path) -> None:
    driver, runtime = Scripted(), FakeRuntime()
    async with running(folder, runtime, driver) as node:
        cdi = await given(node, "a", "cpu-1", "cpu-5", driver=DRIVER)
        await runtime.create("first", *cdi)
        driver.refusing.add("admit")
        with pytest.raises(AssertionError, match="no admit today"):
            await runtime.create("second", *cdi)
        await runtime.create("third", *await given(node, "b", "cpu-2"))
        await runtime.create("plain")
        lines = generate_latest(node.metrics.registry).decode().splitlines()
    assert {each for each in lines if each.startswith("cci_") and "_created" not in each} == {
        'cci_manager_allocation_requests_total{driver="one.example.com"} 2.0',
        'cci_manager_allocation_requests_total{driver="built-in"} 1.0',
        'cci_manager_allocation_errors_total{driver="one.example.com"} 1.0',
        'cci_manager_allocation_errors_total{driver="built-in"} 0.0',
        "cci_manager_available_cpus 4.0",
        'cci_manager_driver_up{driver="one.example.com"} 1.0',
    }
