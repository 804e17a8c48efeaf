"""YAML as kubectl reads it: which scalars are numbers, what is refused, and where."""

import json
import os
import socket
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from extender.faces.commands.main import app
from extender.faces.commands.output import FOUND_PROBLEMS, USAGE
from extender.tools.files import UnreadableError, read_text
from extender.tools.yamltext import OTHER, SyntaxProblem, YamlDocument, documents, read_lines
from tests.kit.clusters import claim, local_slice, node, pod


def the(text: str) -> object:
    (document,) = documents(text)
    return document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0000:01:00.0", "0000:01:00.0"),
        ("12:30", "12:30"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("2024-01-01", "2024-01-01"),
        ("80Gi", "80Gi"),
        ("1.2.3", "1.2.3"),
        ("4", 4),
        ("-4", -4),
        ("010", 8),
        ("0x1F", 31),
        ("0b11", 3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("yes", True),
        ("off", False),
        ("y", "y"),
        ("null", None),
        ("~", None),
        ("", None),
        ('"4"', "4"),
        ("'yes'", "yes"),
        (".inf", ".inf"),
        ("=", "="),
        ("!!str 4", "4"),
        ("!!int 0x10", 16),
        ("!!float 4", 4.0),
        ("!!bool Yes", True),
        ("!!null x", None),
        ("! 4", 4),
        ("0b_", "0b_"),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_a_scalar_is_what_kubectl_takes_it_for(text: str, value: object) -> None:
    document = the(f"key: {text}")
    assert repr(document) == repr({"key": value})


def test_keys_are_strings() -> None:
    assert the("{1: a, true: b, 2024-01-01: c, ~: d}") == {"1": "a", "true": "b", "2024-01-01": "c", "~": "d"}


def test_anchors_and_merge_keys_are_resolved() -> None:
    assert the("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\nc: *x") == {
        "a": {"p": 1, "q": 2},
        "b": {"p": 1, "q": 3},
        "c": {"p": 1, "q": 2},
    }


def test_last_anchor_of_a_name_counts() -> None:
    assert the("a: &x 1\nb: &x 2\nc: *x") == {"a": 1, "b": 2, "c": 2}


def test_key_may_be_an_alias_of_a_scalar() -> None:
    assert the("a: &x 4\n*x : b\n? &y c\n: *y") == {"a": 4, "4": "b", "c": "c"}


def test_documents_are_read_on_their_own() -> None:
    text = "a: 1\n--- # second\nb: [1\n---\n\n--- {c: 3}\n---\nd: 4\ne: {{ .Values.e }}\n"
    first, second, third, fourth, fifth = documents(text)
    assert (first, third, fourth) == ({"a": 1}, None, {"c": 3})
    assert second == SyntaxProblem("did not find expected ',' or ']'", 3)
    assert fifth == SyntaxProblem("a key is not a string", 9)


def test_a_dash_line_in_a_block_is_no_separator() -> None:
    assert list(documents("a: |\n  ---\n  x\n---\nb: 1\n")) == [{"a": "---\nx\n"}, {"b": 1}]


def test_a_leading_separator_starts_the_first_document() -> None:
    assert list(documents("---\na: 1\n")) == [{"a": 1}]
    assert list(documents("# comment\n---\na: 1\n")) == [None, {"a": 1}]
    assert list(documents("")) == [None]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", 'line 3: the key "a" is there twice'),
        ("a: 1\nb: &x [*x]", "line 2: the value of the anchor &x contains itself"),
        ("a: &x\n  b: {<<: *x}", "line 2: the value of the anchor &x contains itself"),
        ("a: *nothing", "line 1: no anchor &nothing stands before this alias"),
        ("a: !!binary aGk=", "line 1: the tag !!binary is unknown here"),
        ("a: !!python/object:os.system x", "line 1: the tag !!python/object:os.system is unknown here"),
        ("a: !!str {}", "line 1: the tag !!str is unknown here"),
        ("a: 1\nb: !!bool maybe", 'line 2: "maybe" is not of type !!bool'),
        ("a: !!int", 'line 1: "" is not of type !!int'),
        ("a: 1\rb: 2\r---\rc: 3", "line 1: a document ends before this line; write --- between documents"),
        ("a: \x01", "line 1: control characters are not allowed"),
        ("a:\tb: c", "line 1: mapping values are not allowed in this context"),
        ("[" * 201 + "]" * 201, "line 1: nested deeper than 200"),
        ("a: 1\n" + "- " * 100_000 + "x", "line 1: nested deeper than 200"),
        ("{a: " * 100_000, "line 1: nested deeper than 200"),
        ("\ud800", "line 1: "),
    ],
)
def test_problems_name_the_line(text: str, problem: str) -> None:
    assert str(the(text)).startswith(problem)


@pytest.mark.parametrize("is_json", [True, False])
def test_deep_but_not_too_deep(*, is_json: bool) -> None:
    good, bad = (next(iter(documents("[" * deep + "]" * deep, is_json=is_json))) for deep in (200, 201))
    assert not isinstance(good, SyntaxProblem)
    assert bad == SyntaxProblem("nested deeper than 200", 1)


def test_what_is_nested_by_few_spaces_is_as_deep() -> None:
    text = "".join(f"{' ' * level}a:\n" for level in range(300))
    assert the(text) == SyntaxProblem("nested deeper than 200", 1)


def test_aliases_of_aliases_end_before_memory_does() -> None:
    rows = [f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]" for before, name in pairwise("abcdefghi")]
    assert the("a: &a [1]\n" + "\n".join(rows)) == SyntaxProblem("aliases make the document too large", 1)
    assert the("a: &a [1]\n" + "\n".join(rows[:3])) is not None


def merging(levels: int, names: int) -> str:
    """Mappings in rows: each row merges all of the row before, as often as there are names."""
    first = "a0: &a0 {" + ", ".join(f"k{index}: 1" for index in range(10)) + "}\n"
    return first + "".join(
        f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * names)}]\n" for level in range(1, levels)
    )


def test_merges_of_merges_bring_each_key_once() -> None:
    found = the(merging(30, 9))
    assert isinstance(found, dict)
    assert found["a29"] == {f"k{index}": 1 for index in range(10)}


def test_merges_end_before_memory_does() -> None:
    assert the("x: 1\n" + merging(60, 200)) == SyntaxProblem("merge keys make the document too large", 104)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("c: &c {x: 9, z: 1}\nb: &b {x: 1, y: 2}\na: {<<: [*b, *c], y: 3}", {"x": 1, "y": 3, "z": 1}),
        ("a: &a {<<: *a, b: 1}", {"b": 1}),
        ("a: {<<: {<<: {b: 1}, c: 2}}", {"b": 1, "c": 2}),
        ("a: {<<: 1}", "line 1: a merge key needs a mapping"),
        ("b: 1\na: {<<: [1]}", "line 2: a merge key needs a mapping"),
        ("a: {<<: {[1]: 2}}", "line 1: a key is not a string"),
    ],
)
def test_what_merge_keys_bring(text: str, value: object) -> None:
    found = the(text)
    if isinstance(value, str):
        assert str(found).startswith(value)
    else:
        assert isinstance(found, dict)
        assert found["a"] == value


def test_number_that_no_float_holds_is_refused_and_not_read_as_infinite() -> None:
    assert the("a: 1\nb: -1e400") == SyntaxProblem('"-1e400" is too large for a number', 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, "x", null, true]}', {"a": [1, 2.5, "x", None, True]}),
        ("  ", None),
        ('{"a": NaN}', SyntaxProblem("NaN is not JSON", 1)),
        ('{"a": 1e400}', SyntaxProblem('"1e400" is too large for a number', 1)),
        ('{"a":\n 1', SyntaxProblem("Expecting ',' delimiter", 2)),
    ],
)
def test_json_is_read_as_it_is(text: str, value: object) -> None:
    assert list(documents(text, is_json=True)) == [value]


def test_json_nested_too_deep_to_be_read() -> None:
    assert list(documents("[" * 100_000, is_json=True)) == [SyntaxProblem("nested deeper than 200", 1)]


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(max_codepoint=0xD7FF))
keys = st.text(st.characters(max_codepoint=0xD7FF), max_size=100)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner),
    max_leaves=10,
)


@given(values)
def test_json_read_as_yaml_is_the_same_value(value: object) -> None:
    """But for pairs of surrogates in escapes, which YAML does not have, and keys of over 1,024 characters."""
    text = json.dumps(value)
    assert list(documents(text)) == list(documents(text, is_json=True)) == [value]


@given(st.text(alphabet="ab:- {}[]&*!|>'\"\n#,?%@`0123456789.\\", max_size=60))
def test_any_text_is_values_or_problems(text: str) -> None:
    for document in documents(text):
        assert isinstance(document, SyntaxProblem) or json.dumps(document) is not None


# Documents that are read line by line have the values that they have by libyaml.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("---\na: 1\n\n", {"a": 1}),
        ("a: yes\nb: 'yes'\nc: \"yes\"\nd: null\ne: ''", {"a": True, "b": "yes", "c": "yes", "d": None, "e": ""}),
        (
            "a: 0000:01:00.0\nb: -x y (z)\nc: --with\nd: -4",
            {"a": "0000:01:00.0", "b": "-x y (z)", "c": "--with", "d": -4},
        ),
        ("1: a\nyes: b\na.example.com/b-c: d", {"1": "a", "yes": "b", "a.example.com/b-c": "d"}),
        ("a:\n  b:\n    c: 1\n  d: 2\ne: 3", {"a": {"b": {"c": 1}, "d": 2}, "e": 3}),
        ("a:\nb:\n  c:", {"a": None, "b": {"c": None}}),
        ("a: []\nb: {}\nc:\n- {}\n- []", {"a": [], "b": {}, "c": [{}, []]}),
        ("a:\n- 1\n- b: 2\n  c: 3\n- d:\nb: 4", {"a": [1, {"b": 2, "c": 3}, {"d": None}], "b": 4}),
        ("a:\n  - b:\n    - 1\n    c: 2\n  - 3", {"a": [{"b": [1], "c": 2}, 3]}),
        ("a:\n- - - 1\n    - 2\n  - - 3\n- - b: 4\n    c: 5", {"a": [[[1, 2], [3]], [{"b": 4, "c": 5}]]}),
    ],
)
def test_a_key_or_an_entry_a_line_is_read(text: str, value: object) -> None:
    assert repr(read_lines(text)) == repr(value) == repr(YamlDocument(text).read())


def test_documents_share_no_collections() -> None:
    first, second = read_lines("a: []\nb: {}"), read_lines("a: []\nb: {}")
    first["a"].append(1)
    first["b"]["c"] = 2
    assert second == read_lines("a: []\nb: {}") == {"a": [], "b": {}}


@pytest.mark.parametrize("obj", [pod("p", "c"), claim("c"), node("n", labels={"x": "y"}), local_slice("n", 2)])
def test_usual_objects_are_read(obj: dict[str, Any]) -> None:
    assert read_lines(yaml.safe_dump(obj)) == obj


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a",
            "- a",
            "{a: 1}",
            "a: 1\n\nb: 2",
            "a: 1\n# b",
            "a: 1 # b",
            "a: 1 ",
            "a:  1",
            "a:\t1",
            "a : 1",
            "a: 1\r",
        ),
        *(
            "a: |\n  b",
            "a: >\n  b",
            "a: b\n  c",
            "a:\n  b\n  c",
            "a: 'b\n  c'",
            "a: 'it''s'",
            'a: "\\n"',
            "a: é",
            "a: \x01",
        ),
        *("a: &x 1\nb: *x", "a: !!str 1", "a: {b: 1}", "a: [1]", "<<: {}", "? a\n: b", "a: b: c", "a: b #c", "'a': 1"),
        *(
            "a: 1\na: 2",
            "a: 1\n  b: 2",
            " a: 1\nb: 2",
            "a:\n  b: 1\n c: 2",
            "a: 1\n- b",
            "a:\n- 1\n  b: 2",
            "- a\nb: 1",
        ),
        *("a:\n-  b", "a:\n-\n  b", "a: -", "a:\n  - 1\n - 2", "a: 1e999", "a: 1\n...\nb: 2", "a: 1\n---\nb: 2"),
        "".join(f"{' ' * level}a:\n" for level in range(190)),
        "a:\n" + "".join(f"{' ' * level}- - - - - - - - - 1\n" for level in range(0, 340, 18)),
    ],
)
def test_all_else_is_left_to_libyaml(text: str) -> None:
    assert read_lines(text) is OTHER


scalars = st.sampled_from(
    [None, True, 0, -1, 1.5, "x", "", "x y", "yes", "1", "-", "- x", "a: b", "80Gi", "é", "~", "it's"]
)
names = st.sampled_from(["a", "b", "c", "x.y/z", "1", "yes"])
inner = st.recursive(
    scalars, lambda part: st.lists(part, max_size=3) | st.dictionaries(names, part, max_size=3), max_leaves=8
)
lines = st.builds(
    lambda indent, dashes, text: " " * indent + "- " * dashes + text,
    st.sampled_from([0, 0, 2, 2, 4, 1, 3]),
    st.sampled_from([0, 0, 0, 1, 1, 2]),
    st.sampled_from(
        ["a:", "b:", "a: 1", "b: x y", "c: '1'", "c: []", "x", "-x", "1", "a: b: c", "#", "x:y", "", "---", "|"]
    ),
)


def value_of(text: str) -> object:
    try:
        return YamlDocument(text).read()
    except (yaml.YAMLError, ValueError) as error:
        return error


def is_read_alike(text: str) -> bool:
    """Whether `read_lines` leaves a text to libyaml, or finds the value that libyaml finds."""
    found = read_lines(text)
    return found is OTHER or repr(found) == repr(value_of(text))


@settings(max_examples=300)
@given(st.lists(lines, max_size=8))
def test_lines_are_read_as_libyaml_reads_them(text: list[str]) -> None:
    assert is_read_alike("\n".join(text))


@settings(max_examples=300)
@given(st.dictionaries(names, inner, max_size=3), st.integers(0, 200), st.sampled_from(["", *" -:'\"#[{x1\n\t"]))
def test_a_written_document_and_one_with_a_typing_error_are_read_as_libyaml_reads_them(
    value: dict[str, Any], at: int, typed: str
) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    assert is_read_alike(text[:at] + typed + text[at:])


# Files that somebody names: only files are read, and not without end.


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


MAKERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe that nobody writes to": (os.mkfifo, "it is a pipe, not a file"),
    "zeros without end": (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a file"),
    "a folder": (Path.mkdir, "Is a directory"),
    "a socket": (_socket, "No such device or address"),
    "a file without end": (_endless, "it is longer than 33554432 bytes"),
    "a file that is no text": (lambda path: path.write_bytes(b"\xff"), "it is not text in UTF-8"),
    "nothing": (lambda path: path, "No such file or directory"),
}


@pytest.fixture(params=[*MAKERS.values()], ids=[*MAKERS])
def unreadable(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    make, why = request.param
    path = tmp_path / "f"
    make(path)
    return path, f"cannot be read: {why}"


def test_what_is_no_text_file_is_told(unreadable: tuple[Path, str]) -> None:
    path, why = unreadable
    with pytest.raises(UnreadableError) as error:
        read_text(path)
    assert str(error.value) == why


def test_settings_are_read_from_files_only(unreadable: tuple[Path, str]) -> None:
    path, why = unreadable
    result = CliRunner().invoke(app, ["config", "check", "--config", str(path)])
    assert (result.exit_code, result.stderr) == (USAGE, f"error: {path}: {why}\n")


def test_a_file_of_node_templates_that_cannot_be_read_is_named(unreadable: tuple[Path, str]) -> None:
    path, why = unreadable
    environment = {"DRA_EXTENDER__AUTOSCALER__NODE_TEMPLATES": str(path)}
    result = CliRunner().invoke(app, ["config", "check"], env=environment)
    assert (result.exit_code, result.stderr) == (FOUND_PROBLEMS, f"error: autoscaler.nodeTemplates: {path}: {why}\n")


def test_a_kubeconfig_that_cannot_be_read_is_named(unreadable: tuple[Path, str]) -> None:
    path, why = unreadable
    result = CliRunner().invoke(app, ["audit", "--kubeconfig", str(path)])
    expected = f"{path}: {why}" if path.exists() else f"{path}: no such file"
    assert (result.exit_code, result.stderr) == (USAGE, f"error: {expected}\n")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a: é", encoding="utf-8-sig")
    assert read_text(path) == "a: é"
