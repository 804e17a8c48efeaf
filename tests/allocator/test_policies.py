"""The policies spread, pack and reserve: which device they take, and which node they prefer."""

from dataclasses import replace

import pytest

from allocator import Device, DeviceClass, DeviceId, Usage
from allocator.policies import POLICIES, Merit
from tests.allocator.worlds import DRIVER, World, claim, device, held, pool, q, want


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
