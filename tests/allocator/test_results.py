"""What a claim is told it got: configuration, node selector, conditions, node operations."""

from dataclasses import replace
from typing import Any

import pytest

from allocator import (
    Allocation,
    AllocationResult,
    Claim,
    Device,
    DeviceClass,
    Node,
    NodeSelector,
    NodeUnsuitableError,
    Placement,
    Request,
    Slice,
)
from allocator.model.allocations import AllocatedConfig, ClaimConfig, OpaqueConfig
from allocator.model.features import ALL_FEATURES
from allocator.model.nodes import NodeSelectorTerm, Requirement
from tests.allocator.worlds import HERE, JUST_HERE, NODE, World, alternative, claim, device, first_of, pool, want


def result(world: World, wanted: Claim) -> AllocationResult:
    answer = world.allocate(wanted)
    assert isinstance(answer, Allocation)
    return answer.results[0]


def opaque(text: str) -> OpaqueConfig:
    return OpaqueConfig("gpu.example.com", text)


CLASSES = {
    "any": DeviceClass("any", configs=(opaque("any-1"), opaque("any-2"))),
    "other": DeviceClass("other", configs=(opaque("other"),)),
    "plain": DeviceClass("plain"),
}


def of_class(name: str, request: str) -> Request:
    return Request(request, (replace(alternative(""), device_class=name),))


def configs(*parts: Any, config: tuple[ClaimConfig, ...] = ()) -> list[tuple[str, str, tuple[str, ...]]]:
    """Source, parameters and requests of each configuration."""
    wanted = claim(*parts)
    wanted = replace(wanted, spec=replace(wanted.spec, configs=config))
    world = World(pool(*(device(f"gpu-{i}") for i in range(3))), classes=CLASSES)
    return [(c.source, c.opaque.parameters, c.requests) for c in result(world, wanted).configs]


class TestConfigs:
    def test_configuration_of_a_class_comes_once_for_all_its_requests(self) -> None:
        assert configs(want("a"), of_class("other", "b"), want("c")) == [
            ("FromClass", "any-1", ("a", "c")),
            ("FromClass", "any-2", ("a", "c")),
            ("FromClass", "other", ("b",)),
        ]

    def test_configuration_for_every_request_names_none(self) -> None:
        assert configs(want("a"), want("b")) == [("FromClass", "any-1", ()), ("FromClass", "any-2", ())]

    def test_a_class_that_was_not_chosen_gives_no_configuration(self) -> None:
        choice = Request("a", (replace(alternative("x"), device_class="plain"), alternative("y")), prioritized=True)
        assert configs(choice) == []

    def test_configuration_of_a_class_names_the_chosen_alternative(self) -> None:
        assert configs(first_of("a", alternative("x"), alternative("y")), of_class("plain", "b")) == [
            ("FromClass", "any-1", ("a/x",)),
            ("FromClass", "any-2", ("a/x",)),
        ]

    @pytest.mark.parametrize(
        ("requests", "expected"),
        [
            ((), [()]),
            (("a",), [("a",)]),
            (("b",), [("b",)]),
            (("b/x",), [("b/x",)]),
            (("b/y",), []),
            (("c",), []),
            (("a", "b"), [()]),
            (("a", "b/x"), [()]),
            (("a", "b/y"), [("a", "b/y")]),
        ],
    )
    def test_configuration_of_the_claim_comes_for_chosen_requests(
        self, requests: tuple[str, ...], expected: list[tuple[str, ...]]
    ) -> None:
        choice = Request(
            "b",
            (replace(alternative("x"), device_class="plain"), replace(alternative("y"), device_class="plain")),
            prioritized=True,
        )
        got = configs(of_class("plain", "a"), choice, config=(ClaimConfig(opaque("mine"), requests),))
        assert got == [("FromClaim", "mine", each) for each in expected]

    def test_configuration_of_classes_comes_before_that_of_the_claim(self) -> None:
        got = configs(of_class("other", "a"), config=(ClaimConfig(opaque("mine")), ClaimConfig(opaque("too"))))
        assert got == [("FromClass", "other", ()), ("FromClaim", "mine", ()), ("FromClaim", "too", ())]

    def test_configuration_is_compared_by_value(self) -> None:
        world = World(pool(device("gpu")), classes=CLASSES)
        assert result(world, claim(of_class("other", "a"))).configs == (AllocatedConfig("FromClass", opaque("other")),)


def labelled(*pairs: tuple[str, str]) -> NodeSelectorTerm:
    return NodeSelectorTerm(tuple(Requirement(key, "In", (value,)) for key, value in pairs))


def term(*expressions: Requirement, fields: tuple[Requirement, ...] = ()) -> NodeSelector:
    return NodeSelector((NodeSelectorTerm(expressions, fields),))


def placed(name: str, placement: Placement, **more: Any) -> list[Slice]:
    return pool(device("gpu", pool=name, **more), placement=placement)


def placed_itself(name: str, placement: Placement) -> list[Slice]:
    return pool(device("gpu", pool=name, placement=placement), placement=None, per_device_placement=True)


RACK, ZONE = Requirement("rack", "In", ("1",)), Requirement("zone", "In", ("a",))
EVERYWHERE = Placement(all_nodes=True)
IN_RACK, IN_ZONE, IN_BOTH = (
    Placement(node_selector=term(*requirements)) for requirements in ((RACK,), (ZONE,), (ZONE, RACK))
)
ONE_OF = [Requirement("rack", "In", values) for values in (("2", "1"), ("1", "2"), ("1", "2", "1"))]
BY_FIELD = Placement(node_selector=term(fields=(Requirement("metadata.name", "NotIn", ("node-9",)),)))

SELECTORS = [
    # where the pools of the claim's devices are placed, the claim's node selector
    ([HERE], JUST_HERE),
    ([EVERYWHERE], None),
    ([EVERYWHERE, EVERYWHERE], None),
    ([IN_RACK], term(RACK)),
    ([IN_RACK, IN_ZONE], term(RACK, ZONE)),
    ([IN_RACK, IN_RACK], term(RACK)),
    ([IN_RACK, IN_BOTH], term(RACK, ZONE)),
    ([Placement(node_selector=term(each)) for each in ONE_OF], term(ONE_OF[0])),
    ([IN_RACK, EVERYWHERE], term(RACK)),
    ([EVERYWHERE, HERE], JUST_HERE),
    ([IN_RACK, HERE], JUST_HERE),
    ([BY_FIELD, IN_RACK], term(RACK, fields=(Requirement("metadata.name", "NotIn", ("node-9",)),))),
]


@pytest.mark.parametrize(("placements", "expected"), SELECTORS)
def test_the_node_selector_joins_the_placements_of_all_devices(
    placements: list[Placement], expected: NodeSelector | None
) -> None:
    slices = [s for i, p in enumerate(placements) for s in placed(f"pool-{i}", p)]
    world = World(slices, node=Node("node-1", {"rack": "1", "zone": "a"}))
    assert result(world, claim(want("gpu", len(placements)))).node_selector == expected


class TestNodeSelector:
    def test_a_device_with_its_own_placement_gives_that_selector(self) -> None:
        slices = [*placed_itself("a", IN_RACK), *placed_itself("b", EVERYWHERE)]
        world = World(slices, node=Node("node-1", {"rack": "1"}))
        assert result(world, claim(want("gpu", 2))).node_selector == term(RACK)
        assert result(World(placed_itself("a", HERE)), claim(want())).node_selector == JUST_HERE

    def test_a_device_that_binds_to_its_node_gives_that_node(self) -> None:
        world = World(placed("a", EVERYWHERE, binds_to_node=True))
        assert result(world, claim(want())).node_selector == JUST_HERE

    def test_each_claim_has_a_node_selector_of_its_own(self) -> None:
        world = World([*placed("a", EVERYWHERE), *placed("b", HERE)])
        answer = world.allocate(claim(want(), name="a"), claim(want(), name="b"))
        assert isinstance(answer, Allocation)
        assert [r.node_selector for r in answer.results] == [None, JUST_HERE]

    def test_a_slice_selector_of_several_terms_is_an_error(self) -> None:
        two = Placement(node_selector=NodeSelector((labelled(("rack", "1")), labelled(("rack", "2")))))
        world = World(placed("a", two), node=Node("node-1", {"rack": "2"}))
        with pytest.raises(NodeUnsuitableError, match=r"slice gpu\.example\.com-a has a node selector of 2 terms"):
            world.allocate(claim(want()))

    def test_a_claim_without_devices_has_no_node_selector(self) -> None:
        assert result(World([]), claim()).node_selector is None


class TestBindingConditions:
    device = device("gpu", binding_conditions=("ready",), binding_failure_conditions=("broken",))

    def test_binding_conditions_of_a_device_are_repeated_in_its_result(self) -> None:
        (one,) = result(World(pool(self.device)), claim(want())).results
        assert (one.binding_conditions, one.binding_failure_conditions) == (("ready",), ("broken",))

    def test_devices_without_binding_conditions_are_preferred(self) -> None:
        simple = device("simple", driver="zpu.example.com")
        assert World([*pool(self.device), *pool(simple)]).devices(claim(want())) == [["simple"]]

    def test_a_device_with_binding_conditions_is_refused_while_they_are_off(self) -> None:
        off = replace(ALL_FEATURES, binding_conditions=False)
        world = World(pool(self.device), features=off)
        assert world.devices(claim(want())) == "device binding conditions are off, request gpu needs them"
        only_failures = replace(self.device, binding_conditions=None)
        (one,) = result(World(pool(only_failures), features=off), claim(want())).results
        assert (one.binding_conditions, one.binding_failure_conditions) == (None, None)


class TestSkippedNodeOperations:
    slices = tuple(pool(device("gpu"), skip_node_operations=("NodePrepareResources", "NodeUnprepareResources")))
    able = replace(NODE, declared_features=frozenset({"DRAOptionalNodeOperations"}))
    no = "node lacks a feature for the devices of request gpu"

    def test_skipped_operations_need_a_node_that_declares_the_feature(self) -> None:
        assert World(self.slices).devices(claim(want())) == self.no
        assert World(self.slices, node=self.able).devices(claim(want())) == [["gpu"]]

    def test_skipped_node_operations_are_repeated_in_the_result(self) -> None:
        (one,) = result(World(self.slices, node=self.able), claim(want())).results
        assert one.skip_node_operations == ("NodePrepareResources", "NodeUnprepareResources")

    def test_a_device_that_skips_node_operations_is_refused_while_they_are_off(self) -> None:
        off = replace(ALL_FEATURES, optional_node_operations=False)
        assert World(self.slices, node=self.able, features=off).devices(claim(want())) == self.no

    def test_one_device_that_skips_operations_fails_all_devices(self) -> None:
        world = World([*self.slices, *pool(device("nic", driver="nic.example.com"))])
        assert world.devices(claim(want("gpu", None))) == self.no


def test_devices_are_listed_by_request_in_the_order_chosen() -> None:
    devices: list[Device] = [device(f"gpu-{i}", {"big": i == 0}) for i in range(3)]
    big = "device.attributes['gpu.example.com'].big"
    got = result(World(pool(*devices)), claim(want("a", 2, f"!{big}"), want("b", 1, big)))
    assert [(r.request, r.device.device) for r in got.results] == [("a", "gpu-1"), ("a", "gpu-2"), ("b", "gpu-0")]
