"""The policies spread, pack and reserve: which device they take, and which node they prefer."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from immutables import Map

from allocator import Allocation, Device, DeviceClass, DeviceId, Usage
from allocator.policies import BEST_FIT, FIRST_FIT, POLICIES, Merit
from tests.allocator.worlds import DRIVER, World, alternative, claim, device, first_of, held, pool, q, want


def card(name: str, **attributes: bool) -> Device:
    return device(name, attributes)


def halves(*names: str) -> list[Device]:
    return [device(name, capacity={"milli": "1000"}, allow_multiple_allocations=True) for name in names]


def used(**milli: int) -> Usage:
    """Shares of devices that are held."""
    ids = {name: DeviceId(DRIVER, "node-1", name) for name in milli}
    consumed = {ids[name]: {"milli": amount * 10**9} for name, amount in milli.items()}
    return Usage.of(shares=[(each, f"held-{each.device}") for each in ids.values()], consumed=consumed)


def taken(policy: str, devices: list[Device], usage: Usage) -> str:
    """The device that a request for half a device gets."""
    world = World(pool(*devices), usage, policy=POLICIES[policy])
    (result,) = world.allocated(claim(want("gpu", 1, capacity=(("milli", q("500")),)))).results
    return result.results[0].device.device


@pytest.mark.parametrize(
    ("policy", "usage", "found"),
    [
        ("pack", used(b=300, c=400), "c"),
        ("pack", used(b=600, c=400), "c"),
        ("pack", Usage(), "a"),
        ("spread", used(a=100), "b"),
        ("spread", used(a=300, b=100, c=200), "b"),
        ("spread", Usage(), "a"),
    ],
)
def test_share_comes_from_the_fullest_device_to_pack_and_from_the_emptiest_to_spread(
    policy: str, usage: Usage, found: str
) -> None:
    assert taken(policy, halves("a", "b", "c"), usage) == found


@pytest.mark.parametrize(("policy", "found"), [("pack", "chip-1"), ("spread", "other-0")])
def test_partition_comes_from_broken_hardware_to_pack_and_from_whole_hardware_to_spread(
    policy: str, found: str
) -> None:
    parts = [device(f"{chip}-{n}", draws={chip: {"slices": 1}}) for chip in ("chip", "other") for n in (0, 1)]
    slices = pool(*parts, counters={"chip": {"slices": 2}, "other": {"slices": 2}})
    world = World(slices, held("chip-0"), policy=POLICIES[policy])
    assert world.devices(claim(want("gpu"))) == [[found]]


def scores(policy: str, **merits: Merit) -> dict[str, int]:
    return POLICIES[policy].scores(merits)


def test_pack_prefers_the_node_that_keeps_least_free_and_breaks_nothing() -> None:
    found = scores("pack", full=Merit(free=0.1), empty=Merit(free=0.9), breaks=Merit(free=0.1, broken=1))
    assert found["full"] == 10
    assert found["full"] > max(found["empty"], found["breaks"])


def test_pack_prefers_the_node_with_less_left_of_a_shared_device() -> None:
    half = claim(want("gpu", 1, capacity=(("milli", q("500")),)))
    world = World(pool(*halves("a", "b")), policy=POLICIES["pack"])
    merits = {name: replace(world, usage=used(a=milli)).allocated(half).merit for name, milli in (("x", 0), ("y", 400))}
    assert merits["y"].free == pytest.approx(0.55)
    assert POLICIES["pack"].scores(merits)["y"] > POLICIES["pack"].scores(merits)["x"]


def test_spread_prefers_the_node_that_keeps_most_free() -> None:
    found = scores("spread", full=Merit(free=0.0), some=Merit(free=0.5), empty=Merit(free=0.9))
    assert found["empty"] == 10 > found["some"] > found["full"] == 0


CLASSES = {
    "any": DeviceClass("any", (f'device.attributes["{DRIVER}"].p100',)),
    "p100-ecc": DeviceClass("p100-ecc", (f'device.attributes["{DRIVER}"].ecc',)),
}
PRECIOUS, ORDINARY = card("precious", p100=True, ecc=True), card("ordinary", p100=True, ecc=False)


class TestReserve:
    """The story of Kubernetes' proposal 14: all cards are p100, and some of them have ECC memory."""

    def world(self, *devices: Device, policy: str = "reserve", usage: Usage | None = None) -> World:
        return World(pool(*devices), usage or Usage(), classes=CLASSES, policy=POLICIES[policy])

    def test_ordinary_pod_leaves_the_precious_device_alone_while_another_is_free(self) -> None:
        world = self.world(PRECIOUS, ORDINARY)
        assert world.devices(claim(want("gpu"))) == [["ordinary"]]
        assert replace(world, policy=POLICIES["best-fit"]).devices(claim(want("gpu"))) == [["precious"]]

    def test_ordinary_pod_takes_the_precious_device_if_no_other_is_free(self) -> None:
        world = self.world(PRECIOUS, ORDINARY, usage=held("ordinary"))
        assert world.devices(claim(want("gpu"))) == [["precious"]]

    def test_node_with_an_ordinary_device_scores_higher_even_if_it_is_emptier(self) -> None:
        merits = {
            "precious": self.world(PRECIOUS).allocated(claim(want("gpu"))).merit,
            "ordinary": self.world(ORDINARY, card("more", p100=True)).allocated(claim(want("gpu"))).merit,
        }
        assert (merits["precious"].demand, merits["ordinary"].demand) == (2, 1)
        found = POLICIES["reserve"].scores(merits)
        assert found["ordinary"] > found["precious"]

    def test_device_on_which_a_selector_of_another_class_fails_is_not_wanted_there(self) -> None:
        """A card without the attribute ecc."""
        world = self.world(PRECIOUS, card("old", p100=True))
        assert world.devices(claim(want("gpu"))) == [["old"]]

    def test_other_policies_ask_no_other_class(self) -> None:
        world = self.world(PRECIOUS, policy="best-fit")
        assert world.allocated(claim(want("gpu"))).merit.demand == 0

    def test_why_names_what_the_choice_keeps_for_others(self) -> None:
        why = POLICIES["reserve"].why
        assert why is not None
        few, many = Merit(demand=1), Merit(demand=2)
        assert list(why(few, [few, many])) == ["devices that the fewest classes select"]
        assert list(why(many, [few, many])) == ["devices that more classes select"]


# Scores: nodes side by side, earlier alternatives first, then what wastes least.


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
