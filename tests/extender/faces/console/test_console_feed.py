"""The feed of the console: each change is told once, to all pages alike, and what it costs has a bound."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import orjson
import pytest
from httpx import AsyncClient

from allocator.tools import JSON
from extender.answers.observe.fleet import Fleet
from extender.faces.assembly import ALONE, Surroundings
from extender.faces.console.feed import MOST_READERS, PERIOD, Feed, FullError
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import NODES, SLICES
from extender.tools.offload import at_once
from tests.extender.answers.observe.scenes import SHOWN
from tests.kit import virtualtime
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    claim,
    client_of,
    device_class,
    local_slice,
    network_slice,
    node,
    pod,
    taint_rule,
    with_uid,
)
from tests.kit.objects.mig import partition, partitioned
from tests.kit.places import ROOT

OBJECTS = (
    GPU,
    *(each for name in "ab" for each in (node(name), local_slice(name, devices=2))),
    claim("c"),
    pod("p", "c"),
)


class Scene:
    """A cluster with a feed, and what a page reads of it."""

    def __init__(self, first: int = 1000, around: Surroundings = ALONE) -> None:
        self.cluster = Cluster.of(*OBJECTS)
        self.extender = self.cluster.extender(off_loop=at_once, around=around)
        overview = self.extender.overview
        self.feed = Feed(overview, Fleet(overview.devices), lambda: self.extender.service.is_stopping, first)

    def change(self, *objects: Object) -> None:
        for each in objects:
            self.cluster.load(each)

    def decide(self, name: str = "p", count: int = 1) -> None:
        for _ in range(count):
            with self.extender.overview.decision_log.deciding(
                "filter", ObjectKey("ns", name), f"uid-{name}", share="ns"
            ) as draft:
                draft.nodes(1, {})


class Page:
    """A page that reads the stream."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream

    async def message(self, *, within: float = 5.0) -> tuple[str, Any]:
        """The event and the data of the next message, apart from signs of life."""
        async with asyncio.timeout(within):
            async for data in self._stream:
                fields = dict(line.split(b": ", 1) for line in data.splitlines() if b": " in line)
                if fields.get(b"event", b"alive") != b"alive":
                    return fields[b"event"].decode(), orjson.loads(fields[b"data"])
        raise AssertionError("the stream has ended")

    async def rest(self) -> list[bytes]:
        return [data async for data in self._stream]

    async def begin(self) -> "Page":
        assert await anext(self._stream) == b"retry: 500\n\n"
        return self


def played(scene: Callable[[Scene], Awaitable[None]]) -> None:
    """Play a scene in virtual time."""

    async def play() -> None:
        await scene(Scene())

    virtualtime.run(play())


async def opened(scene: Scene) -> Page:
    return await Page(scene.feed.open(scene.feed.position())).begin()


def test_a_change_of_a_pool_is_told_with_its_row_alone() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        given.change(claim("held", allocated=["a/gpu-1"], at="a"))
        event, data = await page.message()
        assert (event, data["pools"]) == ("changes", [{"driver": DRIVER, "pool": "a"}])
        assert [(row["pool"], row["states"]) for row in data["rows"]] == [("a", "04")]

    played(scene)


def test_where_no_scheduler_asks_each_change_renews_the_reasons_of_all_pods_that_wait() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        given.change(claim("held", allocated=["a/gpu-1"], at="a"))
        _, data = await page.message()
        assert [(row["pod"], row["reason"]) for row in data["pods"]] == [("p", "its devices fit on 2 nodes")]

    async def play() -> None:
        await scene(Scene(around=Surroundings(has_schedulers=False)))

    virtualtime.run(play())


def test_a_pool_that_is_gone_is_named_without_a_row() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        await given.cluster.api.delete(SLICES, ObjectKey("", "slice-a"))
        _, data = await page.message()
        assert (data["pools"], data["rows"]) == ([{"driver": DRIVER, "pool": "a"}], [])

    played(scene)


def test_a_node_that_comes_changes_the_states_of_its_pools() -> None:
    async def scene(given: Scene) -> None:
        given.change(local_slice("c"))
        page = await opened(given)
        given.change(node("c"))
        _, data = await page.message()
        assert [(row["pool"], row["states"]) for row in data["rows"]] == [("c", "0")]

    played(scene)


def test_a_label_of_a_node_moves_its_pools_to_another_group() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        labelled = node("a", labels={"topology.kubernetes.io/zone": "east"})
        labelled["metadata"]["resourceVersion"] = "1000000"
        given.cluster.state.apply(Event(EventType.MODIFIED, NODES, labelled))
        _, data = await page.message()
        (row,) = data["rows"]
        assert dict(zip(data["labels"], data["groups"][row["group"]], strict=True)) == {
            "node.kubernetes.io/instance-type": "",
            "topology.kubernetes.io/zone": "east",
        }

    played(scene)


def test_a_page_of_another_process_reads_everything_again_even_if_both_began_at_once() -> None:
    async def scene(given: Scene) -> None:
        other = Scene(first=2000)
        page = await Page(other.feed.open(given.feed.position())).begin()
        assert await page.message() == ("reset", {})

    played(scene)


def test_a_decision_is_told_with_the_pod_that_it_concerns() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        given.decide()
        _, data = await page.message()
        assert [(each["verb"], each["pod"]) for each in data["decisions"]] == [("filter", "p")]
        assert [(each["pod"], each["state"], each["reason"]) for each in data["pods"]] == [
            ("p", "pending", "its devices fit on 1 node")
        ]

    played(scene)


def test_a_pod_that_is_not_known_is_only_named() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        given.decide("gone")
        _, data = await page.message()
        assert data["pods"] == [{"namespace": "ns", "pod": "gone"}]

    played(scene)


def test_changes_within_a_period_are_one_message() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        given.decide(count=30)
        _, data = await page.message()
        assert (len(data["decisions"]), len(data["pods"])) == (30, 1)

    played(scene)


def test_more_decisions_than_a_page_can_show_are_counted() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        given.decide(count=250)
        _, data = await page.message()
        assert (len(data["decisions"]), data["skipped"]) == (200, 50)

    played(scene)


def test_pages_get_the_same_bytes() -> None:
    async def scene(given: Scene) -> None:
        one, other = await opened(given), await opened(given)
        given.decide()
        assert await one.message() == await other.message()

    played(scene)


@pytest.mark.parametrize("late", [1, 3])
def test_a_page_that_comes_back_gets_what_it_missed(late: int) -> None:
    async def scene(given: Scene) -> None:
        stays = await opened(given)
        position = given.feed.position()
        for _ in range(late):
            given.decide()
            await stays.message()
        page = await Page(given.feed.open(position)).begin()
        _, data = await page.message()
        assert len(data["decisions"]) == 1

    played(scene)


@pytest.mark.parametrize("after", [0, 1, 10**15], ids=["none", "long ago", "of another process"])
def test_a_page_that_missed_too_much_reads_everything_again(after: int) -> None:
    async def scene(given: Scene) -> None:
        page = await Page(given.feed.open(after)).begin()
        assert await page.message() == ("reset", {})

    played(scene)


@pytest.mark.parametrize(
    "objects",
    [
        (taint_rule("broken", driver=DRIVER, pool="b", device="gpu-1"),),
        tuple(each for number in range(1001) for each in (local_slice(f"n{number}"),)),
    ],
    ids=["a rule for any pool", "a thousand pools"],
)
def test_what_concerns_everything_is_read_again(objects: tuple[Object, ...]) -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        given.change(*objects)
        assert await page.message() == ("reset", {})

    played(scene)


def test_a_page_that_read_between_two_looks_misses_nothing() -> None:
    async def scene(given: Scene) -> None:
        given.decide()
        page = await opened(given)
        given.decide()
        _, data = await page.message()
        assert len(data["decisions"]) == 1

    played(scene)


def test_a_silent_stream_shows_that_it_lives_and_ends_after_a_minute() -> None:
    async def scene(given: Scene) -> None:
        page, began = await opened(given), asyncio.get_running_loop().time()
        assert set(await page.rest()) == {b"event: alive\ndata: {}\n\n"}
        assert 60 <= asyncio.get_running_loop().time() - began <= 70

    played(scene)


def test_streams_end_when_the_service_stops() -> None:
    async def scene(given: Scene) -> None:
        page, began = await opened(given), asyncio.get_running_loop().time()
        reading = asyncio.create_task(page.rest())
        await virtualtime.elapse(1)
        given.extender.service.stop()
        assert await reading == []
        assert asyncio.get_running_loop().time() - began < 1 + 2 * PERIOD

    played(scene)


def test_nothing_runs_while_no_page_is_open() -> None:
    async def scene(given: Scene) -> None:
        page = await opened(given)
        await page.rest()
        await virtualtime.elapse(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    played(scene)


def test_one_page_too_many_is_refused() -> None:
    async def scene(given: Scene) -> None:
        pages = [await opened(given) for _ in range(MOST_READERS)]
        with pytest.raises(FullError, match="64 pages are open already; close one"):
            given.feed.open(0)
        await asyncio.gather(*(page.rest() for page in pages))
        assert await (await opened(given)).rest()

    played(scene)


# The fleet of the console: the states that the table of devices shows, in a short form.


def client(*objects: Object) -> AsyncClient:
    return client_of(Cluster.of(*objects).app())


async def fleet(of: AsyncClient) -> Any:
    reply = await of.get("/console/fleet")
    assert reply.status_code == 200, reply.text
    return reply.json()


def states(document: Any) -> dict[tuple[str, str, str], str]:
    """The state of each device, by driver, pool and device."""
    return {
        (row["driver"], row["pool"], device): document["states"][int(digit)]
        for row in document["rows"]
        for device, digit in zip(document["shapes"][row["shape"]]["devices"], row["states"], strict=True)
    }


MIG = (
    node("a"),
    *map(with_uid, partitioned("a", gpus=2)),
    claim("c", allocated=[f"a/{partition(0, '1g.5gb', 0)}"], at="a"),
)


@pytest.mark.parametrize(
    "objects", [SHOWN, MIG, (network_slice("far"), node("a")), ()], ids=["small", "mig", "net", "none"]
)
async def test_the_fleet_has_the_devices_and_states_of_the_table(objects: tuple[Object, ...]) -> None:
    async with client(*objects) as asked:
        table = (await asked.get("/devices?limit=10000&format=json")).json()["items"]
        assert states(await fleet(asked)) == {
            (row["driver"], row["pool"], row["device"]): row["state"] for row in table
        }


async def test_a_row_names_the_node_of_its_devices() -> None:
    async with client(node("a"), local_slice("a"), network_slice("far")) as asked:
        rows = (await fleet(asked))["rows"]
    assert {row["pool"]: row["node"] for row in rows} == {"a": "a", "far": "all nodes"}


async def test_pools_with_equal_names_of_devices_share_a_shape() -> None:
    async with client(*(each for name in "abc" for each in (node(name), local_slice(name, devices=2)))) as asked:
        found = await fleet(asked)
    shape = {"devices": ["gpu-0", "gpu-1"], "hardware": [0, 1], "partitions": [], "models": ["", ""]}
    assert (found["shapes"], len(found["rows"])) == ([shape], 3)


async def test_partitions_of_one_device_have_one_number() -> None:
    async with client(*MIG) as asked:
        (shape,) = (await fleet(asked))["shapes"]
    numbers = {(device[:5], number) for device, number in zip(shape["devices"], shape["hardware"], strict=True)}
    assert sorted(number for _, number in numbers) == [0, 1]


async def test_a_shared_device_says_how_much_is_left() -> None:
    capacity: dict[str, JSON] = {"memory": {"value": "10Gi"}}
    shared = local_slice("a")
    shared["spec"]["devices"] = [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}]
    held = claim("c", allocated=["a/gpu-0"], at="a")
    held["status"]["allocation"]["devices"]["results"][0] |= {"shareID": "s", "consumedCapacity": {"memory": "7.5Gi"}}
    async with client(node("a"), shared, held) as asked:
        (row,) = (await fleet(asked))["rows"]
    assert row["left"] == {"0": 0.25}


FALCON = device_class("falcon", selectors=['device.attributes["gpu.example.com"].model == "falcon"'])


def modelled(name: str, **models: JSON) -> Object:
    found = local_slice(name)
    found["spec"]["devices"] = [
        {"name": device, "attributes": {"model": value, "example.org/even": {"bool": True}}}
        for device, value in models.items()
    ]
    return found


MODELS = (
    node("a"),
    node("b"),
    FALCON,
    modelled("a", one={"string": "falcon"}, two={"string": "sparrow"}),
    modelled("b", one={"string": "falcon"}, four={"int": 4}),
)


async def test_a_device_has_the_model_that_its_driver_publishes() -> None:
    product = {"name": "gpu-0", "attributes": {"productName": {"string": "Hopper 100"}}}
    short = {"name": "gpu-1", "attributes": {"product": {"string": "H100"}}}
    other = local_slice("c")
    other["spec"]["devices"] = [product, short]
    async with client(*MODELS, node("c"), other) as asked:
        found = await fleet(asked)
    models = {
        (row["pool"], device): model
        for row in found["rows"]
        for shape in [found["shapes"][row["shape"]]]
        for device, model in zip(shape["devices"], shape["models"], strict=True)
    }
    assert models == {
        ("a", "one"): "falcon",
        ("a", "two"): "sparrow",
        ("b", "one"): "falcon",
        ("b", "four"): "",  # a number is no name
        ("c", "gpu-0"): "Hopper 100",
        ("c", "gpu-1"): "H100",
    }
    assert found["example"] == "model=falcon"


async def test_a_row_says_in_which_namespaces_its_devices_are_held() -> None:
    """Also after a claim of one namespace has taken over from that of another."""
    cluster = Cluster.of(*(node("a"), local_slice("a", devices=3), claim("c", allocated=["a/gpu-1"], at="a")))
    async with client_of(cluster.app()) as asked:
        assert held(await fleet(asked)) == {"ns": [1]}
        other = claim("d", allocated=["a/gpu-1", "a/gpu-2"], at="a")
        other["metadata"]["namespace"] = "other"
        cluster.load(other)
        assert held(await fleet(asked)) == {"ns": [1], "other": [1, 2]}


def held(document: Any) -> dict[str, list[int]]:
    (row,) = document["rows"]
    return {document["namespaces"][int(at)]: indexes for at, indexes in row.get("held", {}).items()}


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("attribute=model=eagle", "no device has model eagle (model: falcon, 4, sparrow)"),
        ("attribute=model=falcom", "no device has model falcom; did you mean falcon? (model: falcon, 4, sparrow)"),
        ("attribute=modle", "no device has an attribute modle; did you mean model? (there is example.org/even, model)"),
        (
            "attribute=sparrow",
            "no device has an attribute sparrow; did you mean model=sparrow? (there is example.org/even, model)",
        ),
        ("attribute=model=sparrow&class=falcon", "no device has model sparrow (model: falcon)"),
        ("class=none", "none of 4 devices is of the class"),
        ("attribute=model=falcon", ""),
    ],
)
async def test_a_filter_that_matches_nothing_says_what_there_is(query: str, told: str) -> None:
    async with client(*MODELS, device_class("none", selectors=["false"])) as asked:
        assert (await asked.get(f"/console/matches?{query}")).json()["note"] == told


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("class=falcon", {"a": ["one"], "b": ["one"]}),
        ("attribute=model=falcon", {"a": ["one"], "b": ["one"]}),
        ("attribute=model", {"a": ["one", "two"], "b": ["four", "one"]}),
        ("attribute=model=4", {"b": ["four"]}),
        ("attribute=gpu.example.com/model%20=%20sparrow", {"a": ["two"]}),
        ("attribute=example.org/even=true&class=falcon", {"a": ["one"], "b": ["one"]}),
        ("attribute=color", {}),
        ("", {"a": ["one", "two"], "b": ["four", "one"]}),
    ],
)
async def test_devices_match_by_class_and_attribute(query: str, expected: dict[str, list[str]]) -> None:
    async with client(*MODELS) as asked:
        found = (await asked.get(f"/console/matches?{query}")).json()
    assert {each["pool"]: found["sets"][each["set"]] for each in found["pools"]} == expected


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("class=falcom", 'class: there is no device class "falcom"; did you mean falcon?'),
        ("attribute==x", "attribute: expected NAME or NAME=VALUE in at most 512 characters"),
        (f"attribute={'x' * 513}", "attribute: expected NAME or NAME=VALUE in at most 512 characters"),
        ("clas=falcon", 'unknown parameter "clas", did you mean "class"?'),
    ],
)
async def test_what_names_nothing_is_refused(query: str, problem: str) -> None:
    async with client(*MODELS) as asked:
        reply = await asked.get(f"/console/matches?{query}")
    assert (reply.status_code, reply.json()) == (400, {"error": problem})


async def test_a_class_whose_selector_fails_says_so() -> None:
    async with client(*MODELS, device_class("odd", selectors=["device.attributes['x'].y == 1"])) as asked:
        found = (await asked.get("/console/matches?class=odd")).json()
    assert (found["pools"], found["note"].startswith("4 devices are left out")) == ([], True)


# The modules and the stylesheet of the console: nothing in them is left over.


PAGE: Final = ROOT / "extender" / "faces" / "console" / "page"
SOURCES: Final = {path.name: path.read_text() for path in PAGE.glob("*.js") if path.name != "lit-html.js"}
STYLES: Final = (PAGE / "style.css").read_text()


def test_what_a_module_exports_another_one_uses() -> None:
    unused = [
        f"{name}: {exported}"
        for name, source in SOURCES.items()
        for exported in re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", source, re.MULTILINE)
        if not any(re.search(rf"\b{exported}\b", other) for at, other in SOURCES.items() if at != name)
    ]
    assert unused == []


def test_what_a_module_imports_or_declares_it_uses() -> None:
    unused = [
        f"{name}: {word}"
        for name, source in SOURCES.items()
        for names in re.findall(r"^import {([^}]*)}|^(?:export )?const (\w+) =|^function (\w+)", source, re.MULTILINE)
        for word in re.findall(r"(\w+)(?=\s*(?:,|$))", ",".join(filter(None, names)).strip(" ,"))
        if len(re.findall(rf"(?<![\w.]){word}\b", source)) < 2 and f"export const {word}" not in source
    ]
    assert unused == []


def test_each_class_of_the_stylesheet_is_on_some_element() -> None:
    rules = re.sub(r"/\*.*?\*/|{[^{}]*}", " ", STYLES, flags=re.DOTALL)
    text = "\n".join(SOURCES.values()) + (PAGE.parents[2] / "answers" / "observe" / "fleet.py").read_text()
    states = {"free", "shared", "blocked", "tainted", "allocated", "clash", "unusable"}
    levels = {f"level{number}" for number in range(5)}
    named = set(re.findall(r"\.([a-z][\w-]*)", rules)) - states - levels
    assert [each for each in sorted(named) if not re.search(rf"[\"' `]{each}[\"' `$]", text)] == []


def test_each_variable_of_the_stylesheet_is_used() -> None:
    text = STYLES + SOURCES["grid.js"]
    defined = set(re.findall(r"--([\w-]+):", STYLES))
    assert [each for each in sorted(defined) if f"var(--{each})" not in text and f'"{each}"' not in text] == []
