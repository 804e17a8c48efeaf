"""The audit catches each kind of planted fault, and finds nothing in what the allocator gives."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from allocator import (
    Allocation,
    AllocationResult,
    Claim,
    CounterConsumption,
    Device,
    DeviceClass,
    DeviceId,
    DeviceResult,
    Node,
    NodeSelector,
    Placement,
    Quantity,
    Slice,
)
from allocator.audit import Evidence, Finding, audit
from allocator.audit.rules import Rule
from allocator.model.claims import DerivedAttribute
from allocator.model.devices import Capacity, RequestPolicy, ValidRange
from allocator.model.nodes import NodeSelectorTerm, Requirement
from tests.allocator.worlds import (
    DRIVER,
    JUST_HERE,
    SELECTORS,
    World,
    alternative,
    claim,
    device,
    different,
    first_of,
    pool,
    q,
    same,
    want,
)

BIG = f"device.attributes['{DRIVER}'].big"
NODES = {name: Node(name, {"rack": "1"}) for name in ("node-1", "node-2")}
CLASSES = {"any": DeviceClass("any")}


def allocated(slices: list[Slice], *claims: Claim) -> Evidence:
    """The claims with what first-fit gives them."""
    answer = World(slices, node=NODES["node-1"]).allocate(*claims)
    assert isinstance(answer, Allocation)
    held = [replace(c, allocation=r) for c, r in zip(claims, answer.results, strict=True)]
    return Evidence(slices, CLASSES, held, NODES)


def changed(evidence: Evidence, number: int, change: Callable[[AllocationResult], AllocationResult]) -> Evidence:
    claims = list(evidence.claims)
    allocation = claims[number].allocation
    assert allocation is not None
    claims[number] = replace(claims[number], allocation=change(allocation))
    return replace(evidence, claims=claims)


def with_result(evidence: Evidence, index: int = 0, number: int = 0, **fields: Any) -> Evidence:
    """One result of a claim with some fields changed."""

    def change(allocation: AllocationResult) -> AllocationResult:
        results = list(allocation.results)
        results[index] = replace(results[index], **fields)
        return replace(allocation, results=tuple(results))

    return changed(evidence, number, change)


def rules(evidence: Evidence) -> list[Rule]:
    return [finding.rule for finding in audit(evidence, SELECTORS)]


def only(evidence: Evidence) -> Finding:
    (finding,) = audit(evidence, SELECTORS)
    return finding


def gpu(name: str) -> DeviceId:
    return DeviceId(DRIVER, "node-1", name)


def gpus(*big: bool) -> list[Device]:
    return [device(f"gpu-{i}", {"big": b, "index": i}) for i, b in enumerate(big)]


PLAIN = allocated(pool(*gpus(True, True, False)), claim(want(), name="a"), claim(want(), name="b"))


class TestNothingTwice:
    def test_a_device_in_two_claims_is_held_twice(self) -> None:
        finding = only(with_result(PLAIN, number=1, device=gpu("gpu-0")))
        assert (finding.rule, finding.claims, finding.device) == (
            Rule.HELD_TWICE,
            ("default/a", "default/b"),
            gpu("gpu-0"),
        )
        assert str(finding) == (
            f"device held twice: claim default/a, default/b, device {gpu('gpu-0')}: "
            "held by 2 allocations, not all of them shares"
        )

    def test_a_device_twice_in_one_claim_is_held_twice(self) -> None:
        two = allocated(pool(*gpus(True, True)), claim(want("gpu", 2)))
        assert rules(with_result(two, 1, device=gpu("gpu-0"))) == [Rule.HELD_TWICE]

    def test_a_share_of_a_device_held_as_a_whole_is_held_twice(self) -> None:
        shared = with_result(PLAIN, number=1, device=gpu("gpu-0"), share_id="s")
        assert rules(shared) == [Rule.HELD_TWICE]

    def test_admin_access_holds_nothing(self) -> None:
        spec = claim(want("gpu", admin_access=True), name="b")
        assert rules(allocated(pool(*gpus(True)), claim(want(), name="a"), spec)) == []

    def test_a_device_that_is_no_longer_published_is_not_judged(self) -> None:
        assert rules(with_result(PLAIN, device=gpu("gone"))) == []
        assert rules(with_result(with_result(PLAIN, device=gpu("gone")), number=1, device=gpu("gone"))) == [
            Rule.HELD_TWICE
        ]

    def test_claims_without_an_allocation_are_passed_over(self) -> None:
        assert rules(replace(PLAIN, claims=[*PLAIN.claims, claim(want(), name="c")])) == []


class TestCapacity:
    policy = RequestPolicy(q("4"), (q("2"), q("4"), q("6")))
    slices = tuple(pool(device("net", capacity={"band": Capacity(q("8"), policy)}, allow_multiple_allocations=True)))

    def shares(self, *amounts: str | None) -> Evidence:
        claims = [
            claim(want("net", capacity=None if a is None else (("band", q(a)),)), name=f"c{i}")
            for i, a in enumerate(amounts)
        ]
        return allocated(list(self.slices), *claims)

    def test_shares_within_the_capacity_are_no_finding(self) -> None:
        assert rules(self.shares("2", None)) == []
        assert rules(self.shares("1", "5")) == []

    def test_more_than_there_is(self) -> None:
        evidence = with_result(self.shares("2", "4"), consumed_capacity={"band": q("6")})
        finding = only(evidence)
        assert (finding.rule, finding.device) == (Rule.CAPACITY, gpu("net"))
        assert "more than 8 of band" in finding.message

    def test_two_shares_need_different_ids(self) -> None:
        assert rules(with_result(self.shares("2", "4"), number=1, share_id="share-0")) == [Rule.HELD_TWICE]

    @pytest.mark.parametrize(
        ("asked", "got", "message"),
        [
            ("2", {}, "nothing is consumed"),
            ("2", None, "nothing is consumed"),
            ("4", {"band": q("2")}, "2 is less than the 4 asked for"),
            ("2", {"band": q("3")}, "3 is not one of the valid values"),
            (None, {"band": q("2")}, "2 instead of 4, which is what no request means"),
        ],
    )
    def test_consumption_must_follow_the_request(
        self, asked: str | None, got: dict[str, Quantity] | None, message: str
    ) -> None:
        finding = only(with_result(self.shares(asked), consumed_capacity=got))
        assert (finding.rule, finding.device) == (Rule.CONSUMPTION, gpu("net"))
        assert finding.message == f"capacity band: {message}"

    @pytest.mark.parametrize(("got", "faults"), [("1", 1), ("2", 0), ("6", 0), ("7", 1)])
    def test_consumption_must_be_in_the_valid_range(self, got: str, faults: int) -> None:
        policy = RequestPolicy(q("2"), (), ValidRange(q("2"), q("6")))
        slices = pool(device("net", capacity={"band": Capacity(q("8"), policy)}, allow_multiple_allocations=True))
        evidence = allocated(slices, claim(want("net", capacity=(("band", q("1")),))))
        assert rules(with_result(evidence, consumed_capacity={"band": q(got)})) == [Rule.CONSUMPTION] * faults

    def test_without_request_and_policy_all_capacity_is_consumed(self) -> None:
        slices = pool(device("net", capacity={"band": "8"}, allow_multiple_allocations=True))
        assert rules(allocated(slices, claim(want("net")))) == []
        assert rules(allocated(slices, claim(want("net", capacity=(("band", q("3")),))))) == []


class TestCounters:
    def test_more_than_there_is(self) -> None:
        parts = [device(f"p{i}", draws={"s": {"x": 2}}) for i in range(3)]
        evidence = allocated(pool(*parts, counters={"s": {"x": 4}}), claim(want(), name="a"), claim(want(), name="b"))
        assert rules(evidence) == []
        third = replace(claim(want(), name="c"), allocation=AllocationResult((DeviceResult("gpu", gpu("p2")),)))
        findings = audit(replace(evidence, claims=[*evidence.claims, third], nodes={}), SELECTORS)
        counters = [f for f in findings if f.rule is Rule.COUNTERS]
        assert [(f.claims, f.message) for f in counters] == [
            (
                ("default/a", "default/b", "default/c"),
                f"pool {DRIVER}/node-1: more than 4 of counter s/x is drawn",
            )
        ]

    def test_devices_on_a_counter_set_need_a_common_group(self) -> None:
        def grouped(name: str, *groups: str) -> Device:
            return replace(
                device(name), consumes_counters=(CounterConsumption("s", {"x": Quantity.from_int(1)}, groups),)
            )

        slices = pool(grouped("a", "g"), grouped("b", "g"), grouped("c"), grouped("d"), counters={"s": {"x": 9}})
        evidence = allocated(slices, claim(want("gpu", 2)))
        assert rules(evidence) == []
        assert rules(with_result(evidence, 1, device=gpu("c"))) == [Rule.COMPATIBILITY]
        assert rules(with_result(with_result(evidence, 0, device=gpu("c")), 1, device=gpu("d"))) == []


class TestSelectors:
    def test_a_false_selector_is_a_finding(self) -> None:
        evidence = allocated(pool(*gpus(True, False)), claim(want("gpu", 1, BIG)))
        finding = only(with_result(evidence, device=gpu("gpu-1")))
        assert (finding.rule, finding.device) == (Rule.SELECTOR, gpu("gpu-1"))
        assert finding.message.endswith("is false")

    def test_a_false_selector_of_the_class_is_a_finding(self) -> None:
        evidence = replace(PLAIN, classes={"any": DeviceClass("any", (f"!{BIG}",))})
        assert rules(evidence) == [Rule.SELECTOR, Rule.SELECTOR]

    def test_a_failing_selector_is_a_finding(self) -> None:
        evidence = replace(PLAIN, classes={"any": DeviceClass("any", (f"device.attributes['{DRIVER}'].gone",))})
        assert all("fails: " in f.message for f in audit(evidence, SELECTORS))
        assert rules(evidence) == [Rule.SELECTOR, Rule.SELECTOR]

    def test_a_class_that_is_gone_is_not_judged(self) -> None:
        assert rules(replace(PLAIN, classes={})) == []


class TestConstraints:
    devices = (
        device("a", {"root": "p0", "i": 0}),
        device("b", {"root": "p0", "i": 1}),
        device("c", {"root": "p1", "i": 1}),
        device("d"),
    )

    def evidence(self, *constraints: Any) -> Evidence:
        return allocated(pool(*self.devices), claim(want("x"), want("y"), *constraints))

    def test_constraints_that_hold_are_no_finding(self) -> None:
        assert rules(self.evidence(same("root"), different("i"))) == []

    def test_match_attribute_needs_a_common_value(self) -> None:
        assert rules(with_result(self.evidence(same("root")), 1, device=gpu("c"))) == [Rule.CONSTRAINT]

    def test_distinct_attribute_needs_different_values(self) -> None:
        evidence = with_result(self.evidence(different("i")), 0, device=gpu("c"))
        assert rules(evidence) == [Rule.CONSTRAINT]

    def test_a_missing_attribute_breaks_a_constraint(self) -> None:
        finding = only(with_result(self.evidence(same("root")), 1, device=gpu("d")))
        assert (finding.rule, finding.device) == (Rule.CONSTRAINT, gpu("d"))

    def test_a_constraint_does_not_judge_other_requests(self) -> None:
        assert rules(with_result(self.evidence(same("root", "x")), 1, device=gpu("c"))) == []
        assert rules(with_result(self.evidence(same("root", "x", "y")), 1, device=gpu("c"))) == [Rule.CONSTRAINT]

    def test_a_constraint_sees_the_derived_attribute(self) -> None:
        derived = (DerivedAttribute(f"{DRIVER}/other", "2"), DerivedAttribute(f"{DRIVER}/k", "1"))
        evidence = allocated(pool(*self.devices), claim(want("x", 2, derived_attributes=derived), same("k")))
        assert rules(evidence) == []
        (spec,) = (c.spec for c in evidence.claims)
        other = replace(spec, constraints=(different("k"),))
        assert rules(replace(evidence, claims=[replace(evidence.claims[0], spec=other)])) == [Rule.CONSTRAINT]

    def test_a_failing_derived_attribute_is_a_finding(self) -> None:
        broken = DerivedAttribute(f"{DRIVER}/root", f"device.attributes['{DRIVER}'].gone")
        evidence = allocated(pool(*self.devices), claim(want("x")))
        spec = claim(want("x", derived_attributes=(broken,)), same("root")).spec
        finding = only(replace(evidence, claims=[replace(evidence.claims[0], spec=spec)]))
        assert (finding.rule, finding.device) == (Rule.CONSTRAINT, gpu("a"))
        assert "fails: " in finding.message


class TestCounts:
    def drop(self, evidence: Evidence, keep: int) -> Evidence:
        return changed(evidence, 0, lambda allocation: replace(allocation, results=allocation.results[:keep]))

    def test_a_device_too_few_is_a_finding(self) -> None:
        finding = only(self.drop(allocated(pool(*gpus(True, True)), claim(want("gpu", 2))), 1))
        assert (finding.rule, finding.message) == (Rule.COUNT, "request gpu: 1 devices instead of 2")

    def test_a_request_without_devices_is_a_finding(self) -> None:
        evidence = self.drop(allocated(pool(*gpus(True)), claim(want())), 0)
        assert Rule.COUNT in rules(evidence)

    def test_a_missing_device_of_a_request_for_all_is_a_finding(self) -> None:
        evidence = self.drop(allocated(pool(*gpus(True, True)), claim(want("gpu", None))), 1)
        finding = only(evidence)
        assert (finding.rule, finding.device) == (Rule.COUNT, gpu("gpu-1"))

    @pytest.mark.parametrize(
        ("created", "revision", "is_found"),
        [
            ("", 1, True),
            ("2026-01-01T11:59:59Z", 1, True),
            ("2026-01-01T11:59:59Z", 2, False),
            ("2026-01-01T12:00:00Z", 1, False),
            ("2026-01-01T12:00:01Z", 1, False),
        ],
        ids=["undated", "published before", "changed since", "in the same second", "published later"],
    )
    def test_only_devices_that_were_there_before_count_as_missing(
        self, created: str, revision: int, is_found: bool
    ) -> None:
        slices = pool(*gpus(True, True), created=created, revision=revision)
        evidence = self.drop(allocated(slices, claim(want("gpu", None))), 1)
        evidence = changed(evidence, 0, lambda allocation: replace(allocation, timestamp="2026-01-01T12:00:00Z"))
        assert rules(evidence) == ([Rule.COUNT] if is_found else [])

    def test_devices_that_do_not_match_are_not_missing(self) -> None:
        far = pool(device("far", {"big": True}, pool="far"), placement=Placement("node-2"))
        assert rules(allocated([*pool(*gpus(True, False, True)), *far], claim(want("gpu", None, BIG)))) == []

    def test_two_alternatives_of_one_request_are_a_finding(self) -> None:
        evidence = allocated(pool(*gpus(True, True)), claim(first_of("gpu", alternative("two", 2), alternative("one"))))
        assert rules(evidence) == []
        finding = only(with_result(evidence, 1, request="gpu/one"))
        assert (finding.rule, finding.message) == (Rule.COUNT, "request gpu: 2 of its alternatives are served")

    def test_a_result_needs_a_request(self) -> None:
        assert set(rules(with_result(PLAIN, request="other"))) == {Rule.RESULT, Rule.COUNT}


RACK = NodeSelector((NodeSelectorTerm((Requirement("rack", "In", ("1",)),)),))


class TestNodeSelectors:
    def selected(self, evidence: Evidence, selector: NodeSelector | None) -> Evidence:
        return changed(evidence, 0, lambda allocation: replace(allocation, node_selector=selector))

    def test_a_local_device_needs_a_node_selector(self) -> None:
        assert set(rules(self.selected(PLAIN, None))) == {Rule.NODE_SELECTOR}

    def test_a_local_device_bound_to_another_node_is_a_finding(self) -> None:
        there = NodeSelector((NodeSelectorTerm((), (Requirement("metadata.name", "In", ("node-2",)),)),))
        assert set(rules(self.selected(PLAIN, there))) == {Rule.NODE_SELECTOR}

    def test_a_local_device_must_be_bound_by_name(self) -> None:
        assert Rule.NODE_SELECTOR in rules(self.selected(PLAIN, RACK))

    def test_a_node_that_reaches_all_devices_must_be_admitted(self) -> None:
        evidence = allocated(pool(*gpus(True), placement=Placement(all_nodes=True)), claim(want()))
        assert rules(evidence) == []
        finding = only(self.selected(evidence, JUST_HERE))
        assert (finding.rule, finding.message) == (
            Rule.NODE_SELECTOR,
            "node node-2 reaches all devices, but is not admitted",
        )

    def test_a_node_that_does_not_reach_all_devices_must_not_be_admitted(self) -> None:
        nodes = {**NODES, "node-2": Node("node-2", {"rack": "2"})}
        evidence = replace(
            allocated(pool(*gpus(True), placement=Placement(node_selector=RACK)), claim(want())), nodes=nodes
        )
        assert rules(evidence) == []
        finding = only(self.selected(evidence, None))
        assert finding.message == "node node-2 is admitted, but does not reach all devices"

    def test_a_device_that_binds_to_its_node_needs_that_node(self) -> None:
        everywhere = Placement(all_nodes=True)
        evidence = allocated(pool(device("gpu", binds_to_node=True), placement=everywhere), claim(want()))
        assert rules(evidence) == []
        assert rules(self.selected(evidence, None)) == [Rule.NODE_SELECTOR]

    def test_devices_with_placements_of_their_own_are_judged_by_these(self) -> None:
        one = pool(device("gpu", placement=Placement("node-1")), placement=None, per_device_placement=True)
        evidence = allocated(one, claim(want()))
        assert rules(evidence) == []
        assert set(rules(self.selected(evidence, None))) == {Rule.NODE_SELECTOR}


class TestGenerations:
    def test_only_the_newest_generation_is_judged(self) -> None:
        newer = pool(*gpus(False, False, False), generation=2)
        renamed = [replace(s, name="newer") for s in newer]
        big = allocated(pool(*gpus(True)), claim(want("gpu", 1, BIG)))
        assert rules(big) == []
        assert rules(replace(big, slices=[*big.slices, *renamed])) == [Rule.SELECTOR]
        older = [replace(s, generation=0, name="older") for s in newer]
        assert rules(replace(big, slices=[*older, *big.slices])) == []
