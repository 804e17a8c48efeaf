"""What allocated claims hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import AllocationResult, DeviceId, DeviceResult, Quantity, Usage
from allocator.usage import FREE, DeviceUsage
from tests.allocator.worlds import DRIVER, q

GPU = DeviceId(DRIVER, "node-1", "gpu-0")


def holding(*results: DeviceResult) -> Usage:
    return Usage().with_allocation(AllocationResult(results))


def share(name: str, **consumed: str) -> DeviceResult:
    amounts: dict[str, Quantity] = {n: q(v) for n, v in consumed.items()}
    return DeviceResult("r", GPU, share_id=name, consumed_capacity=amounts)


def test_a_device_that_nobody_holds_is_free() -> None:
    assert Usage().device(GPU) == FREE
    assert FREE.is_free


def test_a_device_held_as_a_whole_has_one_holder() -> None:
    assert holding(DeviceResult("r", GPU)).device(GPU) == DeviceUsage(holders=1)
    assert holding(DeviceResult("r", GPU)) == Usage.of([GPU])


def test_a_double_allocation_has_two_holders() -> None:
    usage = holding(DeviceResult("a", GPU), DeviceResult("b", GPU))
    assert usage.device(GPU).holders == 2
    assert usage.without_allocation(AllocationResult((DeviceResult("a", GPU),))) == Usage.of([GPU])


@pytest.mark.parametrize("admin", [DeviceResult("r", GPU, admin_access=True), DeviceResult("r", GPU, True, (), "s")])
def test_admin_access_holds_nothing(admin: DeviceResult) -> None:
    assert holding(admin) == Usage()


def test_shares_add_up() -> None:
    usage = holding(share("a", memory="2", cores="1"), share("b", memory="3"))
    assert usage.device(GPU).shares == {"a", "b"}
    assert dict(usage.device(GPU).consumed) == {"memory": 5 * 10**9, "cores": 10**9}
    assert usage == Usage.of((), [(GPU, "a"), (GPU, "b")], {GPU: {"memory": 5 * 10**9, "cores": 10**9}})


def test_a_share_that_consumes_nothing_is_still_a_share() -> None:
    usage = holding(share("a", memory="0"))
    assert usage.device(GPU) == DeviceUsage(shares=frozenset({"a"}))
    assert not usage.device(GPU).is_free
    assert usage.without_allocation(AllocationResult((share("a", memory="0"),))) == Usage()


def test_a_device_with_nothing_consumed_is_left_out() -> None:
    assert Usage.of(consumed={GPU: {"memory": 0}}) == Usage()


def test_a_device_that_is_free_again_is_forgotten() -> None:
    other = DeviceId(DRIVER, "node-1", "gpu-1")
    both = AllocationResult((DeviceResult("r", GPU), DeviceResult("r", other)))
    one = Usage().with_allocation(both).without_allocation(AllocationResult((DeviceResult("r", GPU),)))
    assert set(one.pools[GPU.pool_id]) == {"gpu-1"}
    assert Usage().with_allocation(both).without_allocation(both) == Usage()


def test_an_older_value_stays_as_it_was() -> None:
    before = Usage.of([GPU])
    before.without_allocation(AllocationResult((DeviceResult("r", GPU),)))
    before.with_allocation(AllocationResult((share("a", memory="1"),)))
    assert before == Usage.of([GPU])


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=150),
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=10),
    st.integers(0, 150),
)
def test_the_pools_that_differ_are_those_that_are_not_the_same_objects(
    common: list[tuple[int, bool]], own: list[tuple[int, bool]], at: int
) -> None:
    """A fork is compared with what it was forked from, whatever has changed in both of them since."""

    def changed(usage: Usage, steps: list[tuple[int, bool]]) -> Usage:
        for pool, takes in steps:
            held = AllocationResult((DeviceResult("r", DeviceId("d", f"pool-{pool}", "gpu")),))
            usage = usage.with_allocation(held) if takes else usage.without_allocation(held)
        return usage

    start = changed(Usage(), common[:at])
    followed, fork = changed(start, common[at:]), changed(start, own)
    every = {*followed.pools, *fork.pools}
    expected = {pool for pool in every if followed.pools.get(pool) is not fork.pools.get(pool)}
    assert fork.differing(followed) == followed.differing(fork) == expected
