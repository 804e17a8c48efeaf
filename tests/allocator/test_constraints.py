"""matchAttribute and distinctAttribute: over values of every type, lists, and requests by name."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TypeAlias

import pytest

from allocator import (
    Allocation,
    AttributeValue,
    ConstraintKind,
    ConstraintSpec,
    Device,
    DeviceClass,
    DeviceId,
    Features,
    InvalidClaimError,
    Request,
    SelectorError,
    Version,
)
from allocator.model.claims import DerivedAttribute
from allocator.model.features import ALL_FEATURES
from allocator.policies import BEST_FIT, FIRST_FIT, Policy
from allocator.search.constraints import CONSTRAINTS, Constraint, DistinctAttribute, MatchAttribute
from tests.allocator.worlds import DRIVER, World, alternative, claim, device, different, first_of, pool, same, want

NO_LISTS = replace(ALL_FEATURES, list_type_attributes=False)
V1, V2 = Version.parse("1.0.0"), Version.parse("2.0.0")
MISSING = None
Root: TypeAlias = AttributeValue | None


def rooted(*values: Root) -> list[Device]:
    """gpu-0, gpu-1, ... with the values as their root; None: without."""
    return [device(f"gpu-{i}", {} if v is None else {"root": v}) for i, v in enumerate(values)]


def pick(
    values: tuple[Root, ...], constraint: ConstraintSpec, features: Features, policy: Policy = FIRST_FIT
) -> list[int] | str:
    """Which two of the devices the claim gets under the constraint."""
    got = World(pool(*rooted(*values)), features=features, policy=policy).devices(claim(want("gpu", 2), constraint))
    return got if isinstance(got, str) else [int(name.removeprefix("gpu-")) for name in got[0]]


NO = f"no devices for request gpu satisfy constraint on {DRIVER}/root"

Rows: TypeAlias = list[tuple[tuple[Root, ...], list[int] | str]]

MATCH: Rows = [
    # values of gpu-0, gpu-1, ...; the devices that two places get
    (("a", "a"), [0, 1]),
    (("a", "b"), NO),
    (("a", "b", "a"), [0, 2]),
    (("a", "b", "b"), [1, 2]),
    (("a", "A"), NO),
    (("a", MISSING, "a"), [0, 2]),
    ((MISSING, MISSING), NO),
    ((1, 1), [0, 1]),
    ((1, 2), NO),
    ((1, True), NO),
    ((0, False), NO),
    ((True, True), [0, 1]),
    (("1", 1), NO),
    ((V1, Version.parse("1.0.0")), [0, 1]),
    ((V1, V2), NO),
    ((V1, "1.0.0"), NO),
    ((V1, Version.parse("1.0.0+build")), NO),
]
MATCH_LISTS: Rows = [
    ((("a", "b"), ("b", "c")), [0, 1]),
    ((("a",), ("b",)), NO),
    ((("a", "b"), "b"), [0, 1]),
    (("c", ("a", "b")), NO),
    (((1,), (True,)), NO),
    (((V1,), (V1, V2)), [0, 1]),
]


@pytest.mark.parametrize("features", [ALL_FEATURES, NO_LISTS], ids=["lists", "no lists"])
@pytest.mark.parametrize(("values", "expected"), MATCH)
def test_all_devices_share_a_value(values: tuple[Root, ...], expected: list[int] | str, features: Features) -> None:
    assert pick(values, same("root"), features) == expected


DISTINCT: Rows = [
    (("a", "b"), [0, 1]),
    (("a", "a"), NO),
    (("a", "a", "b"), [0, 2]),
    (("a", MISSING, "b"), [0, 2]),
    (("a", MISSING), NO),
    ((1, True), [0, 1]),
    (("1", 1), [0, 1]),
    ((V1, V2), [0, 1]),
    ((V1, V1), NO),
]
DISTINCT_LISTS: Rows = [
    ((("a", "b"), ("c",)), [0, 1]),
    ((("a", "b"), ("b", "c")), NO),
    ((("a", "b"), "b", "c"), [0, 2]),
    ((("a", "a"), "b"), [0, 1]),
]


@pytest.mark.parametrize("features", [ALL_FEATURES, NO_LISTS], ids=["lists", "no lists"])
@pytest.mark.parametrize(("values", "expected"), DISTINCT)
def test_no_two_devices_share_a_value(values: tuple[Root, ...], expected: list[int] | str, features: Features) -> None:
    assert pick(values, different("root"), features) == expected


@pytest.mark.parametrize(
    ("constraint", "values", "expected"),
    [(same("root"), *row) for row in MATCH_LISTS] + [(different("root"), *row) for row in DISTINCT_LISTS],
)
def test_lists_are_compared_by_their_elements(
    constraint: ConstraintSpec, values: tuple[Root, ...], expected: list[int] | str
) -> None:
    assert pick(values, constraint, ALL_FEATURES) == expected


class BareMatch(MatchAttribute):
    """A kind of constraint that tells pruning and policies nothing beyond `admits`."""

    def admitted_values(self) -> None:
        return None

    @staticmethod
    def group_sizes(values: Mapping[int, frozenset[Hashable]], /) -> Mapping[int, int]:
        return Constraint.group_sizes(values)


class BareDistinct(DistinctAttribute):
    """The same for distinctAttribute."""

    @staticmethod
    def least_values(devices: int, /) -> int:
        return Constraint.least_values(devices)


@pytest.mark.parametrize("policy", [FIRST_FIT, BEST_FIT], ids=lambda p: p.name)
def test_a_kind_needs_no_more_than_the_values_that_it_admits(monkeypatch: pytest.MonkeyPatch, policy: Policy) -> None:
    monkeypatch.setitem(CONSTRAINTS, ConstraintKind.MATCH, BareMatch)
    monkeypatch.setitem(CONSTRAINTS, ConstraintKind.DISTINCT, BareDistinct)
    for constraint, rows in ((same("root"), MATCH + MATCH_LISTS), (different("root"), DISTINCT + DISTINCT_LISTS)):
        for values, expected in rows:
            assert pick(values, constraint, ALL_FEATURES, policy) == expected


def test_every_kind_has_its_rule_in_the_search() -> None:
    assert set(CONSTRAINTS) == set(ConstraintKind)


UNKNOWN_TYPE: Root = ()
"""A value of a type that this version doesn't know."""

LISTS_OFF = [
    # a list, or a value of an unknown type, suits only as the first device of a constraint; in matchAttribute nothing
    # goes with it
    (same("root"), (("a",), "a"), NO),
    (same("root"), (("a",), ("a",)), NO),
    (same("root"), ("a", ("a",)), NO),
    (same("root"), (("a",), "a", "a"), [1, 2]),
    (different("root"), (("a",), "a"), [0, 1]),
    (different("root"), ("a", ("b",)), NO),
    (different("root"), (("a",), ("b",)), NO),
    (different("root"), ("a", ("b",), "a", "c"), [0, 3]),
    (same("root"), (UNKNOWN_TYPE, "a"), NO),
    (same("root"), (UNKNOWN_TYPE, UNKNOWN_TYPE), NO),
    (same("root"), (UNKNOWN_TYPE, "a", "a"), [1, 2]),
    (different("root"), (UNKNOWN_TYPE, "a"), [0, 1]),
    (different("root"), ("a", UNKNOWN_TYPE), NO),
    (different("root"), (UNKNOWN_TYPE, UNKNOWN_TYPE), NO),
]


@pytest.mark.parametrize("policy", [FIRST_FIT, BEST_FIT], ids=lambda p: p.name)
@pytest.mark.parametrize(("constraint", "values", "expected"), LISTS_OFF)
def test_a_list_suits_only_as_first_device_while_lists_are_off(
    constraint: ConstraintSpec, values: tuple[Root, ...], expected: list[int] | str, policy: Policy
) -> None:
    assert pick(values, constraint, NO_LISTS, policy) == expected


@pytest.mark.parametrize("constraint", [same("root"), different("root")], ids=["same", "different"])
@pytest.mark.parametrize(
    ("features", "value", "expected"),
    [
        (ALL_FEATURES, UNKNOWN_TYPE, NO),
        (NO_LISTS, UNKNOWN_TYPE, [["gpu-0"]]),
        (NO_LISTS, MISSING, NO),
    ],
)
def test_a_value_of_an_unknown_type_suits_a_constraint_alone_while_lists_are_off(
    constraint: ConstraintSpec, features: Features, value: Root, expected: list[list[str]] | str
) -> None:
    assert World(pool(*rooted(value)), features=features).devices(claim(want(), constraint)) == expected


class TestCoverage:
    """gpu-0, gpu-1, gpu-2 with roots a, b, b, for two requests of one device each."""

    devices = tuple(rooted("a", "b", "b"))

    @pytest.mark.parametrize(
        ("constraints", "expected"),
        [
            ((), ["gpu-0", "gpu-1"]),
            ((same("root"),), ["gpu-1", "gpu-2"]),
            ((same("root", "x", "y"),), ["gpu-1", "gpu-2"]),
            ((same("root", "x"),), ["gpu-0", "gpu-1"]),
            ((same("root", "z"),), ["gpu-0", "gpu-1"]),
            ((same("root", "x"), same("root", "y")), ["gpu-0", "gpu-1"]),
            ((different("root"),), ["gpu-0", "gpu-1"]),
            ((same("root", "x", "y"), same("root", "y")), ["gpu-1", "gpu-2"]),
        ],
        ids=str,
    )
    def test_a_constraint_covers_requests_by_name(
        self, constraints: tuple[ConstraintSpec, ...], expected: list[str]
    ) -> None:
        assert World(pool(*self.devices)).devices(claim(want("x"), want("y"), *constraints)) == [expected]

    @pytest.mark.parametrize(
        ("names", "expected"),
        [(("x", "y"), ["gpu-1", "gpu-2"]), (("x/one", "y"), ["gpu-1", "gpu-2"]), (("x/two", "y"), ["gpu-0", "gpu-1"])],
        ids=str,
    )
    def test_a_constraint_covers_subrequests_by_name(self, names: tuple[str, ...], expected: list[str]) -> None:
        first = first_of("x", alternative("one"), alternative("two"))
        assert World(pool(*self.devices)).devices(claim(first, want("y"), same("root", *names))) == [expected]

    def test_contradictory_constraints_are_a_no(self) -> None:
        world = World(pool(*self.devices))
        assert world.devices(claim(want("x", 2), same("root"), different("root"))) == (
            f"no devices for request x satisfy constraint on {DRIVER}/root"
        )

    def test_a_constraint_does_not_reach_into_other_claims(self) -> None:
        world = World(pool(*self.devices))
        one, two = (claim(want("x"), same("root"), name=name) for name in ("one", "two"))
        assert world.devices(one, two) == [["gpu-0"], ["gpu-1"]]


def test_an_attribute_in_a_domain_of_its_own_spans_drivers() -> None:
    root = "resource.kubernetes.io/pcieRoot"
    gpus = [device(f"gpu-{i}", {root: f"pci{i}"}) for i in range(3)]
    nics = [device("nic-0", {root: "pci2"}, driver="nic.example.com")]
    classes = {"any": DeviceClass("any"), "nic": DeviceClass("nic", ('device.driver == "nic.example.com"',))}
    world = World([*pool(*gpus), *pool(*nics)], classes=classes)
    nic = Request("nic", (replace(alternative(""), device_class="nic"),))
    together = ConstraintSpec(ConstraintKind.MATCH, root)
    assert world.devices(claim(want("gpu"), nic, together)) == [["gpu-2", "nic-0"]]


def test_a_name_of_another_driver_is_missing() -> None:
    world = World(pool(*rooted("a", "a")))
    foreign = ConstraintSpec(ConstraintKind.MATCH, "nic.example.com/root")
    assert (
        world.devices(claim(want(), foreign)) == "no devices for request gpu satisfy constraint on nic.example.com/root"
    )


def test_a_constraint_of_an_unknown_kind_is_an_error() -> None:
    world = World(pool(*rooted("a")))
    with pytest.raises(InvalidClaimError, match="constraint 1 is of an unknown kind"):
        world.allocate(claim(want(), same("root"), ConstraintSpec(None)))


class TestDerivedAttributes:
    """An attribute that a request computes, for its constraints only."""

    half = DerivedAttribute(f"{DRIVER}/half", f"device.attributes['{DRIVER}'].index / 2")
    devices = tuple(device(f"gpu-{i}", {"index": i}) for i in range(4))

    def test_a_derived_attribute_is_seen_by_constraints(self) -> None:
        pair = want("gpu", 2, derived_attributes=(self.half,))
        world = World(pool(*self.devices[1:]))
        assert world.devices(claim(pair, same("half"))) == [["gpu-2", "gpu-3"]]

    def test_a_derived_attribute_shadows_the_published_one_in_its_request(self) -> None:
        index = DerivedAttribute(f"{DRIVER}/index", "7")
        world = World(pool(*self.devices))
        assert world.devices(claim(want("a", 2, derived_attributes=(index,)), same("index", "a"))) == [
            ["gpu-0", "gpu-1"]
        ]
        assert world.devices(claim(want("a", 2), same("index", "a"))) == (
            f"no devices for request a satisfy constraint on {DRIVER}/index"
        )

    def test_a_derived_attribute_fails_on_a_device_with_a_value_of_an_unknown_type(self) -> None:
        empty = DerivedAttribute(f"{DRIVER}/root", "[]")
        world = World(pool(device("gpu-0", {"odd": ()})))
        with pytest.raises(SelectorError, match=f"attribute {DRIVER}/odd: unsupported value"):
            world.allocate(claim(want("gpu", derived_attributes=(empty,)), same("root")))

    def test_a_failing_derived_attribute_names_itself_and_the_device(self) -> None:
        broken = DerivedAttribute(f"{DRIVER}/root", f"device.attributes['{DRIVER}'].gone")
        world = World(pool(*self.devices))
        with pytest.raises(SelectorError) as caught:
            world.allocate(claim(want("gpu", derived_attributes=(broken,)), same("root")))
        error = caught.value
        assert (error.claim, error.request, error.source) == (
            "default/claim",
            "gpu",
            f"derived attribute {DRIVER}/root",
        )
        assert error.device == DeviceId(DRIVER, "node-1", "gpu-0")

    @pytest.mark.parametrize("features", [ALL_FEATURES, NO_LISTS], ids=["lists", "no lists"])
    @pytest.mark.parametrize("expression", ["[]", "['a']"])
    def test_a_derived_list_suits_only_a_first_device_without_list_attributes(
        self, features: Features, expression: str
    ) -> None:
        """Without list-typed attributes, any list suits a constraint as its first device, and as no other."""
        listed = DerivedAttribute(f"{DRIVER}/half", expression)
        world = World(pool(*self.devices), features=features)
        suits_one = features is NO_LISTS or expression != "[]"
        suits_two = features is ALL_FEATURES and expression != "[]"
        for number, suits in ((1, suits_one), (2, suits_two)):
            answer = world.allocate(claim(want("gpu", number, derived_attributes=(listed,)), same("half")))
            assert isinstance(answer, Allocation) is suits

    def test_a_derived_attribute_without_a_constraint_is_not_computed(self) -> None:
        broken = DerivedAttribute(f"{DRIVER}/root", f"device.attributes['{DRIVER}'].gone")
        world = World(pool(*self.devices))
        assert world.devices(claim(want("gpu", derived_attributes=(broken,)), same("index"))) == [["gpu-0"]]


@pytest.mark.parametrize("kind", [MatchAttribute, DistinctAttribute])
@pytest.mark.parametrize("lists", [True, False])
def test_a_refusal_changes_nothing(kind: type[MatchAttribute | DistinctAttribute], lists: bool) -> None:
    constraint = kind(lists=lists)
    values: list[AttributeValue] = ["a", "a", "b", ("a", "c"), (), 1, True, V1]
    for value in values:
        before = constraint.key()
        undo = constraint.take(value)
        if undo is None:
            assert constraint.key() == before
        else:
            undo()
            assert constraint.key() == before
            constraint.take(value)
