"""YAML as kubectl reads it: which scalars are numbers, what is refused, and where."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.tools.yamltext import SyntaxProblem, documents


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
