"""Usage over HTTP: what is held, by what, in which window; and how long pods waited."""

import csv
import io
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from httpx import AsyncClient
from hypothesis import given
from hypothesis import strategies as st

from extender.answers.usage.usage import By, Usage, UsageKeeper
from extender.answers.usage.usage_table import Window, minutes_of, usage_view
from extender.cluster.cluster_state import ClusterState
from extender.faces.assembly import Extender, Surroundings
from extender.faces.http.callers import MAY
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import CLAIMS, PODS
from extender.tools.offload import at_once
from extender.tools.table import Rows
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    app_over,
    claim,
    client_of,
    local_slice,
    node,
    pod,
    state_of,
)

STARTED = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
H100 = {"model": {"string": "h100"}}


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


class Scene:
    """A service whose time is set, over a cluster with four devices."""

    def __init__(self) -> None:
        self.cluster = Cluster.of(GPU, node("a"), local_slice("a", devices=4, attributes=H100))
        self.now = STARTED
        self.extender: Extender = self.cluster.extender(around=Surroundings(now=lambda: self.now))
        self.app = app_over(self.extender)
        self.look()

    def look(self) -> None:
        self.extender.overview.usage.look(self.cluster.state.snapshot)

    def after(self, time: timedelta, *objects: Object) -> None:
        self.now += time
        for each in objects:
            self.cluster.load(each)
        self.look()

    async def release(self, name: str, time: timedelta) -> None:
        self.now += time
        await self.cluster.api.delete(CLAIMS, ObjectKey("ns", name))
        self.look()

    def client(self) -> AsyncClient:
        return client_of(self.app)

    async def rows(self, query: str = "") -> list[dict[str, Any]]:
        async with self.client() as http:
            response = await http.get(f"/usage?{query}", headers={"accept": "application/json"})
        assert response.status_code == 200, response.text
        return list(response.json()["items"])

    async def error(self, query: str) -> str:
        async with self.client() as http:
            response = await http.get(f"/usage?{query}")
        assert response.status_code == 400
        return str(response.json()["error"])


@pytest.fixture
async def scene() -> Scene:
    """Half of four devices were held for half an hour, twenty minutes ago; an hour is known."""
    found = Scene()
    found.after(minutes(10), claim("two", allocated=["a/gpu-0", "a/gpu-1"], at="a"))
    await found.release("two", minutes(30))
    found.after(minutes(20) - timedelta(milliseconds=1))
    return found


@pytest.mark.parametrize(
    ("by", "named"),
    [
        ("namespace", {"namespace": "ns"}),
        ("class", {"class": "gpu"}),
        ("model", {"model": "h100"}),
        ("driver", {"driver": DRIVER, "inPieces": None}),
    ],
)
async def test_usage_by_what_people_ask_for(scene: Scene, by: str, named: dict[str, Any]) -> None:
    numbers = {"devices": 1.0, "of": 4.0, "share": 0.25, "peak": 2.0, "hours": 1.0}
    assert await scene.rows(f"by={by}") == [{"driver": DRIVER, **numbers, **named}]


async def test_the_documented_example_looks_like_a_row(scene: Scene) -> None:
    async with scene.client() as http:
        paths = (await http.get("/openapi.json")).json()["paths"]
    (example,) = paths["/usage"]["get"]["responses"]["200"]["content"]["application/json"]["example"]["items"]
    assert [list(each) for each in await scene.rows()] == [list(example)]


async def test_a_step_has_a_row_of_its_own(scene: Scene) -> None:
    rows = await scene.rows("step=15m&window=1h")
    assert [(each["time"][11:16], each["devices"], each["hours"]) for each in rows] == [
        ("12:00", pytest.approx(2 / 3, abs=0.001), pytest.approx(1 / 6, abs=0.001)),
        ("12:15", 2.0, 0.5),
        ("12:30", pytest.approx(4 / 3, abs=0.001), pytest.approx(1 / 3, abs=0.001)),
        ("12:45", 0.0, 0.0),
    ]


async def test_a_window_ends_now(scene: Scene) -> None:
    (row,) = await scene.rows("window=30m")
    assert (row["hours"], row["devices"]) == (pytest.approx(1 / 3, abs=0.001), pytest.approx(2 / 3, abs=0.001))
    scene.after(minutes(30))
    assert await scene.rows("window=30m&by=class") == []


async def test_models_that_nobody_holds_are_there_with_their_devices() -> None:
    fresh = Scene()
    fresh.after(minutes(5))
    (row,) = await fresh.rows("by=model")
    assert (row["model"], row["of"], row["devices"], row["hours"]) == ("h100", 4.0, 0.0, 0.0)


async def test_the_answer_says_since_when_it_knows(scene: Scene) -> None:
    async with scene.client() as http:
        text = (await http.get("/usage")).text
        assert text.splitlines()[-1] == "# since 2026-01-01T12:00:00Z, when this replica began to watch"
        assert not (await http.get("/usage?window=30m")).text.splitlines()[-1].startswith("#")


async def test_what_is_in_pieces_is_a_mean_of_the_time_in_which_it_was_known(scene: Scene) -> None:
    usage = scene.extender.overview.usage
    async with scene.client() as http:
        text = (await http.get("/usage?by=driver")).text
        assert text.splitlines()[1].split()[-1] == "-"
        assert "# since 2026-01-01T12:00:00Z, when this replica began to watch; what is free in pieces is not" in text
        assert (await http.get("/usage?by=driver&format=csv")).text.splitlines()[1].endswith(",1.0,")
    usage.found_in_pieces({DRIVER: 2})
    scene.after(minutes(30))
    usage.found_in_pieces(None)
    scene.after(minutes(60))
    (row,) = await scene.rows("by=driver")
    assert row["inPieces"] == 2.0
    async with scene.client() as http:
        assert "not known" not in (await http.get("/usage?by=driver")).text
        assert "not known" in (await http.get("/usage?by=driver&window=30m")).text
        assert "not known" not in (await http.get("/usage?by=model&window=30m")).text
    (row,) = await scene.rows("by=driver&window=30m")
    assert row["inPieces"] is None


async def test_a_replica_that_has_read_nothing_yet_says_so() -> None:
    cluster = Cluster.of(GPU)
    async with client_of(cluster.app()) as http:
        assert "nothing is known yet" in (await http.get("/usage")).text


async def test_csv_has_the_columns_and_no_notes_among_the_rows(scene: Scene) -> None:
    async with scene.client() as http:
        response = await http.get("/usage?by=model&format=csv")
    assert response.headers["content-type"].startswith("text/csv")
    assert response.headers["content-disposition"] == 'attachment; filename="usage.csv"'
    assert response.headers["x-note"].startswith("since ")
    (row,) = csv.DictReader(io.StringIO(response.text))
    assert row == {
        "model": "h100",
        "driver": DRIVER,
        "devices": "1.0",
        "of": "4.0",
        "share": "0.25",
        "peak": "2.0",
        "hours": "1.0",
    }


async def test_a_model_that_is_a_formula_is_a_text_in_a_spreadsheet() -> None:
    cluster = Cluster.of(node("a"), local_slice("a", attributes={"model": {"string": "=1+1"}}))
    extender = cluster.extender()
    extender.overview.usage.look(cluster.state.snapshot)
    async with client_of(app_over(extender)) as http:
        text = (await http.get("/usage?by=model&format=csv")).text
    assert text.splitlines()[1].startswith("'=1+1,")


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("window=25h", 'window: "25h" is not a length of time from 1m to 24h, such as 90m or 6h'),
        ("window=", 'window: "" is not a length of time from 1m to 24h, such as 90m or 6h'),
        ("step=0m", 'step: "0m" is not a length of time from 1m to 24h, such as 90m or 6h'),
        ("step=5", 'step: "5" is not a length of time from 1m to 24h, such as 90m or 6h'),
        ("by=nods", "by: expected 'namespace', 'class', 'model' or 'driver', not \"nods\""),
        ("by=model&namespace=x", "namespace: by=model has no such column"),
        ("waits=true&driver=x", "driver: waits=true has no such column"),
        ("waits=true&by=model", "by: waits=true is by namespace, not by model"),
        ("windw=1h", 'unknown parameter "windw", did you mean "window"?'),
    ],
)
async def test_bad_input_is_refused_with_the_name_of_the_field(scene: Scene, query: str, problem: str) -> None:
    assert await scene.error(query) == problem


@pytest.mark.parametrize(("text", "length"), [("24h", 1440), ("1h30m", 90), ("1m", 1), ("90m", 90), ("1440m", 1440)])
def test_lengths_of_time(text: str, length: int) -> None:
    assert minutes_of(text) == length


async def test_a_filter_that_nothing_matches_says_so(scene: Scene) -> None:
    async with scene.client() as http:
        text = (await http.get("/usage?namespace=mn")).text
    assert text.endswith('there are rows of usage, but none with namespace="mn"\n')


async def test_who_may_not_read_all_pods_gets_no_names_of_namespaces(scene: Scene) -> None:
    scene.cluster.load(pod("p", "claim", created="2026-01-01T12:50:00Z"))
    scene.after(minutes(5))
    scene.after(minutes(5))

    async def may(_verb: str, _path: str) -> bool:
        return False

    async def as_other(scope: Any, receive: Any, send: Any) -> None:
        await scene.app(scope | {MAY: may}, receive, send)

    async with client_of(as_other) as http:  # type: ignore[arg-type]  # an ASGI application around ours
        texts = [(await http.get(f"/usage?{query}")).text for query in ("", "waits=true", "names=true", "by=model")]
    assert not any("ns " in text for text in texts)
    assert [text.splitlines()[1].split()[0] for text in texts] == ["(all)", "(all)", "(all)", "h100"]


async def test_waits_are_those_of_the_namespaces_pods(scene: Scene) -> None:
    waiting = pod("p", "claim", created="2026-01-01T13:00:00Z")
    scene.after(timedelta(milliseconds=1), waiting)
    placed = pod("p", "claim", on="a", created="2026-01-01T13:00:00Z")
    placed["metadata"]["resourceVersion"] = "99"
    scene.now += minutes(10) - timedelta(milliseconds=1)
    scene.cluster.state.apply(Event(EventType.MODIFIED, PODS, placed))
    scene.look()
    (row,) = await scene.rows("waits=true&window=10m")
    assert (row["namespace"], row["placed"]) == ("ns", 1)
    assert row["waiting"] == pytest.approx(1.0, abs=0.01)
    assert row["p50"] == pytest.approx(600, rel=0.3)


def test_while_the_first_look_lasts_usage_is_read_and_says_that_nothing_was_watched_yet() -> None:
    read: list[int | None] = []
    state = state_of([GPU, local_slice("a", 2)])
    usage = Usage(state, lambda: STARTED, lambda: read.append(usage.day(By.MODEL).since))
    usage.look(state.snapshot)
    assert (read, usage.since is None) == ([None], False)


# --- laws ----------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.integers(0, 90_000), st.integers(0, 3), st.sampled_from(["", "a/gpu-0", "a/gpu-1", "b/gpu-0"])),
    max_size=30,
)
"""Milliseconds, the claim that changes then, and the device that it has from then on."""


@given(steps)
def test_device_hours_are_those_of_all_claims_added_up(history: list[tuple[int, int, str]]) -> None:
    models = {"a": "h100", "b": "l4"}
    state = state_of([GPU, *(local_slice(name, 2, attributes={"model": {"string": models[name]}}) for name in models)])
    now = STARTED
    usage = Usage(state, lambda: now)
    usage.look(state.snapshot)
    holds: dict[int, str] = {}
    expected: dict[str, float] = defaultdict(float)
    for number, (pause, index, device) in enumerate((*history, (1_000, 0, ""))):
        now += timedelta(milliseconds=pause)
        for held in holds.values():
            expected[models[held[0]]] += pause / 3_600_000
        apply(state, index, device, version=number + 2)
        usage.look(state.snapshot)
        holds = {**{key: held for key, held in holds.items() if key != index}, **({index: device} if device else {})}
    rows = Rows.of(usage_view(usage, By.MODEL, Window(), wanted={}))
    assert {row["model"]: row["hours"] for row in rows} == pytest.approx(
        {model: expected[model] for model in models.values()}, abs=0.0006
    )
    by_driver = sum(float(str(row["hours"])) for row in Rows.of(usage_view(usage, By.DRIVER, Window(), wanted={})))
    assert by_driver == pytest.approx(sum(expected.values()), abs=0.0012)


def apply(state: ClusterState, index: int, device: str, version: int) -> None:
    """A claim of this number holds a device from now on, or none."""
    found = claim(f"c{index}", allocated=[device] if device else (), at=device[:1])
    found["metadata"]["resourceVersion"] = str(version)
    exists = ObjectKey("ns", f"c{index}") in state.snapshot.claims
    state.apply(Event(EventType.MODIFIED if exists else EventType.ADDED, CLAIMS, found))


# --- the task ------------------------------------------------------------------------------------------------


async def test_the_task_looks_once_the_cluster_is_known() -> None:
    unknown, known = ClusterState(), Cluster.of(GPU).state
    for state, levels in ((unknown, None), (known, STARTED)):
        usage = Usage(state, lambda: STARTED)
        await UsageKeeper(state, usage, at_once).tick()
        since = usage.day(By.MODEL).since
        assert since == (None if levels is None else int(levels.timestamp() * 1000))
