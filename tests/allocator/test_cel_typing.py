"""What the checker finds out about types, by cel-go's rules; and what an overload does with values of another type."""

import pytest

from allocator import Device, DeviceId
from allocator.cel import CompileError, Environment, Kind, compile_expression

DEVICE = Device(DeviceId("d", "pool", "device"), attributes={"d/names": ("b", "a"), "d/name": "a", "d/index": 1})
NAMES, NAME, INDEX = (f'device.attributes["d"].{name}' for name in ("names", "name", "index"))


@pytest.mark.parametrize(
    ("expression", "yields"),
    [
        (f"type({NAMES}.distinct().sort()[0]) == string", "true"),
        # `distinct` of a dyn is a list of anything. `sort` takes that for the first type that has an order: int.
        (f"{NAMES}.distinct().sort().isSorted()", "no such overload"),
        (f"[{NAMES}].flatten().sort().sort().isSorted()", "no such overload"),
        (f"{NAMES}.sort().isSorted()", "true"),
        (f"{NAMES}.distinct().max() == 'b'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("[dyn('a')].flatten() == ['a']", "true"),
        ("dyn(1).flatten() == []", "no such overload"),
        ("dyn([1]).flatten(dyn('a')) == []", "no such overload"),
        # An index of an element of an empty list makes that element a list.
        ("[].map(x, x[0][0]) == []", "true"),
        ("[].all(x, x[0] == 1 && x.a == 1)", "does not support field selection"),
        ("[].all(x, x.a == 1 && x[0] == 1)", "true"),
        ("[].all(x, x.exists(y, y) && x == 1)", "true"),
        (f"({INDEX} == 1 ? [] : [1]) == [1]", "false"),
        (f"type({INDEX} == 1 ? {NAME} : 'b') == string", "true"),
        (f"optional.of({NAME}).or(optional.of(1)).value() == 'a'", "true"),
        ("optional.none().orValue(1) + 1 == 2", "true"),
        ("optional.none().orValue('a') + 1 == 2", "found no matching overload for '_+_' applied to '(string, int)'"),
        ("dyn([1])[?0] == 1", "false"),
        ("[?optional.none(), 1] == [1]", "true"),
        ("[?1] == [1]", "expected type 'optional_type' but found 'int'"),
        ("[1].map(x, x + 'a') == []", "found no matching overload"),
    ],
)
def test_expression_has_the_types_of_cel_go(expression: str, yields: str) -> None:
    assert yields in outcome(expression)


@pytest.mark.parametrize(
    "expression",
    [
        # The first list has strings when it is checked. `in` then makes the type of its second element dyn.
        f"{NAME} in ['a', [{NAMES}].flatten()[0]]",
        f"[[].slice(0, 0).map(v, {INDEX}), {INDEX} == 1 ? lists.range(2) : []].flatten() == []",
        "['a', dyn('b')] == []",
        "{'a': 1, 'b': dyn(2)} == {}",
        "{dyn('a'): 1, 'b': 2} == {}",
    ],
)
def test_list_or_map_of_two_types_does_not_compile(expression: str) -> None:
    assert "expected type" in outcome(expression)


@pytest.mark.parametrize("key", ["null", "b'a'", "[1]", "{}", "int", "timestamp(0)", "dyn(b'a')"])
def test_constant_that_is_no_index_does_not_compile(key: str) -> None:
    assert "invalid qualifier type" in outcome(f"dyn({{}})[{key}] == 1")


@pytest.mark.parametrize("name", ["kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "net.Ip", "dyn"])
def test_name_of_a_type_that_upstream_does_not_declare_does_not_compile(name: str) -> None:
    assert "undeclared reference" in outcome(f"type(1) == {name}")


def test_lists_come_before_strings_only_in_new_expressions() -> None:
    """The overload that comes first determines the type of an element that has none yet."""
    expression = "[].all(x, x.indexOf('a') == 0 && x == 'a')"
    assert outcome(expression, Kind.STORED) == "true"
    assert "found no matching overload" in outcome(expression, Kind.NEW)


def outcome(expression: str, kind: Kind = Kind.STORED) -> str:
    """The value or the error of an expression, the same with and without counting."""
    try:
        program = compile_expression(expression, Environment(kind))
    except CompileError as error:
        return error.message
    measured = program.measure(DEVICE)
    return str(measured.error or str(measured.value).lower())
