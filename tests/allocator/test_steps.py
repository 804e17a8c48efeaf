"""How many devices the search tries where an exhaustive one explodes."""

from dataclasses import replace

import pytest

from allocator import Allocation, Device, Limits, SearchLimitError, Unsatisfiable
from allocator.policies import BEST_FIT, FIRST_FIT, Policy
from tests.allocator.worlds import (
    TICK,
    World,
    alternative,
    claim,
    device,
    different,
    first_of,
    held,
    pool,
    same,
    ticks,
    want,
)


def on_roots(number: int, roots: int) -> list[Device]:
    return [device(f"gpu-{i:02}", {"root": f"pci-{i % roots}"}) for i in range(number)]


@pytest.mark.parametrize("policy", [FIRST_FIT, BEST_FIT], ids=lambda p: p.name)
class TestSteps:
    def test_three_groups_on_two_roots_are_a_no_in_few_steps(self, policy: Policy) -> None:
        world = World(pool(*on_roots(16, 2)), policy=policy)
        answer = world.allocate(claim(want("a", 3), want("b", 3), want("c", 3), same("root")))
        assert isinstance(answer, Unsatisfiable)
        assert answer.steps <= 100
        assert answer.reason.in_words() == "no devices for request c satisfy constraint on gpu.example.com/root"

    def test_sixteen_distinct_of_fifteen_values_are_a_no_in_few_steps(self, policy: Policy) -> None:
        devices = [device(f"gpu-{i:02}", {"index": min(i, 14)}) for i in range(16)]
        answer = World(pool(*devices), policy=policy).allocate(claim(want("a", 16), different("index")))
        assert isinstance(answer, Unsatisfiable)
        assert answer.steps <= 1000

    def test_eight_pairs_of_seven_are_a_no_in_few_steps(self, policy: Policy) -> None:
        devices = [device(f"cpu-{i:02}", {"core": i // 2 if i < 14 else i}) for i in range(20)]
        pairs = [(want(f"pair-{i}", 2), same("core", f"pair-{i}")) for i in range(8)]
        answer = World(pool(*devices), policy=policy).allocate(claim(*(part for pair in pairs for part in pair)))
        assert isinstance(answer, Unsatisfiable)
        assert answer.steps <= 5000

    def test_a_preference_that_reaches_the_limit_keeps_no_claim_from_its_devices(self, policy: Policy) -> None:
        world = World(pool(*(device(f"cpu-{i:02}", {"core": i}) for i in range(30))), policy=policy)
        ways = alternative("pair", 2), alternative("any", 2)
        pairs = [(first_of(f"cores-{i}", *ways), same("core", f"cores-{i}/pair")) for i in range(3)]
        asked = claim(*(part for pair in pairs for part in pair))
        patient, hasty = world.allocate(asked), replace(world, limits=Limits(steps=60)).allocate(asked)
        assert isinstance(patient, Allocation)
        assert isinstance(hasty, Allocation)
        assert [each.request for each in hasty.results[0].results] == [f"cores-{i // 2}/any" for i in range(6)]
        assert (patient.stopped, hasty.stopped) == (False, True)
        assert hasty.merit == patient.merit, "a worse alternative is worth less, however it was found"

    def partitioned(self, policy: Policy) -> World:
        devices = [device(f"gpu-{g}-{p}", {"parent": f"gpu-{g}"}) for g in range(8) for p in range(8)]
        return World(pool(*devices), held(*(f"gpu-{g}-0" for g in range(7))), policy=policy)

    def test_the_one_whole_gpu_of_eight_is_found(self, policy: Policy) -> None:
        answer = self.partitioned(policy).allocate(claim(want("gpu", 8), same("parent")))
        assert isinstance(answer, Allocation)
        assert {r.device.device for r in answer.results[0].results} == {f"gpu-7-{p}" for p in range(8)}
        assert answer.steps <= 200

    def test_two_whole_gpus_of_one_are_a_no_in_few_steps(self, policy: Policy) -> None:
        one = claim(want("a", 8), same("parent"), name="one")
        two = claim(want("b", 8), same("parent"), name="two")
        answer = self.partitioned(policy).allocate(one, two)
        assert isinstance(answer, Unsatisfiable)
        assert answer.steps <= 200

    def test_whole_gpus_by_counters_take_few_steps(self, policy: Policy) -> None:
        world = self.by_counters(policy)
        whole = "device.attributes['gpu.example.com'].whole"
        assert isinstance(one := world.allocate(claim(want("a", 1, whole))), Allocation)
        assert one.results[0].results[0].device.device == "gpu-7"
        assert one.steps <= 200
        assert isinstance(two := world.allocate(claim(want("a", 1, whole), want("b", 1, whole))), Unsatisfiable)
        assert two.steps <= 200

    def by_counters(self, policy: Policy) -> World:
        whole = [device(f"gpu-{g}", {"whole": True}, draws={f"gpu-{g}": {"slices": 8}}) for g in range(8)]
        parts = [
            device(f"gpu-{g}-part-{p}", {"whole": False}, draws={f"gpu-{g}": {"slices": 1}})
            for g in range(8)
            for p in range(8)
        ]
        counters = {f"gpu-{g}": {"slices": 8} for g in range(8)}
        taken = held(*(f"gpu-{g}-part-3" for g in range(7)))
        return World(pool(*whole, *parts, counters=counters), taken, policy=policy)


def test_a_search_stopped_by_its_limit_is_not_a_no() -> None:
    world = World(pool(*on_roots(16, 2)), limits=Limits(steps=5))
    with pytest.raises(SearchLimitError, match="limit on steps after 5 steps"):
        world.allocate(claim(want("a", 8), same("root")))


def test_a_search_is_stopped_by_time() -> None:
    devices = [device(f"gpu-{i:03}", {"root": i}) for i in range(600)]
    world = World(pool(*devices), limits=Limits(seconds=ticks()() / 2))
    with pytest.raises(SearchLimitError, match="limit on time"):
        world.allocate(claim(want("a", 1), want("b", 2), same("root", "b")))


@pytest.mark.parametrize("policy", [FIRST_FIT, BEST_FIT], ids=lambda p: p.name)
class TestJudgingTakesTime:
    """Selectors cost time before the first step is made, and after the last."""

    TIME_FOR_FIVE = Limits(seconds=5.5 * TICK)

    def test_a_search_whose_selectors_take_too_long_is_stopped(self, policy: Policy) -> None:
        world = World(pool(*on_roots(16, 2)), policy=policy, limits=self.TIME_FOR_FIVE)
        with pytest.raises(SearchLimitError, match="limit on time"):
            world.allocate(claim(want("a", 8, "device.driver == 'other.example.com'")))

    def test_a_no_stays_a_no_when_its_reasons_take_too_long(self, policy: Policy) -> None:
        devices = on_roots(16, 2)
        world = World(pool(*devices), held(*(d.id.device for d in devices)), policy=policy, limits=self.TIME_FOR_FIVE)
        answer = world.allocate(claim(want("a", 1, "device.driver == 'gpu.example.com'")))
        assert isinstance(answer, Unsatisfiable)
        assert answer.reason.in_words() == "no free device for request a"
