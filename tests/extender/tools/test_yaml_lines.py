"""Documents that are read line by line have the values that they have by libyaml."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.tools.yamltext import OTHER, YamlDocument, read_lines
from tests.kit.clusters import claim, local_slice, node, pod


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
