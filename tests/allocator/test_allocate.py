"""Answers: errors with their data, reasons and their one-line summary, scores, and how policies choose."""

from dataclasses import replace
from typing import Any

import pytest

from allocator import (
    Allocation,
    AllocatorError,
    Claim,
    Device,
    DeviceClass,
    DeviceId,
    DeviceTaint,
    InvalidClaimError,
    InvalidObjectError,
    Limits,
    NodeUnsuitableError,
    Problem,
    Request,
    SearchLimitError,
    SelectorError,
    Unsatisfiable,
    Usage,
    allocate,
)
from allocator.checks.counters import SHORT
from allocator.checks.table import CAUSES
from allocator.model.devices import Capacity, RequestPolicy
from allocator.outcome import Unserved
from allocator.policies import BEST_FIT
from tests.allocator.worlds import (
    DRIVER,
    SELECTORS,
    World,
    alternative,
    claim,
    device,
    first_of,
    held,
    pool,
    q,
    same,
    ticks,
    want,
)

GPU = DeviceId(DRIVER, "node-1", "gpu-0")


class TestInvalidClaims:
    @pytest.mark.parametrize(
        ("request_", "where", "reason"),
        [
            (Request("gpu", ()), "gpu", "neither exactly nor firstAvailable is set"),
            (Request("gpu", (replace(alternative(""), mode=None),)), "gpu", "has an unknown allocation mode"),
            (want("gpu", 1, ""), "gpu", "selector 0 is of an unknown kind"),
            (want("gpu", 1, "true", ""), "gpu", "selector 1 is of an unknown kind"),
            (Request("gpu", (replace(alternative(""), device_class=""),)), "gpu", "deviceClassName is missing"),
            (
                first_of("gpu", alternative("one"), replace(alternative("two"), device_class="gone")),
                "gpu/two",
                "device class gone does not exist",
            ),
            (want("gpu", 33), "gpu", "adding 33 devices exceeds the claim limit of 32, with 0 before it"),
        ],
    )
    def test_an_invalid_claim_is_named_with_request_and_reason(
        self, request_: Request, where: str, reason: str
    ) -> None:
        with pytest.raises(InvalidClaimError) as caught:
            World(pool(device("gpu-0"))).allocate(claim(request_))
        error = caught.value
        assert (error.claim, error.request, error.problem) == ("default/claim", where, reason)
        assert str(error) == f"claim default/claim, request {where}: {reason}"

    def test_an_invalid_claim_fails_the_claims_beside_it(self) -> None:
        with pytest.raises(InvalidClaimError, match="claim default/second"):
            World(pool(device("gpu-0"))).allocate(claim(want()), claim(Request("gpu", ()), name="second"))


class TestSelectorErrors:
    missing = f"device.attributes['{DRIVER}'].gone == 1"

    def fail(self, wanted: Claim, **classes: DeviceClass) -> SelectorError:
        world = World(pool(device("gpu-0"), device("gpu-1")), classes={"any": DeviceClass("any"), **classes})
        with pytest.raises(SelectorError) as caught:
            world.allocate(wanted)
        return caught.value

    def test_a_failing_selector_of_a_request_is_named(self) -> None:
        error = self.fail(claim(want("gpu", 1, "true", self.missing)))
        assert (error.claim, error.request, error.source, error.device) == ("default/claim", "gpu", "selector 1", GPU)
        assert "gone" in error.message
        assert str(error).startswith(f"claim default/claim, request gpu: selector 1 on device {DRIVER}/node-1/gpu-0: ")

    def test_a_failing_selector_of_a_class_is_named(self) -> None:
        broken = DeviceClass("any", ("true", self.missing))
        assert self.fail(claim(want()), any=broken).source == "class any, selector 1"

    def test_a_failing_selector_of_a_subrequest_is_named(self) -> None:
        error = self.fail(claim(first_of("gpu", alternative("one", 1, "false"), alternative("two", 1, self.missing))))
        assert (error.request, error.source) == ("gpu/two", "selector 0")

    def test_a_selector_that_does_not_compile_is_named_by_its_place(self) -> None:
        error = self.fail(claim(want("gpu", 1, "device.driver ==")))
        assert error.source == "selector 0"

    def test_a_failing_selector_fails_a_request_for_all_devices(self) -> None:
        assert self.fail(claim(want("gpu", None, self.missing))).device == GPU

    def test_a_value_of_an_unknown_type_fails_every_selector(self) -> None:
        world = World(pool(device("gpu-0", {"odd": ()})))
        with pytest.raises(SelectorError, match=f"attribute {DRIVER}/odd: unsupported value"):
            world.allocate(claim(want("gpu", 1, "true")))
        assert world.devices(claim(want())) == [["gpu-0"]]

    def test_a_device_that_is_not_needed_raises_no_error(self) -> None:
        devices = [device("gpu-0", {"gone": 1}), device("gpu-1")]
        assert World(pool(*devices)).devices(claim(want("gpu", 1, self.missing))) == [["gpu-0"]]
        assert World(pool(*devices), policy=BEST_FIT).devices(claim(want("gpu", 1, self.missing))) == [["gpu-0"]]

    def test_a_device_in_use_raises_no_error(self) -> None:
        devices = [device("gpu-0"), device("gpu-1", {"gone": 1})]
        assert World(pool(*devices), held("gpu-0")).devices(claim(want("gpu", 1, self.missing))) == [["gpu-1"]]

    def test_an_error_behind_a_dead_end_is_still_raised(self) -> None:
        """The second device fails the second request's selector, so nothing is foretold from it."""
        devices = [device("gpu-0", {"gone": 1}), device("gpu-1")]
        with pytest.raises(SelectorError):
            World(pool(*devices)).allocate(claim(want("a"), want("b", 1, self.missing)))


def test_errors_carry_their_data_into_their_text() -> None:
    problems = (Problem("spec.devices[0].name", "is missing"), Problem("", "is odd"))
    error = InvalidObjectError("ResourceSlice", "s", problems)
    assert str(error) == "ResourceSlice s: spec.devices[0].name: is missing; ResourceSlice s: is odd"
    assert str(InvalidClaimError("ns/c", "", "is odd")) == "claim ns/c: is odd"
    assert str(NodeUnsuitableError("ns/c", "r", "is odd", GPU)) == f"claim ns/c, request r: is odd on device {GPU}"
    assert str(SelectorError("ns/c", "r", "selector 0", None, "bad")) == "claim ns/c, request r: selector 0: bad"
    assert str(SearchLimitError(7, "steps")) == "search stopped by the limit on steps after 7 steps"
    assert all(isinstance(e, AllocatorError) for e in (error, SearchLimitError(7, "steps")))


class TestReasons:
    """Every device's own reason, or what came up on the way."""

    def reasons(self, devices: list[Device], *claims: Claim, usage: Usage = Usage()) -> list[tuple[Any, ...]]:  # noqa: B008
        answer = World(pool(*devices), usage).allocate(*claims)
        assert isinstance(answer, Unsatisfiable)
        return [(r.request, r.cause.name, r.device and r.device.device, r.detail) for r in answer.reasons]

    def test_each_device_has_its_reason(self) -> None:
        devices = [
            device("held"),
            device("odd", {"big": False}),
            device("sick", {"big": True}, taints=(DeviceTaint("k", "NoExecute", "v"),)),
        ]
        big = f"device.attributes['{DRIVER}'].big"
        assert self.reasons(devices, claim(want("gpu", 1, big)), usage=held("held")) == [
            ("gpu", "in-use", "held", ""),
            ("gpu", "selector", "odd", "selector 0"),
            ("gpu", "taint", "sick", "k=v:NoExecute"),
        ]

    def test_each_alternative_has_its_reasons(self) -> None:
        choice = first_of("gpu", alternative("one", 1, "false"), alternative("two", 2))
        assert self.reasons([device("gpu-0")], claim(choice)) == [
            ("gpu/one", "selector", "gpu-0", "selector 0"),
            ("gpu", "count", None, ""),
        ]

    def test_the_reasons_are_those_of_the_last_request_reached(self) -> None:
        devices = [device("gpu-0"), device("gpu-1")]
        assert self.reasons(devices, claim(want("a"), want("b", 1, "false"), want("c"))) == [
            ("b", "selector", "gpu-0", "selector 0"),
            ("b", "selector", "gpu-1", "selector 0"),
        ]

    def test_devices_of_other_requests_are_a_reason(self) -> None:
        assert self.reasons([device("gpu-0")], claim(want("a"), want("b"))) == [("b", "count", None, "")]

    @pytest.mark.parametrize(
        ("selector", "summary"),
        [
            (f"device.attributes['{DRIVER}'].big", "resource pool is not usable for request gpu"),
            (f"device.driver == '{DRIVER}' && false", "no device matches request gpu"),
            ("device.driver == 'nic.example.com'", "no device matches request gpu"),
        ],
    )
    def test_an_incomplete_pool_is_a_reason_if_its_driver_may_match(self, selector: str, summary: str) -> None:
        missing = pool(device("gpu-9", pool="more"), slice_count=2)
        nic = device("nic-0", {f"{DRIVER}/big": False}, driver="other.example.com")
        assert World([*missing, *pool(nic)]).devices(claim(want("gpu", 1, selector))) == summary

    def test_all_devices_fail_for_the_reasons_of_single_devices(self) -> None:
        devices = [device("gpu-0"), device("gpu-1")]
        assert self.reasons(devices, claim(want("gpu", None)), usage=held("gpu-1")) == [("gpu", "in-use", "gpu-1", "")]

    def test_a_counter_that_is_overdrawn_is_named(self) -> None:
        slices = pool(device("gpu", draws={"s": {"x": 2}}), counters={"s": {"x": 1}})
        answer = World(slices).allocate(claim(want()))
        assert isinstance(answer, Unsatisfiable)
        assert answer.reasons == (Unserved("default/claim", "gpu", SHORT, None, "s/x"),)

    def test_a_summary_is_the_same_whichever_devices_are_in_the_way(self) -> None:
        one = World(pool(device("a"), device("b")), held("a", "b")).devices(claim(want()))
        two = World(pool(device("c")), held("c")).devices(claim(want()))
        assert one == two == "no free device for request gpu"

    def test_every_cause_has_a_summary_and_a_rank_of_its_own(self) -> None:
        assert len({cause.rank for cause in CAUSES}) == len({cause.name for cause in CAUSES}) == len(CAUSES)
        for cause in CAUSES:
            assert "gpu" in Unsatisfiable((Unserved("ns/c", "gpu", cause, None, "x"),), 0).reason.in_words()
        assert Unsatisfiable((), 0).reason.in_words() == "no suitable devices"


def sized(name: str, memory: int, **more: Any) -> Device:
    return device(name, capacity={"memory": f"{memory}Gi"}, **more)


class TestBestFit:
    def best(self, world: World, *claims: Claim) -> list[list[str]] | str:
        return replace(world, policy=BEST_FIT).devices(*claims)

    def test_best_fit_takes_the_smallest_device_that_suffices(self) -> None:
        world = World(pool(sized("a80", 80), sized("a40", 40), sized("a10", 10)))
        at_least = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('20Gi')) >= 0"
        assert world.devices(claim(want("gpu", 1, at_least))) == [["a80"]]
        assert self.best(world, claim(want("gpu", 1, at_least))) == [["a40"]]

    def test_best_fit_keeps_whole_devices_whole(self) -> None:
        slices = pool(
            device("g0-a", draws={"g0": {"x": 1}}),
            device("g1-a", draws={"g1": {"x": 1}}),
            device("g1-b", draws={"g1": {"x": 1}}),
            counters={"g0": {"x": 2}, "g1": {"x": 2}},
        )
        world = World(slices, held("g1-a"))
        assert world.devices(claim(want())) == [["g0-a"]]
        assert self.best(world, claim(want())) == [["g1-b"]]

    def test_best_fit_uses_up_a_tight_group_first(self) -> None:
        roots = ["p0", "p0", "p0", "p1", "p1"]
        world = World(pool(*(device(f"gpu-{i}", {"root": r}) for i, r in enumerate(roots))))
        assert self.best(world, claim(want("gpu", 2), same("root"))) == [["gpu-3", "gpu-4"]]

    def test_best_fit_fills_a_shared_device_that_is_in_use(self) -> None:
        policy = RequestPolicy(q("1Gi"))
        a, b = (
            device(n, capacity={"memory": Capacity(q("8Gi"), policy)}, allow_multiple_allocations=True) for n in "ab"
        )
        usage = Usage.of((), [(b.id, "s")], {b.id: {"memory": 2**30 * 10**9}})
        assert World(pool(a, b), usage).devices(claim(want())) == [["a"]]
        assert self.best(World(pool(a, b), usage), claim(want())) == [["b"]]

    def test_best_fit_keeps_the_published_order_among_equals(self) -> None:
        world = World(pool(device("b"), device("a")))
        assert self.best(world, claim(want())) == [["b"]]

    def test_best_fit_keeps_the_published_order_if_all_devices_are_constrained(self) -> None:
        """Else the order could hide or find the error of a constraint that they violate."""
        devices = [sized("a80", 80), sized("a10", 10), device("nic", {"root": "p0"})]
        everything = want("all", None, f"'root' in device.attributes['{DRIVER}']")
        world = World(pool(*devices))
        assert self.best(world, claim(want("one"), everything, same("root", "all"))) == [["a80", "nic"]]


class TestAmong:
    """Only some devices may be taken."""

    PAIR = World(pool(device("gpu-0"), device("gpu-1")))
    PARTS = World(
        pool(
            device("whole", draws={"gpu": {"memory": 2}}),
            device("half-0", draws={"gpu": {"memory": 1}}),
            device("half-1", draws={"gpu": {"memory": 1}}),
            counters={"gpu": {"memory": 2}},
        )
    )

    @pytest.mark.parametrize(
        ("world", "request_", "among", "taken"),
        [
            (PAIR, want(), ["gpu-1"], ["gpu-1"]),
            (PAIR, want(number=2), ["gpu-1"], None),
            (PAIR, want(number=None), ["gpu-1"], None),
            (PAIR, want(number=None), ["gpu-0", "gpu-1"], ["gpu-0", "gpu-1"]),
            (PAIR, want(), [], None),
            (PAIR, want(), ["gone"], None),
            (PARTS, want(), ["whole"], ["whole"]),
            (PARTS, want(number=2), ["half-0", "half-1"], ["half-0", "half-1"]),
        ],
    )
    def test_no_other_device_is_taken(
        self, world: World, request_: Request, among: list[str], taken: list[str] | None
    ) -> None:
        only = frozenset(DeviceId(DRIVER, "node-1", name) for name in among)
        task = replace(world.task(claim(request_)), among=only)
        found = allocate(task, selectors=SELECTORS, clock=ticks(), new_share_id=str)
        results = found.results[0].results if isinstance(found, Allocation) else None
        assert (None if results is None else [each.device.device for each in results]) == taken


def test_a_search_stops_at_the_limits_that_are_set() -> None:
    devices = [device(f"gpu-{i}") for i in range(4)]
    world = World(pool(*devices), limits=Limits(steps=1))
    assert world.devices(claim(want())) == [["gpu-0"]]
    with pytest.raises(SearchLimitError) as caught:
        world.allocate(claim(want("gpu", 2)))
    assert (caught.value.steps, caught.value.limit) == (1, "steps")
