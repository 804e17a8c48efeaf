"""What a request gets: counts, all devices, alternatives, limits, admin access. One pool of gpu-0, gpu-1, ..."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from allocator import (
    Claim,
    ConstraintSpec,
    Device,
    DeviceTaint,
    InvalidClaimError,
    NodeUnsuitableError,
    Placement,
    Request,
    Slice,
    Usage,
)
from tests.allocator.worlds import (
    DRIVER,
    World,
    alternative,
    claim,
    device,
    different,
    first_of,
    held,
    pool,
    pool_id,
    same,
    want,
)

BIG = f"device.attributes['{DRIVER}'].big"


NONE = Request("none", (replace(alternative(""), count=0),))


def gpus(number: int, *big: int) -> list[Device]:
    return [device(f"gpu-{i}", {"big": i in big}) for i in range(number)]


class Case(NamedTuple):
    """A few devices, what is held of them, and what the claims get: device names, or why nothing."""

    name: str
    devices: Sequence[Device]
    claims: Sequence[Claim | Request]
    gets: list[list[str]] | str
    usage: Usage = Usage()


def answer(case: Case) -> list[list[str]] | str:
    claims = [c if isinstance(c, Claim) else claim(c, name=f"c{i}") for i, c in enumerate(case.claims)]
    return World(pool(*case.devices), case.usage).devices(*claims)


def ids(case: Case) -> str:
    return case.name


COUNTS = [
    Case("one", gpus(2), [want()], [["gpu-0"]]),
    Case("several, as listed", gpus(3), [want("gpu", 2)], [["gpu-0", "gpu-1"]]),
    Case("as many as there are", gpus(2), [want("gpu", 2)], [["gpu-0", "gpu-1"]]),
    Case("one too many", gpus(2), [want("gpu", 3)], "not enough free devices for request gpu"),
    Case("only what matches", gpus(3, 1), [want("gpu", 1, BIG)], [["gpu-1"]]),
    Case("nothing matches", gpus(3), [want("gpu", 1, BIG)], "no device matches request gpu"),
    Case("all selectors must match", gpus(2, 0, 1), [want("gpu", 1, BIG, f"!{BIG}")], "no device matches request gpu"),
    Case("what is held is passed over", gpus(2), [want()], [["gpu-1"]], held("gpu-0")),
    Case("all is held", gpus(1), [want()], "no free device for request gpu", held("gpu-0")),
    Case(
        "what is held would not match either",
        gpus(1),
        [want("gpu", 1, 'device.driver == "other"')],
        "no device matches request gpu",
        held("gpu-0"),
    ),
    Case("held elsewhere", gpus(1), [want()], [["gpu-0"]], held("gpu-0", pool_name="other")),
    Case("held by another driver", gpus(1), [want()], [["gpu-0"]], held("gpu-0", driver="nic.example.com")),
    Case("two requests never share", gpus(2), [claim(want("a"), want("b"))], [["gpu-0", "gpu-1"]]),
    Case("two claims never share", gpus(2), [want("a"), want("b")], [["gpu-0"], ["gpu-1"]]),
    Case("two claims, one device", gpus(1), [want("a"), want("b")], "not enough free devices for request b"),
    Case("an earlier request makes room", gpus(2, 0), [want("a"), want("b", 1, BIG)], [["gpu-1"], ["gpu-0"]]),
    Case("no devices wanted", gpus(1), [NONE], [[]]),
    Case(
        "no devices wanted, before a dead end",
        gpus(2),
        [claim(want("a"), NONE, want("b", 2))],
        "not enough free devices for request b",
    ),
    Case("no requests", gpus(1), [claim()], [[]]),
    Case("no claims", gpus(1), [], []),
    Case(
        "no devices",
        [device("nic", driver="nic.example.com")],
        [want("gpu", 1, "false")],
        "no device matches request gpu",
    ),
]


@pytest.mark.parametrize("case", COUNTS, ids=ids)
def test_a_request_gets_exactly_as_many_devices_as_it_asks_for(case: Case) -> None:
    assert answer(case) == case.gets


def test_a_node_without_devices_is_a_no() -> None:
    assert World([]).devices(claim(want())) == "no device for request gpu"


ALL = [
    Case("every device", gpus(3), [want("gpu", None)], [["gpu-0", "gpu-1", "gpu-2"]]),
    Case("every one that matches", gpus(3, 0, 2), [want("gpu", None, BIG)], [["gpu-0", "gpu-2"]]),
    Case("at least one", gpus(3), [want("gpu", None, BIG)], "no device matches request gpu"),
    Case("one is held", gpus(2), [want("gpu", None)], "no free device for request gpu", held("gpu-1")),
    Case("what is held need not match", gpus(2, 1), [want("gpu", None, BIG)], [["gpu-1"]], held("gpu-0")),
    Case("an earlier claim takes one", gpus(2), [want("a"), want("b", None)], "no free device for request b"),
    Case("an earlier claim takes another", gpus(2, 1), [want("a"), want("b", None, BIG)], [["gpu-0"], ["gpu-1"]]),
    Case("all twice", gpus(2), [want("a", None), want("b", None)], "no free device for request b"),
    Case(
        "one is tainted",
        [*gpus(1), device("sick", {"big": False}, taints=(DeviceTaint("k", "NoSchedule", "v"),))],
        [want("gpu", None)],
        "untolerated device taint for request gpu",
    ),
    Case(
        "one is taken, and a constraint would hold",
        gpus(2),
        [claim(want("a"), want("b", None), same("big", "b"))],
        "no free device for request b",
    ),
    Case("a constraint that holds", gpus(2), [claim(want("gpu", None), same("big"))], [["gpu-0", "gpu-1"]]),
]


@pytest.mark.parametrize("case", ALL, ids=ids)
def test_a_request_for_all_devices_gets_all_or_none(case: Case) -> None:
    assert answer(case) == case.gets


class TestAllDevicesRefuse:
    @pytest.mark.parametrize("constraint", [same("big"), different("other")], ids=["not the same", "no attribute"])
    def test_all_devices_with_a_violated_constraint_are_an_error(self, constraint: ConstraintSpec) -> None:
        world = World(pool(*gpus(2, 1)))
        with pytest.raises(NodeUnsuitableError, match="asks for all devices, but one would violate") as caught:
            world.allocate(claim(want("gpu", None), constraint))
        assert (caught.value.claim, caught.value.request) == ("default/claim", "gpu")
        assert caught.value.device is not None

    def test_all_devices_over_an_incomplete_pool_are_an_error(self) -> None:
        world = World(pool(*gpus(2), slice_count=3))
        with pytest.raises(NodeUnsuitableError, match=r"is being updated: 1 of 3 slices are there"):
            world.allocate(claim(want("gpu", None)))

    def test_all_devices_over_an_invalid_pool_are_an_error(self) -> None:
        world = World(pool(*gpus(2), device("gpu-0")))
        with pytest.raises(NodeUnsuitableError, match="is invalid: duplicate device name gpu-0"):
            world.allocate(claim(want("gpu", None)))

    def test_all_devices_in_a_later_alternative_are_an_error_too(self) -> None:
        world = World(pool(*gpus(2), slice_count=3))
        with pytest.raises(NodeUnsuitableError, match="request gpu/all"):
            world.allocate(claim(first_of("gpu", alternative("one"), alternative("all", None))))

    def test_all_devices_do_not_mind_a_pool_of_other_nodes(self) -> None:
        far = Slice("far", pool_id("far"), slice_count=2, placement=Placement("node-2"))
        assert World([*pool(*gpus(1)), far]).devices(claim(want("gpu", None))) == [["gpu-0"]]


ONE_BIG = alternative("big", 1, BIG)
TWO = alternative("two", 2)
FIRST_AVAILABLE = [
    Case("the first", gpus(3, 1), [first_of("gpu", ONE_BIG, TWO)], [["gpu-1"]]),
    Case("the second where the first can't", gpus(3), [first_of("gpu", ONE_BIG, TWO)], [["gpu-0", "gpu-1"]]),
    Case("neither", gpus(1), [first_of("gpu", ONE_BIG, TWO)], "not enough free devices for request gpu"),
    Case(
        "the second, so that a later request can have the first",
        gpus(3, 2),
        [first_of("a", ONE_BIG, TWO), want("b", 1, BIG)],
        [["gpu-0", "gpu-1"], ["gpu-2"]],
    ),
    Case(
        "each choice is tried with each",
        gpus(3, 0),
        [claim(first_of("a", ONE_BIG, TWO), first_of("b", ONE_BIG, TWO))],
        [["gpu-0", "gpu-1", "gpu-2"]],
    ),
    Case(
        "all, else one",
        gpus(3, 0),
        [first_of("gpu", alternative("all", None, BIG), alternative("one"))],
        [["gpu-1"]],
        held("gpu-0"),
    ),
    Case(
        "an alternative without members is passed over",
        gpus(2),
        [first_of("gpu", alternative("all", None, BIG), alternative("one"))],
        [["gpu-0"]],
    ),
    Case("only one alternative", gpus(1), [first_of("gpu", alternative("only"))], [["gpu-0"]]),
]


@pytest.mark.parametrize("case", FIRST_AVAILABLE, ids=ids)
def test_the_first_alternative_that_fits_is_taken(case: Case) -> None:
    assert answer(case) == case.gets


def test_results_name_the_alternative() -> None:
    answer = World(pool(*gpus(2))).allocated(claim(first_of("gpu", ONE_BIG, TWO)))
    assert [r.request for r in answer.results[0].results] == ["gpu/two", "gpu/two"]


class TestThirtyTwoDevices:
    def test_32_devices_fit_into_a_claim(self) -> None:
        answer = World(pool(*gpus(33))).devices(claim(want("a", 30), want("b", 2)))
        assert [len(devices) for devices in answer] == [32]

    def test_32_devices_are_counted_per_claim(self) -> None:
        answer = World(pool(*gpus(64))).devices(claim(want("a", 32), name="one"), claim(want("b", 32), name="two"))
        assert [len(devices) for devices in answer] == [32, 32]

    def test_an_alternative_beyond_32_devices_is_passed_over(self) -> None:
        answer = World(pool(*gpus(40))).devices(
            claim(want("a", 31), first_of("b", alternative("two", 2), alternative("one", 1)))
        )
        assert answer == [[f"gpu-{i}" for i in range(32)]]

    def test_an_earlier_alternative_gives_way(self) -> None:
        """Taking two first leaves no place for the second request, which needs thirty-one."""
        answer = World(pool(*gpus(40))).devices(
            claim(first_of("a", alternative("two", 2), alternative("one", 1)), want("b", 31))
        )
        assert [len(devices) for devices in answer] == [32]

    def test_33_devices_in_every_alternative_are_a_no(self) -> None:
        answer = World(pool(*gpus(40, 0, 1))).devices(
            claim(first_of("a", alternative("all", None, BIG), alternative("one", 1, "false")), want("b", 31))
        )
        assert answer == "request b needs more devices than a claim can hold"

    def test_33_devices_at_the_least_are_an_error(self) -> None:
        with pytest.raises(
            InvalidClaimError, match="adding 2 devices exceeds the claim limit of 32, with 31 before it"
        ):
            World(pool(*gpus(40))).allocate(claim(want("a", 31), want("b", 2)))


ADMIN = {"admin_access": True}
ADMIN_ACCESS = [
    Case("of what is held", gpus(1), [want("gpu", 1, **ADMIN)], [["gpu-0"]], held("gpu-0")),
    Case("of all, held or not", gpus(2), [want("gpu", None, **ADMIN)], [["gpu-0", "gpu-1"]], held("gpu-1")),
    Case("in another claim", gpus(1), [want("a"), want("b", 1, **ADMIN)], [["gpu-0"], ["gpu-0"]]),
    Case("twice, in two claims", gpus(1), [want("a", 1, **ADMIN), want("b", 1, **ADMIN)], [["gpu-0"], ["gpu-0"]]),
    Case(
        "not twice in one claim",
        gpus(1),
        [claim(want("a", 1, **ADMIN), want("b", 1, **ADMIN))],
        "not enough free devices for request b",
    ),
    Case("not of what its own claim has", gpus(2), [claim(want("a"), want("b", 1, **ADMIN))], [["gpu-0", "gpu-1"]]),
    Case(
        "in its own attempt it keeps others off",
        gpus(1),
        [want("a", 1, **ADMIN), want("b")],
        "not enough free devices for request b",
    ),
]


@pytest.mark.parametrize("case", ADMIN_ACCESS, ids=ids)
def test_admin_access_gets_held_devices_too(case: Case) -> None:
    assert answer(case) == case.gets


def test_admin_access_holds_nothing_for_later() -> None:
    world = World(pool(*gpus(1)))
    first = world.allocated(claim(want("gpu", 1, **ADMIN)))
    assert [r.admin_access for r in first.results[0].results] == [True]
    assert world.with_claims(*first.results).devices(claim(want())) == [["gpu-0"]]
