"""Consumable capacity: how much a request takes of a device, and sharing until it is used up."""

from dataclasses import replace

import pytest

from allocator import Allocation, Device, DeviceId, Quantity, Request, Usage
from allocator.checks.capacity import Capacities, consumption
from allocator.errors import CapacityError
from allocator.model.devices import Capacity, RequestPolicy, ValidRange
from allocator.model.features import ALL_FEATURES
from tests.allocator.worlds import DRIVER, World, alternative, claim, device, first_of, names, pool, q, want


def values(default: str, *valid: str) -> RequestPolicy:
    return RequestPolicy(q(default), tuple(q(v) for v in valid))


def maybe(amount: str | None) -> Quantity | None:
    return None if amount is None else q(amount)


def between(least: str, most: str | None = None, step: str | None = None, default: str = "4") -> RequestPolicy:
    return RequestPolicy(q(default), (), ValidRange(q(least), maybe(most), maybe(step)))


NONE = None
DEFAULT = RequestPolicy(q("2"))
TOO_BIG = str(2**63)

TAKES = [
    # policy of a capacity of 10, what is asked for, what is taken (None: the device does not suit)
    (NONE, None, "10"),
    (NONE, "3", "3"),
    (NONE, "0", "0"),
    (NONE, "100m", "100m"),
    (NONE, "11", "11"),
    (RequestPolicy(), None, "10"),
    (RequestPolicy(), "3", "3"),
    (DEFAULT, None, "2"),
    (DEFAULT, "3", "3"),
    (values("2", "2", "4", "8"), None, "2"),
    (values("2", "2", "4", "8"), "1", "2"),
    (values("2", "2", "4", "8"), "4", "4"),
    (values("2", "2", "4", "8"), "5", "8"),
    (values("2", "2", "4", "8"), "9", None),
    (values("3", "2", "4"), None, "3"),
    (between("2"), None, "4"),
    (between("2"), "1", "2"),
    (between("2"), "3", "3"),
    (between("2", "8"), "8", "8"),
    (between("2", "8"), "9", None),
    (between("2", "8", "3"), "2", "2"),
    (between("2", "8", "3"), "3", "5"),
    (between("2", "8", "3"), "5", "5"),
    (between("2", "8", "3"), "6", "8"),
    (between("2", "9", "3"), "9", None),
    (between("2", "8", "3", default="4"), None, "4"),
    (between("1Gi", "10Gi", "1Gi"), "1500Mi", "2Gi"),
    (RequestPolicy(None, (), ValidRange(q("2"), q("8"), q("3"))), None, None),
    (RequestPolicy(None, (), ValidRange(q("2"), q("8"))), None, None),
    (RequestPolicy(None, (), ValidRange(q("2"), None, q("4"))), None, "10"),
]


def taken(policy: RequestPolicy | None, asked: str | None, *, fractional: bool = True) -> Quantity | None:
    one = device("gpu", capacity={"memory": Capacity(q("10"), policy)})
    got = consumption(one, None if asked is None else (("memory", q(asked)),), fractional=fractional)
    return None if got is None else got["memory"]


@pytest.mark.parametrize("fractional", [True, False])
@pytest.mark.parametrize(("policy", "asked", "expected"), TAKES, ids=str)
def test_what_a_request_takes(
    policy: RequestPolicy | None, asked: str | None, expected: str | None, fractional: bool
) -> None:
    assert taken(policy, asked, fractional=fractional) == maybe(expected)


FRACTIONS = [
    # policy, asked, taken in milli units, taken in whole units (fractional ranges off)
    (between("500m", "2", "250m"), "600m", "750m", "1"),
    (between("500m", "2", "500m"), "1100m", "1500m", "2"),
    (between("1", "10", "2"), "1500m", "3", "3"),
    (between("100m"), "250m", "250m", "250m"),
    (between("1", "10", "1u"), "1500m", "2", "2"),
]


@pytest.mark.parametrize(("policy", "asked", "milli", "whole"), FRACTIONS, ids=str)
def test_a_range_may_have_fractions(policy: RequestPolicy, asked: str, milli: str, whole: str) -> None:
    assert taken(policy, asked) == q(milli)
    assert taken(policy, asked, fractional=False) == q(whole)


def test_a_capacity_that_does_not_suit_its_own_range() -> None:
    """Without a default, no request means all of it: that must be a valid amount as well."""
    odd = Capacity(q("1500001u"), RequestPolicy(None, (), ValidRange(q("1"), None, q("1"))))
    assert consumption(device("gpu", capacity={"memory": odd}), None, fractional=True) is None


def test_a_rounded_amount_is_written_as_the_step_is() -> None:
    assert str(taken(between("1Gi", "10Gi", "1Gi"), "1500000000")) == "2Gi"
    assert str(taken(between("1k", "10M", "1k"), "1025Ki")) == "1050k"


ERRORS = [
    # policy, asked, feature, message
    (NONE, "-1", True, "capacity memory is negative: -1"),
    (between("1", "10", "1"), "1500u", True, None),
    (between("1", "10", "1"), "2000001u", True, "request 2000001u is not a multiple of 1m in int64"),
    (between("1", "10", "1"), "2000001u", False, None),
    (between("1", None, "1"), TOO_BIG, True, "not a multiple of 1m in int64"),
    (between("1", None, "1"), TOO_BIG, False, "is beyond int64"),
    (between("1", None, "1000"), str(2**63 - 2), False, "rounded up to the next step, is beyond int64"),
]


@pytest.mark.parametrize(("policy", "asked", "fractional", "message"), ERRORS, ids=str)
def test_amounts_that_cannot_be_computed(
    policy: RequestPolicy | None, asked: str, fractional: bool, message: str | None
) -> None:
    features = replace(ALL_FEATURES, fractional_capacity_range=fractional)
    one = device("gpu", capacity={"memory": Capacity(q("10"), policy)}, allow_multiple_allocations=True)
    world = World(pool(one), features=features)
    if message is None:
        assert isinstance(world.allocate(claim(memory(asked))), Allocation)
        return
    with pytest.raises(CapacityError, match=message) as caught:
        world.allocate(claim(memory(asked)))
    error = caught.value
    assert (error.claim, error.request, error.device) == ("default/claim", "gpu", DeviceId(DRIVER, "node-1", "gpu"))


def memory(amount: str | None, name: str = "gpu", count: int = 1, key: str = "memory") -> Request:
    return want(name, count, capacity=None if amount is None else ((key, q(amount)),))


def sharing(name: str = "gpu", total: str = "10", policy: RequestPolicy | None = None) -> Device:
    return device(name, capacity={"memory": Capacity(q(total), policy)}, allow_multiple_allocations=True)


def consumed(amount: int, name: str = "gpu") -> Usage:
    return Usage.of((), [(sharing(name).id, "old")], {sharing(name).id: {"memory": amount * 10**9}})


NO = "not enough device capacity for request gpu"
SHARES = [
    # held before, asked for, devices
    (0, "10", [["gpu"]]),
    (0, "11", NO),
    (6, "4", [["gpu"]]),
    (6, "5", NO),
    (10, "0", [["gpu"]]),
    (10, "1", NO),
    (0, None, [["gpu"]]),
    (1, None, NO),
    (11, "0", NO),
]


@pytest.mark.parametrize(("before", "asked", "gets"), SHARES)
def test_shares_add_up_to_the_capacity(before: int, asked: str | None, gets: list[list[str]] | str) -> None:
    usage = consumed(before) if before else Usage()
    assert World(pool(sharing()), usage).devices(claim(memory(asked))) == gets


class TestSharing:
    def test_two_claims_of_one_attempt(self) -> None:
        world = World(pool(sharing()))
        assert world.devices(claim(memory("6"), name="a"), claim(memory("4"), name="b")) == [["gpu"], ["gpu"]]
        assert world.devices(claim(memory("6"), name="a"), claim(memory("5"), name="b")) == NO

    def test_two_requests_of_one_claim(self) -> None:
        world = World(pool(sharing()))
        assert world.devices(claim(memory("6", "a"), memory("4", "b"))) == [["gpu", "gpu"]]

    def test_one_request_takes_each_device_once(self) -> None:
        assert World(pool(sharing())).devices(claim(memory("1", count=2))) == "not enough free devices for request gpu"
        assert World(pool(sharing("a"), sharing("b"))).devices(claim(memory("1", count=2))) == [["a", "b"]]

    def test_the_next_device_when_the_first_is_full(self) -> None:
        world = World(pool(sharing("a"), sharing("b")), consumed(8, "a"))
        assert world.devices(claim(memory("3"))) == [["b"]]

    def test_backtracking_gives_shares_back(self) -> None:
        """The first alternative takes so much that the second request, bound to the device, can't be served."""
        big = replace(alternative("big"), capacity=(("memory", q("8")),))
        small = replace(alternative("small"), capacity=(("memory", q("5")),))
        world = World(pool(sharing()))
        answer = world.allocate(claim(first_of("a", big, small), memory("5", "b")))
        assert isinstance(answer, Allocation)
        assert [r.request for r in answer.results[0].results] == ["a/small", "b"]

    def test_every_share_has_an_id_and_what_it_takes(self) -> None:
        answer = World(pool(sharing(policy=values("2", "2", "4")))).allocate(claim(memory("3", "a"), memory(None, "b")))
        assert isinstance(answer, Allocation)
        assert [(r.share_id, r.consumed_capacity) for r in answer.results[0].results] == [
            ("share-0", {"memory": q("4")}),
            ("share-1", {"memory": q("2")}),
        ]

    def test_shares_are_held_until_released(self) -> None:
        world = World(pool(sharing()))
        first = world.allocate(claim(memory("6")))
        assert isinstance(first, Allocation)
        assert world.with_claims(*first.results).devices(claim(memory("5"))) == NO
        assert names(first.results) == [["gpu"]]

    def test_a_device_that_is_held_as_a_whole_is_not_shared(self) -> None:
        world = World(pool(sharing()), Usage.of([sharing().id]))
        assert world.devices(claim(memory("1"))) == "no free device for request gpu"

    def test_a_shared_device_without_capacity_is_never_full(self) -> None:
        endless = device("net", allow_multiple_allocations=True)
        answer = World(pool(endless)).allocate(claim(*(want(f"r{i}") for i in range(5))))
        assert isinstance(answer, Allocation)
        assert {r.consumed_capacity for r in answer.results[0].results} == {None}


class TestDevicesThatAreNotShared:
    one = device("gpu", capacity={"memory": "10"})

    @pytest.mark.parametrize(("asked", "gets"), [("10", [["gpu"]]), ("11", NO)])
    def test_must_be_large_enough(self, asked: str, gets: list[list[str]] | str) -> None:
        assert World(pool(self.one)).devices(claim(memory(asked))) == gets

    def test_are_taken_as_a_whole(self) -> None:
        answer = World(pool(self.one)).allocate(claim(memory("1")))
        assert isinstance(answer, Allocation)
        (result,) = answer.results[0].results
        assert (result.share_id, result.consumed_capacity) == (None, None)


@pytest.mark.parametrize("key", ["cores", f"{DRIVER}/memory"])
def test_a_capacity_that_the_device_does_not_publish_by_that_name(key: str) -> None:
    assert World(pool(sharing())).devices(claim(memory("1", key=key))) == NO


def test_every_capacity_counts() -> None:
    two = device(
        "gpu",
        capacity={"memory": "10", "cores": Capacity(q("2"), RequestPolicy(q("1")))},
        allow_multiple_allocations=True,
    )
    world = World(pool(two))
    requests = [memory("1", f"r{i}") for i in range(3)]
    assert world.devices(claim(*requests[:2])) == [["gpu", "gpu"]]
    assert world.devices(claim(*requests)) == "not enough device capacity for request r2"


class TestAllDevices:
    def test_total_capacity_decides_who_belongs(self) -> None:
        everything = want("gpu", None, capacity=(("memory", q("5")),))
        assert World(pool(sharing("small", "4"), sharing("big"))).devices(claim(everything)) == [["big"]]
        assert World(pool(sharing("big")), consumed(6, "big")).devices(claim(everything)) == NO


def test_undo_restores_what_was_consumed() -> None:
    one, amount = sharing().id, {"memory": q("2")}
    capacities = Capacities(consumed(3))
    first = capacities.take(one, amount)
    second = capacities.take(one, amount)
    assert dict(capacities.consumed(one)) == {"memory": 7 * 10**9}
    second()
    assert dict(capacities.consumed(one)) == {"memory": 5 * 10**9}
    first()
    assert dict(capacities.consumed(one)) == {"memory": 3 * 10**9}
    assert not set(capacities.key())


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1500m", "1500m"), ("1500500u", None), ("2", "2")],
    ids=["in milli units", "finer than that", "whole"],
)
def test_without_a_request_all_of_a_capacity_must_fit_its_range(value: str, expected: str | None) -> None:
    policy = RequestPolicy(valid_range=ValidRange(q("500m"), None, q("500m")))
    one = device("gpu", capacity={"memory": Capacity(q(value), policy)})
    got = consumption(one, None, fractional=True)
    assert (got and got["memory"]) == maybe(expected)


def test_the_largest_whole_number_can_be_rounded_to() -> None:
    largest = str(2**63 - 1)
    policy = RequestPolicy(valid_range=ValidRange(q("1"), None, q("1")))
    one = device("gpu", capacity={"memory": Capacity(q(largest), policy)})
    got = consumption(one, (("memory", q(largest)),), fractional=False)
    assert got == {"memory": q(largest)}
