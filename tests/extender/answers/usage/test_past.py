"""The past of usage, as Prometheus has recorded it."""

from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from prometheus_client import generate_latest

from extender.answers.usage.amounts import OTHERS, Named
from extender.answers.usage.holdings import UNIT
from extender.answers.usage.past import PastError, PastReader, RangeQuery, recorded_waits
from extender.answers.usage.prometheus import MOST_BYTES, Prometheus
from extender.answers.usage.usage import By, Past, Recorded, Usage, UsageMetrics
from extender.answers.usage.usage_table import Window, usage_view, waits_view
from extender.config.settings import Settings, UsageSettings
from extender.config.sources import SettingsError, load
from extender.faces.assembly import Surroundings
from extender.tools.table import Rows
from tests.kit.clusters import DRIVER, GPU, Cluster, app_over, claim, client_of, local_slice, node

STARTED = datetime(2026, 1, 2, 12, 1, 30, tzinfo=UTC)
FIVE = 300
WHOLE = Window()


def series(by: str, name: str, values: Mapping[str, float]) -> dict[str, Any]:
    """As Prometheus writes one; the values by the time of day."""
    points = [
        [datetime.fromisoformat(f"2026-01-02T{time}:00+00:00").timestamp(), str(each)] for time, each in values.items()
    ]
    return {"metric": {"by": by, "name": name, "driver": DRIVER}, "values": points}


def of_name(name: str, values: Mapping[str, float], **labels: str) -> dict[str, Any]:
    """The series of a namespace."""
    return {**series("", "", values), "metric": {"name": name, **labels}}


def matrix(*found: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": [*found]}}


HELD = matrix(
    series("namespace", "research", {"10:00": 2.0, "10:05": 4.0, "12:00": 1.0}),
    series("model", "h100", {"10:00": 2.0, "10:05": 4.0, "12:00": 1.0}),
)
PUBLISHED = matrix(
    series("driver", DRIVER, {"10:00": 8.0, "10:05": 8.0, "12:00": 8.0}),
    series("model", "h100", {"10:00": 8.0, "10:05": 8.0, "12:00": 8.0}),
)


WAITING = matrix(of_name("research", {"10:00": 3.0, "10:05": 1.0}))
IN_PIECES = matrix({**series("", "", {"10:00": 1.0, "10:05": 0.5}), "metric": {"driver": DRIVER}})
OBSERVED = matrix({**series("", "", {"10:00": 1.0, "10:05": 1.0, "12:00": 1.0}), "metric": {}})
JUDGED = matrix({**series("", "", {"10:00": 0.5, "10:05": 0.5}), "metric": {}})
PLACED = matrix(
    of_name("research", {"10:00": 1.07, "10:05": 2.14}, le="4.079"),
    of_name("research", {"10:00": 3.22, "10:05": 2.14}, le="19.69"),
    of_name("research", {"10:00": 3.22, "10:05": 2.14, "12:00": 1.0}, le="+Inf"),
    of_name("(others)", {"10:00": 40.0}, le="+Inf"),
)


async def read_by(reader: PastReader) -> None:
    """Let a task read the past to its end."""
    await reader.tick()
    assert reader.reading is not None
    await reader.reading


ANSWERS = {
    "usage_device_seconds": HELD,
    "usage_published_device_seconds": PUBLISHED,
    "usage_waiting_pod_seconds": WAITING,
    "usage_device_in_pieces_seconds": IN_PIECES,
    "usage_known_seconds": OBSERVED,
    "usage_in_pieces_known_seconds": JUDGED,
    "usage_pod_wait_seconds": PLACED,
}


async def never(_seconds: float) -> None:
    """Nothing is tried again."""
    pytest.fail("it was not read")


class FakePrometheus:
    """A Prometheus at the transport: recorded answers by metric, and what it was asked.

    Args:
        failures: answers that are errors, before the others.
    """

    def __init__(self, failures: int = 0) -> None:
        self.asked: list[RangeQuery] = []
        self._failures = failures

    async def __call__(self, query: RangeQuery) -> Mapping[str, Any]:
        self.asked.append(query)
        if self._failures:
            self._failures -= 1
            raise PastError("it is away")
        return next(answer for metric, answer in ANSWERS.items() if f"{metric}_" in query.query)


class Scene:
    """A service that begins at noon, beside a Prometheus."""

    def __init__(self, prometheus: FakePrometheus, *, started: datetime = STARTED, **settings: str) -> None:
        self.now = started
        self.slept: list[float] = []
        self.cluster = Cluster.of(GPU, node("a"), local_slice("a", devices=8, attributes={"model": {"string": "h100"}}))
        self.settings = Settings(usage=UsageSettings(prometheus="http://prometheus:9090", **settings))
        around = Surroundings(now=lambda: self.now, prometheus=prometheus)
        self.extender = self.cluster.extender(self.settings, around=around)
        self.usage = self.extender.overview.usage
        self.reader = PastReader(self.usage, prometheus, self.settings.usage.selector, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def read(self) -> None:
        """Look at the cluster, and read the past."""
        self.usage.look(self.cluster.state.snapshot)
        await read_by(self.reader)

    def rows(self, by: By, window: Window = WHOLE) -> list[dict[str, Any]]:
        return [dict(each) for each in Rows.of(usage_view(self.usage, by, window, wanted={}))]


async def test_what_was_recorded_counts_like_what_was_seen() -> None:
    scene = Scene(FakePrometheus())
    await scene.read()
    scene.cluster.load(claim("one", allocated=["a/gpu-0"], at="a"))
    scene.usage.look(scene.cluster.state.snapshot)
    scene.now += timedelta(minutes=30)
    rows = {each["namespace"]: each for each in scene.rows(By.NAMESPACE)}
    assert rows["research"]["hours"] == pytest.approx((2 + 4 + 1) / 12, abs=0.001)
    assert rows["ns"]["hours"] == 0.5
    (model,) = scene.rows(By.MODEL)
    assert model["hours"] == pytest.approx(7 / 12 + 0.5, abs=0.001)
    assert (model["of"], model["peak"]) == (8.0, 4.0)


async def test_each_value_is_the_mean_of_the_minutes_before_it() -> None:
    scene = Scene(FakePrometheus())
    await scene.read()
    rows = scene.rows(By.NAMESPACE, Window(step=5))
    assert {each["time"][11:16]: each["devices"] for each in rows if each["devices"]} == {
        "09:55": 2.0,
        "10:00": 4.0,
        "11:55": 1.0,
    }


async def test_time_of_which_nothing_was_recorded_is_not_known_and_not_zero() -> None:
    scene = Scene(FakePrometheus())
    await scene.read()
    times = {each["time"][11:16] for each in scene.rows(By.DRIVER, Window(step=5))}
    assert times == {"09:55", "10:00", "11:55"}
    (total,) = scene.rows(By.DRIVER)
    assert total["of"] == 8.0


async def test_steps_of_which_prometheus_has_a_part_count_for_that_part() -> None:
    scene = Scene(FakePrometheus())
    half = [Recorded(By.DRIVER, Named(DRIVER, DRIVER), int(STARTED.timestamp()) // 60 - 60, UNIT // 2)]
    scene.usage.look(scene.cluster.state.snapshot)
    scene.usage.was(Past(held=half, published=half, observed=half))
    (row,) = scene.rows(By.DRIVER)
    assert (row["devices"], row["of"], row["hours"]) == (1.0, 1.0, pytest.approx(5 / 60 / 2, abs=0.001))


async def test_the_minute_in_which_this_replica_began_is_its_own() -> None:
    scene = Scene(FakePrometheus(), started=datetime(2026, 1, 2, 9, 57, tzinfo=UTC))
    await scene.read()
    assert scene.rows(By.NAMESPACE, Window(60))[0]["hours"] == pytest.approx(2 * 2 / 60, abs=0.001)


async def test_a_day_is_asked_for_once_in_steps_as_long_as_their_means() -> None:
    prometheus = FakePrometheus()
    scene = Scene(prometheus, selector='cluster="east"')
    await scene.read()
    await scene.reader.tick()
    assert [each.query for each in prometheus.asked] == [
        f'max by (by, name, driver) (rate(dra_extender_usage_{metric}_total{{cluster="east"}}[5m]))'
        for metric in (
            "device_seconds",
            "published_device_seconds",
            "waiting_pod_seconds",
            "device_in_pieces_seconds",
            "known_seconds",
            "in_pieces_known_seconds",
        )
    ] + ['max by (name, le) (increase(dra_extender_usage_pod_wait_seconds_bucket{cluster="east"}[5m])) > 0']
    noon = int(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp())
    assert {each[1:] for each in prometheus.asked} == {(noon - 86400 + FIVE, noon, FIVE)}


async def test_the_answer_says_from_where_it_knows() -> None:
    scene = Scene(FakePrometheus())
    await scene.read()
    async with client_of(app_over(scene.extender, scene.settings)) as http:
        text = (await http.get("/usage")).text
        assert text.splitlines()[-1] == (
            "# before 2026-01-02T12:01:30Z, when this replica began to watch, as Prometheus has it"
        )
        waits = (await http.get("/usage?waits=true")).text
        assert "# before 2026-01-02T12:01:30Z, when this replica began to watch, as Prometheus has it" in waits


async def test_a_prometheus_that_is_away_is_asked_again_and_people_are_told_meanwhile() -> None:
    scene = Scene(FakePrometheus(failures=2))
    await scene.read()
    assert scene.slept == [15.0, 30.0]
    assert "research" in {each["namespace"] for each in scene.rows(By.NAMESPACE)}
    given_up = Scene(FakePrometheus(failures=100))
    await given_up.read()
    assert len(given_up.slept) == 5
    view = usage_view(given_up.usage, By.MODEL, Window(), wanted={})
    assert view.note().endswith("when this replica began to watch; Prometheus was not read: it is away")


async def test_how_long_pods_waited_is_known_in_coarser_steps() -> None:
    scene = Scene(FakePrometheus())
    await scene.read()
    rows: dict[str, dict[str, Any]] = {
        str(row["namespace"]): dict(row) for row in Rows.of(waits_view(scene.usage, Window()))
    }
    assert set(rows) == {"research", OTHERS}
    research = rows["research"]
    assert (research["waiting"], research["placed"]) == (pytest.approx(4 / 3, abs=0.001), 6)
    assert 4.079 / 2.2 < research["p50"] < 4.079
    assert rows[OTHERS]["placed"] == 40


async def test_pods_that_got_their_nodes_then_count_in_their_quarter_of_an_hour() -> None:
    scene = Scene(FakePrometheus())
    await scene.read()
    rows = Rows.of(waits_view(scene.usage, Window(step=15), namespace="research"))
    assert {str(row["time"])[11:16]: row["placed"] for row in rows} == {"09:45": 3, "10:00": 2, "11:45": 1}


def test_what_is_left_of_estimates_counts_later() -> None:
    times = [f"10:{minute:02}" for minute in range(0, 50, 5)]
    found = recorded_waits(matrix(of_name("a", dict.fromkeys(times, 1.1), le="+Inf")))
    assert sum(sum(each.counts) for each in found) == 11


async def test_what_was_in_pieces_is_a_mean_of_the_time_in_which_it_was_known() -> None:
    scene = Scene(FakePrometheus())
    await scene.read()
    rows = scene.rows(By.DRIVER, Window(step=5))
    assert {each["time"][11:16]: each["inPieces"] for each in rows} == {"09:55": 2.0, "10:00": 1.0, "11:55": None}


async def test_what_was_recorded_is_not_recorded_again() -> None:
    scene = Scene(FakePrometheus())
    await scene.read()
    text = generate_latest(UsageMetrics(scene.usage)).decode()
    assert "research" not in text.replace('name="research"} 0.0', "")
    assert "dra_extender_usage_in_pieces_known_seconds_total 0.0" in text


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "error", "error": "query timed out"},
        {"status": "success", "data": {"resultType": "vector", "result": []}},
        {"status": "success", "data": None},
        matrix({"metric": {"by": "colour", "name": "x", "driver": "d"}, "values": [[1, "1"]]}),
        matrix({"metric": {"by": "model"}, "values": [[1]]}),
        matrix({"metric": {"by": "model", "le": "7"}, "values": [[1, "1"]]}),
        matrix({"metric": {"by": "model", "le": "x"}, "values": [[1, "1"]]}),
        matrix({"metric": None, "values": []}),
        matrix({"metric": {"by": "model"}, "values": [["x", "1"]]}),
        matrix({"metric": {"by": "model"}, "values": [[1e400, "1"]]}),
    ],
    ids=str,
)
async def test_an_answer_that_is_none_changes_nothing(answer: dict[str, Any]) -> None:
    async def ask(_query: RangeQuery) -> Mapping[str, Any]:
        return answer

    usage = Usage(Cluster.of(GPU).state, lambda: STARTED)
    usage.look(Cluster.of(GPU).state.snapshot)

    async def sleep(_seconds: float) -> None:
        pass

    reader = PastReader(usage, ask, "", sleep)
    await read_by(reader)
    assert "Prometheus was not read: wrong answer" in usage_view(usage, By.MODEL, Window(), wanted={}).note()


async def test_a_value_that_is_no_number_is_left_out() -> None:
    values = {"10:00": float("nan"), "10:05": 1.0, "10:10": float("inf")}

    async def ask(query: RangeQuery) -> Mapping[str, Any]:
        return matrix(
            series("namespace", "research", values) if "(rate(" in query.query else of_name("a", values, le="+Inf")
        )

    scene = Scene(FakePrometheus())
    reader = PastReader(scene.usage, ask, "", never)
    scene.usage.look(scene.cluster.state.snapshot)
    await read_by(reader)
    assert [each["hours"] for each in scene.rows(By.NAMESPACE)] == [pytest.approx(1 / 12, abs=0.001)]


# --- over HTTP -----------------------------------------------------------------------------------------------

QUERY = RangeQuery("rate(x[5m])", 300, 600, 300)


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Any]) -> Any:
    """A server that answers like a Prometheus; yields its URL."""
    application = web.Application()
    application.router.add_post("/api/v1/query_range", answer)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_a_query_is_a_form_that_is_posted() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"asked": dict(await request.post())})

    async with serving(answer) as url:
        found = await Prometheus(UsageSettings(prometheus=url))(QUERY)
    assert found == {"asked": {"query": "rate(x[5m])", "start": "300", "end": "600", "step": "300"}}


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ({"text": "parse error", "status": 400}, "HTTP 400: parse error"),
        ({"text": "", "status": 302, "headers": {"Location": "/elsewhere"}}, "HTTP 302"),
        ({"text": "<html>"}, "the answer is not JSON"),
        ({"text": "[]"}, "the answer is no object"),
        ({"body": b" " * (MOST_BYTES + 1)}, f"the answer has more than {MOST_BYTES} bytes"),
    ],
    ids=["refused", "moved", "a page", "a list", "too long"],
)
async def test_an_answer_that_cannot_be_used_is_told_with_the_address(response: dict[str, Any], problem: str) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(**response)

    async with serving(answer) as url:
        with pytest.raises(PastError) as caught:
            await Prometheus(UsageSettings(prometheus=url))(QUERY)
    assert problem in str(caught.value)
    assert url in str(caught.value)


async def test_nobody_at_the_address_is_told() -> None:
    with pytest.raises(PastError, match=r"http://127.0.0.1:1/api/v1/query_range: "):
        await Prometheus(UsageSettings(prometheus="http://127.0.0.1:1"))(QUERY)


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "No such file"), ("a\nb", "a token is one line of printable ASCII")]
)
async def test_a_token_that_cannot_be_sent_is_told_with_its_file(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    settings = UsageSettings(prometheus="https://127.0.0.1:1", token=str(file))
    with pytest.raises(PastError) as caught:
        await Prometheus(settings)(QUERY)
    assert str(caught.value).startswith(f"usage.token {file}: ")
    assert problem in str(caught.value)


async def test_authorities_that_cannot_be_read_are_told_with_their_file(tmp_path: Path) -> None:
    settings = UsageSettings(prometheus="https://127.0.0.1:1", ca=str(tmp_path / "ca"))
    with pytest.raises(PastError, match=r"usage\.ca .*: cannot be read"):
        await Prometheus(settings)(QUERY)


# --- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{prometheus: prom:9090}", 'usage.prometheus: "prom:9090" is not a URL such as'),
        ("{token: /t}", "usage.token: it needs usage.prometheus"),
        ("{selector: 'a=\"b\"'}", "usage.selector: it needs usage.prometheus"),
        ("{prometheus: 'http://p', ca: /c}", "usage.ca: it needs a usage.prometheus with https"),
        ("{prometheus: 'http://p', selector: 'x'}", 'usage.selector: "x" is not a list of matchers'),
        ("{prometheus: 'http://p', selector: 'a=\"b\"} or vector(1'}", "usage.selector:"),
        ("{grafana: 'javascript:alert(1)'}", "usage.grafana:"),
    ],
)
def test_settings_that_are_wrong_are_refused_with_their_key(text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(f"usage: {text}", file="f.yaml")
    assert problem in "; ".join(caught.value.problems)


@pytest.mark.parametrize("selector", ["", 'cluster="east"', 'a="b", c!~"x\\"y.*"', 'a=~"b,}"'])
def test_matchers_of_promql_are_taken(selector: str) -> None:
    text = orjson.dumps({"usage": {"prometheus": "https://p", "selector": selector}}).decode()
    assert load(text, file="f.yaml").usage.selector == selector
