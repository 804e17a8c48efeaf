"""Text of others, wherever it is shown to people: it moves no cursor, forges no row, turns no text around."""

import json
import logging
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from allocator.cel.errors import CompileError
from allocator.tools import printable, printable_lines, shown
from extender.faces.commands.explain import ExplanationJson
from extender.faces.commands.main import app
from extender.faces.commands.output import FOUND_PROBLEMS
from extender.tools import logs
from extender.tools.logs import LogSettings
from extender.tools.table import Row, TableView, TextTable, page, plain_lines
from tests.kit.clusters import Cluster, asking, claim, client_of, device_class, local_slice, node, pod

ATTACKS = {
    "an escape sequence": ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
    "one of C1": ("\x9b31m", r"\x9b31m"),
    "a new line": ("a\nns/forged   node-0", r"a\nns/forged   node-0"),
    "a carriage return": ("a\rb", r"a\rb"),
    "a line separator": ("a\u2028b\x85c", r"a\u2028b\x85c"),
    "a mark of direction": ("\u202efdp.exe\u2066", r"\u202efdp.exe\u2066"),
    "half a character": ("a\ud800", r"a\ud800"),
    "a null": ("a\0b", r"a\x00b"),
    "markup": ("[red]a[/]", "[red]a[/]"),
    "letters": ("Grüße 東京 😀", "Grüße 東京 😀"),
}


@pytest.mark.parametrize(("text", "expected"), ATTACKS.values(), ids=ATTACKS)
def test_what_is_not_to_be_seen_is_written_as_an_escape(text: str, expected: str) -> None:
    assert printable(text) == expected


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    found = printable(text)
    assert not {unicodedata.category(each) for each in found} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert printable(found) == found
    assert len(found.splitlines()) <= 1


@given(st.text())
def test_lines_after_the_first_are_set_in(text: str) -> None:
    first, *others = printable_lines(text).splitlines() or [""]
    assert first == printable(text.split("\n", maxsplit=1)[0])
    assert all(line.startswith("  ") for line in others)


# --- where it is shown ----------------------------------------------------------------------------------------

EVIL = "".join(text for text, _ in ATTACKS.values())
SHOWN = "".join(text for _, text in ATTACKS.values())


def test_a_row_of_a_table_is_one_line() -> None:
    assert plain_lines(TextTable(("a", "b"), [(EVIL, "x")]))[1] == f"{SHOWN}   x"


def test_a_page_as_text_has_it_escaped_and_as_json_as_it_is() -> None:
    found = page(TableView(("pod",), iter([Row(("a",), lambda: {"pod": EVIL})])), limit=1)
    assert found.as_text() == f"POD\n{SHOWN}\n"
    assert found.as_json() == {"items": [{"pod": EVIL}]}


def test_an_explanation_of_a_service_that_is_asked_may_be_anything() -> None:
    assert ExplanationJson({"text": "a\n\x1b[2J\n"}).text == "a\n\\x1b[2J\n"


ESCAPE = "\x1b[31m\u202e"
SELECTOR = f"device.attributes['gpu.example.com'].model == '{ESCAPE}'"
CLUSTER = (
    device_class(selectors=[SELECTOR]),
    node("a"),
    local_slice("a", attributes={"model": {"string": f"x{ESCAPE}"}}),
    claim("c"),
    pod("p", "c"),
)


async def test_an_explanation_has_a_selector_and_the_values_that_it_sees_without_their_escapes() -> None:
    async with client_of(Cluster.of(*CLUSTER).app()) as client:
        text = (await client.get("/explain/ns/p")).text
    assert ESCAPE not in text
    assert r"\x1b[31m\u202e" in text
    assert all(line.isprintable() for line in text.split("\n"))


async def test_a_reason_for_the_scheduler_has_none() -> None:
    """It becomes a condition of the pod and an Event, which others show."""
    broken = device_class(selectors=[f"device.attributes['gpu.example.com']['{ESCAPE}'] == 'x'"])
    cluster = Cluster.of(broken, *CLUSTER[1:])
    asked = asking(pod("p", "c"), "a")
    async with client_of(cluster.app()) as client:
        reply = (await client.post("/filter", json=asked)).json()
    (reason,) = {**reply["FailedNodes"], **reply["FailedAndUnresolvableNodes"]}.values()
    assert r"\x1b[31m\u202e" in reason
    assert reason.isprintable()


def test_a_value_in_a_message_is_shown_without() -> None:
    assert shown({"a": "\x9b\u202e\ud800"}) == r'{"a": "\x9b\u202e\ud800"}'


def test_the_caret_below_an_expression_is_where_the_error_is_seen() -> None:
    error = CompileError("'\u202e' + x", 6, "undeclared")
    _, expression, caret = str(error).splitlines()
    assert expression[caret.index("^")] == "x"


# --- the command line -----------------------------------------------------------------------------------------


def validated(path: Path, *options: str) -> Any:
    return CliRunner().invoke(app, ["validate", str(path), *options])


def test_no_name_in_a_file_makes_an_error_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a\nerror: b\x1b["}}))
    result = validated(path)
    assert result.exit_code in {0, FOUND_PROBLEMS}
    assert "\x1b" not in result.output
    assert [line for line in result.stderr.splitlines() if line.startswith("error: b")] == []


def test_half_a_character_in_a_name_is_reported_as_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a\\ud800"}}')
    result = validated(path, "--output", "json")
    assert result.exit_code == FOUND_PROBLEMS
    assert json.loads(result.stdout)[0]["errors"][0].startswith("Node a")


def test_half_a_character_anywhere_in_a_slice_or_class_is_told_by_field(tmp_path: Path) -> None:
    broken, own = local_slice("a"), device_class(selectors=["device.driver == 'x'"])
    broken["spec"]["devices"][0] |= {"name": "gpu\ud800", "attributes": {"m": {"string": "x\ud800"}}}
    own["spec"]["selectors"][0]["cel"]["expression"] = "device.driver == '\ud800'"
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [broken, own]}))
    result = validated(path)
    assert result.exit_code == FOUND_PROBLEMS
    for field in ("spec.devices[0].name", "spec.devices[0].attributes.m.string", "spec.selectors[0].cel.expression"):
        assert f": {field}: " in result.stderr


def test_the_log_on_a_terminal_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format="console"))
    structlog.get_logger().warning("event", error=EVIL.replace(" ", ""), nested={"a": EVIL})
    logging.getLogger("library").warning(EVIL)
    try:
        int(EVIL)
    except ValueError:
        structlog.get_logger().exception("failed")
    written = capsys.readouterr().err
    assert all(line.isprintable() for line in written.split("\n"))
    assert not any(line.startswith("ns/forged") for line in written.split("\n"))
