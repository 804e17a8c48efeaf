"""Scores: nodes side by side, earlier alternatives first, then what wastes least."""

from collections.abc import Sequence

import pytest
from immutables import Map

from allocator import Allocation, Device, Usage
from allocator.policies import BEST_FIT, FIRST_FIT, POLICIES, Merit
from tests.allocator.worlds import World, alternative, claim, device, first_of, held, pool, want

GIB = 2**30 * 10**9


def gpus(*sizes: int) -> list[Device]:
    return [device(f"gpu-{i}", capacity={"memory": f"{size}Gi"}) for i, size in enumerate(sizes)]


def merit(devices: Sequence[Device], taken: Usage | None = None, number: int = 1) -> Merit:
    answer = World(pool(*devices), taken or Usage(), policy=BEST_FIT).allocate(claim(want("gpu", number)))
    assert isinstance(answer, Allocation)
    return answer.merit


class TestMerit:
    def test_the_merit_of_a_device_is_capacity_and_free_share(self) -> None:
        assert merit(gpus(8, 8, 8, 8), held("gpu-0")) == Merit(0, Map({"gpu.example.com/memory": 8 * GIB}), free=0.5)

    def test_the_preference_adds_up_over_alternatives(self) -> None:
        choice = first_of("gpu", alternative("a", 1, "false"), alternative("b"))
        answer = World(pool(*gpus(8))).allocate(claim(choice, first_of("other", alternative("x", 9), alternative("y"))))
        assert not isinstance(answer, Allocation)
        answer = World(pool(*gpus(8, 8))).allocate(claim(choice, first_of("other", alternative("x"))))
        assert isinstance(answer, Allocation)
        assert answer.merit.preference == 7 + 8

    @pytest.mark.parametrize(("taken", "broken"), [(Usage(), 1), (held("part-0"), 0)])
    def test_broken_counts_the_counter_sets_that_a_choice_breaks(self, taken: Usage, broken: int) -> None:
        parts = [device(f"part-{i}", draws={"chip": {"slices": 1}}) for i in range(4)]
        answer = World(pool(*parts, counters={"chip": {"slices": 4}}), taken).allocate(claim(want("gpu", 2)))
        assert isinstance(answer, Allocation)
        assert answer.merit.broken == broken

    def test_admin_access_takes_nothing(self) -> None:
        answer = World(pool(*gpus(8, 8))).allocate(claim(want("gpu", 2, admin_access=True)))
        assert isinstance(answer, Allocation)
        assert answer.merit == Merit()

    def test_no_requests_have_no_merit(self) -> None:
        answer = World([]).allocate(claim())
        assert isinstance(answer, Allocation)
        assert answer.merit == Merit()


class TestBestFit:
    def test_the_node_with_the_smallest_device_scores_highest(self) -> None:
        """Even where the large one would fill its node."""
        scores = BEST_FIT.scores({"large": merit(gpus(80)), "small": merit(gpus(8, 8, 8, 8))})
        assert scores["small"] > scores["large"]

    def test_fuller_nodes_score_higher(self) -> None:
        four = gpus(8, 8, 8, 8)
        scores = BEST_FIT.scores({str(n): merit(four, held(*(f"gpu-{i}" for i in range(n)))) for n in range(4)})
        assert scores["3"] > scores["2"] > scores["1"] > scores["0"]

    def test_nodes_with_broken_hardware_score_higher(self) -> None:
        scores = BEST_FIT.scores({"whole": Merit(free=0.5, broken=1), "broken": Merit(free=0.5)})
        assert scores["broken"] > scores["whole"]

    @pytest.mark.parametrize("levels", range(2, 12))
    def test_a_better_alternative_stands_above_all_waste(self, levels: int) -> None:
        wasteful = {f"{n}-wasteful": Merit(n, Map({"m": GIB}), free=1.0, broken=1) for n in range(levels)}
        thrifty = {f"{n}-thrifty": Merit(n) for n in range(levels)}
        scores = BEST_FIT.scores({**wasteful, **thrifty})
        assert all(scores[f"{n}-wasteful"] > scores[f"{n - 1}-thrifty"] for n in range(1, levels))
        assert all(0 <= score <= 10 for score in scores.values())

    def test_there_may_be_more_levels_than_scores(self) -> None:
        scores = BEST_FIT.scores({str(n): Merit(n) for n in range(30)})
        assert [scores[str(n)] for n in range(30)] == sorted(scores.values())
        assert (scores["0"], scores["29"]) == (0, 10)


class TestFirstFit:
    def test_first_fit_scores_by_preference_only(self) -> None:
        scores = FIRST_FIT.scores({"a": Merit(8, free=1.0), "b": Merit(8, Map({"m": GIB})), "c": Merit(7)})
        assert scores["a"] == scores["b"] > scores["c"]

    def test_no_nodes_have_no_scores(self) -> None:
        assert FIRST_FIT.scores({}) == {}


class TestFragmentation:
    policy = POLICIES["fragmentation"]

    def test_best_fit_decides_between_nodes_with_the_least_loss(self) -> None:
        merits = {"tight": Merit(free=0.1), "loose": Merit(free=0.9), "lossy": Merit(free=0.0, loss=0.01)}
        assert self.policy.scores({**merits, "worst": Merit(loss=2.0)}) == {
            "tight": 10,
            "loose": 9,
            "lossy": 8,
            "worst": 0,
        }

    def test_best_fit_decides_alone_if_all_losses_are_equal(self) -> None:
        merits = {str(n): Merit(free=n / 10, broken=n % 2, loss=0.5) for n in range(10)}
        assert self.policy.scores(merits) == BEST_FIT.scores(merits)
