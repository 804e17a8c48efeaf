"""`kubectl dra top`: what its tables say, and what its screen shows."""

from collections.abc import Mapping
from typing import Any

from textual.widgets import DataTable, Static
from typer.testing import CliRunner

from extender.faces.commands.answer_source import AnswerSource, Query
from extender.faces.commands.main import kubectl_app
from extender.faces.commands.remote import RemoteError
from extender.faces.commands.top import TopView, look, node_table
from extender.faces.commands.top_screen import TopScreen
from extender.tools.table import Item, TextTable
from tests.extender.faces.commands.scenes import post_nothing

EVIL = "[bold]p[/]\x1b[2J\u202e"
POOLS: tuple[Item, ...] = (
    {
        "driver": "gpu",
        "pool": "a",
        "node": "a",
        "states": {"free": 1, "allocated": 3},
        "partitions": {"free": 7},
        "problem": "",
    },
    {"driver": "nic", "pool": "a", "node": "a", "states": {"free": 2}, "problem": "one slice is missing"},
    {"driver": "gpu", "pool": "b", "node": "b", "states": {"tainted": 4}, "problem": ""},
    {"driver": "net", "pool": "all", "node": "", "states": {}, "problem": ""},
)
WAITING = {"namespace": "demo", "pod": EVIL, "age": 3, "requests": ["gpu: 1 gpu"], "reason": "2x no device"}
DECIDED = {"time": "now", "verb": "filter", "namespace": "demo", "pod": "p", "passed": 0, "rejected": {"no device": 2}}


def test_nodes_have_the_devices_of_all_their_pools() -> None:
    assert node_table(POOLS) == TextTable(
        ["node", "devices", "free", "tainted", "allocated", "free partitions", "problem"],
        [
            ["a", "6", "3", "-", "3", "7", "nic/a: one slice is missing"],
            ["b", "4", "-", "4", "-", "-", "-"],
            ["no node", "0", "-", "-", "-", "-", "-"],
        ],
    )


def source(*, has_decisions: bool = True) -> tuple[AnswerSource, list[tuple[str, Query]]]:
    asked: list[tuple[str, Query]] = []
    answers: Mapping[str, Mapping[str, Any]] = {
        "/pools": {"items": [*POOLS]},
        "/pods": {"items": [WAITING], "note": "pods: old"},
        "/decisions": {"items": [DECIDED]},
    }

    async def get(path: str, query: Query) -> Mapping[str, Any]:
        asked.append((path, query))
        return answers[path]

    return AnswerSource("pod kube-system/leader", get, post_nothing, has_decisions=has_decisions), asked


async def test_a_look_asks_for_the_pods_of_the_namespace() -> None:
    here, asked = source()
    view = await look(here, "demo")
    assert [(path, query.get("namespace")) for path, query in asked] == [
        ("/pools", None),
        ("/pods", "demo"),
        ("/decisions", "demo"),
    ]
    assert view.notes == ("pods: old",)
    assert [row[6] for row in view.decisions.rows] == ["2x no device"]


async def test_without_a_service_there_are_no_decisions_and_that_is_said() -> None:
    here, asked = source(has_decisions=False)
    view = await look(here, "")
    assert "/decisions" not in {path for path, _ in asked}
    assert view.notes[-1] == "no service answers, so there are no decisions"


async def test_the_screen_shows_what_was_found_as_text() -> None:
    here, _ = source()
    screen = TopScreen(lambda: look(here, ""), 3600)
    async with screen.run_test(size=(160, 40)) as pilot:
        await screen.workers.wait_for_complete()
        await pilot.pause()
        nodes, waiting = screen.query_one("#nodes", DataTable), screen.query_one("#waiting", DataTable)
        assert [str(cell) for cell in nodes.get_row_at(0)][:3] == ["a", "6", "3"]
        shown = [str(cell) for cell in waiting.get_row_at(0)]
        assert shown[1] == "[bold]p[/]\\x1b[2J\\u202e"
        assert "answered by pod kube-system/leader; pods: old" in str(screen.query_one("#source", Static).render())


async def test_a_source_that_is_gone_leaves_the_old_rows_and_says_so() -> None:
    here, _ = source()
    looks = [look(here, "")]

    async def once() -> TopView:
        if looks:
            return await looks.pop()
        raise RemoteError("the pod is gone\x1b")

    screen = TopScreen(once, 3600)
    async with screen.run_test(size=(160, 40)) as pilot:
        await screen.workers.wait_for_complete()
        await pilot.press("r")
        await screen.workers.wait_for_complete()
        await pilot.pause()
        text = str(screen.query_one("#source", Static).render())
        assert text == "no answer, so this is old: the pod is gone\\x1b"
        assert screen.query_one("#nodes", DataTable).row_count == 3


def test_top_needs_a_terminal() -> None:
    result = CliRunner().invoke(kubectl_app, ["top", "--server", "http://127.0.0.1:1"])
    assert result.exit_code == 2
    assert "top needs a terminal" in result.stderr
