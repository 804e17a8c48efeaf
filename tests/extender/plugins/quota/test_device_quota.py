"""DeviceQuota: what counts, who is let through, what is given back, who is woken, and what the status says."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from allocator import InvalidObjectError
from extender import Cluster as Simulated
from extender.cluster.objects.device_quotas import parse_device_quota
from extender.cluster.writes.events import Note
from extender.cluster.writes.lease import SharedLease
from extender.framework.decisions.verdict import PendingReason
from extender.framework.filter import FilterResult, filter_nodes
from extender.framework.queueing_hints import queueing_hint
from extender.kube.api import ApiError, Event, EventType, ObjectKey
from extender.kube.claim_rules import check_expression
from extender.kube.resources import CLAIMS, DEVICE_QUOTAS, RESOURCES
from extender.plugins.quota.limit_use import PAUSE_SECONDS, QUOTA_STATUS, SOON_SECONDS, QuotaStatus
from extender.plugins.quota.plugin import QUOTA
from extender.plugins.table import PLUGINS
from extender.tools.offload import at_once
from tests.kit import virtualtime
from tests.kit.binders import bind_error, binder_over
from tests.kit.clusters import (
    DRIVER,
    GPU,
    NOW,
    Cluster,
    Object,
    claim,
    device_class,
    local_slice,
    node,
    pod,
    request,
    solver,
    state_of,
)
from tests.kit.objects.parts import api_object
from tests.kit.objects.quotas import limited, quota, selecting
from tests.kit.servers.memory import Fault, Transport, memory_api
from tests.kit.virtualtime import in_virtual_time

LIMIT: Object = limited(devices=2)


def memory(amount: str) -> Object:
    return {"capacity": {"memory": {"value": amount}}}


def elsewhere(obj: Object, namespace: str = "other") -> Object:
    """An object of another namespace."""
    metadata = {**obj["metadata"], "namespace": namespace, "uid": f"{obj['metadata']['uid']}-{namespace}"}
    return {**obj, "metadata": metadata}


WORLD = (GPU, node("a"), node("b"), local_slice("a", 4, **memory("10Gi")), local_slice("b", 1, **memory("80Gi")))


def filtered(asking: Object, *objects: Object, nodes: tuple[str, ...] = ("a", "b")) -> FilterResult:
    """What filter says of a pod."""
    snapshot = state_of([*WORLD, asking, *objects]).snapshot
    return filter_nodes(snapshot.pods[ObjectKey("ns", asking["metadata"]["name"])], nodes, snapshot, solver())


def verdicts(result: FilterResult) -> Mapping[str, str]:
    return dict.fromkeys(result.passed, "") | result.unresolvable.in_words()


class TestReading:
    @pytest.mark.parametrize(
        ("spec", "problem"),
        [
            ({}, "spec.limits: is required"),
            ({"limit": []}, "spec.limit: unknown field; did you mean limits?"),
            ({"limits": [LIMIT, LIMIT]}, 'spec.limits: "gpu" is there twice'),
            ({"limits": [{"name": "x", "devices": 1}]}, "spec.limits[0]: needs deviceClassName or selectors"),
            ({"limits": [{"name": "x", "deviceClassName": "gpu"}]}, "spec.limits[0]: needs devices or capacity"),
            ({"limits": [limited(devices=-1)]}, "spec.limits[0].devices: is negative"),
            ({"limits": [limited(capacity={"memory": "much"})]}, 'capacity[memory]: "much" is not a quantity'),
            ({"limits": [limited(capacity={"memory": "-1"})]}, 'capacity[memory]: "-1" is negative'),
            ({"limits": [limited(capacity={"memory": 4})]}, "capacity"),
            ({"limits": [selecting("device.", devices=1)]}, "spec.limits[0].selectors[0].cel.expression: 1:8: "),
            ({"limits": [LIMIT], "borrowing": True}, "spec.borrowing: needs a cohort"),
        ],
    )
    def test_an_error_names_the_field_and_the_value(self, spec: Object, problem: str) -> None:
        raw = api_object("DeviceQuota", "gold", namespace="ns", spec=spec)
        with pytest.raises(InvalidObjectError) as caught:
            parse_device_quota(raw, check_expression)
        assert problem in str(caught.value)

    def test_a_quota_that_can_not_be_read_lets_nothing_through(self) -> None:
        asking = (pod("p", "c"), claim("c"))
        cluster = Cluster.of(*WORLD, *asking, quota(selecting("device.", devices=1)))
        snapshot = cluster.state.snapshot
        result = filter_nodes(snapshot.pods[ObjectKey("ns", "p")], ["a"], snapshot, solver())
        assert result.unresolvable.in_words()["a"].startswith("device quota gold can't be read: ")


class TestFilter:
    @pytest.mark.parametrize(
        ("limit", "count", "refused"),
        [
            (LIMIT, 2, False),
            (LIMIT, 3, True),
            (limited(deviceClassName="other", devices=0), 3, False),
            (limited(devices=0), 1, True),
        ],
    )
    def test_devices_of_a_class_are_compared_before_any_node_is_looked_at(
        self, limit: Object, count: int, *, refused: bool
    ) -> None:
        result = filtered(pod("p", "c"), claim("c", request(count=count)), quota(limit), nodes=("a",))
        reason = f"device quota gold: limit gpu allows {limit['devices']} devices"
        assert verdicts(result) == {"a": reason if refused else ""}
        assert (QUOTA in result.by, result.steps == 0) == (refused, refused)
        assert (result.pending_reason is PendingReason.QUOTA) is refused

    def test_what_the_namespace_holds_counts_and_what_others_hold_does_not(self) -> None:
        held = claim("held", allocated=["a/gpu-0"], at="a", users=["u"])
        others = elsewhere(claim("held", allocated=["a/gpu-1"], at="a", users=["v"]))
        for count, refused in ((1, False), (2, True)):
            result = filtered(pod("p", "c"), claim("c", request(count=count)), held, others, quota(), nodes=("a",))
            assert (QUOTA in result.by) is refused

    def test_administrative_access_takes_nothing(self) -> None:
        asked = request()
        asked["exactly"]["adminAccess"] = True
        assert filtered(pod("p", "c"), claim("c", asked), quota(limited(devices=0))).passed == ("a", "b")

    def test_of_alternatives_the_one_that_is_taken_counts(self) -> None:
        ways = [{"name": f"w{n}", "deviceClassName": "gpu", "count": n} for n in (3, 1)]
        asked = {"name": "gpu", "firstAvailable": ways}
        result = filtered(pod("p", "c"), claim("c", asked), quota())
        assert verdicts(result) == {"a": "device quota gold: limit gpu allows 2 devices", "b": ""}

    @pytest.mark.parametrize(
        ("limit", "reason"),
        [
            (limited(capacity={"memory": "50Gi"}), "device quota gold: limit gpu allows 50Gi of memory"),
            (
                limited(capacity={f"{DRIVER}/memory": "50Gi"}),
                f"device quota gold: limit gpu allows 50Gi of {DRIVER}/memory",
            ),
            (
                selecting(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) > 0', devices=0),
                "device quota gold: limit gpu allows 0 devices",
            ),
            (limited(capacity={"bandwidth": "1"}), ""),
            (selecting(f'device.attributes["{DRIVER}"].none == "x"', devices=0), ""),
        ],
    )
    def test_capacity_and_selectors_are_compared_on_each_node(self, limit: Object, reason: str) -> None:
        result = filtered(pod("p", "c"), claim("c"), quota(limit))
        assert verdicts(result) == {"a": "", "b": reason}
        assert QUOTA not in result.by

    def test_a_special_claim_is_compared_on_the_nodes_where_it_is_needed(self) -> None:
        objects = [
            *(device_class(extended="example.com/gpu"), node("a"), node("m", allocatable={"example.com/gpu": "1"})),
            *(local_slice("a"), pod("p", resources={"example.com/gpu": "1"}), quota(limited(devices=0))),
        ]
        snapshot = state_of(objects).snapshot
        result = filter_nodes(snapshot.pods[ObjectKey("ns", "p")], ["a", "m"], snapshot, solver())
        assert verdicts(result) == {"a": "device quota gold: limit gpu allows 0 devices", "m": ""}


class TestCohort:
    @staticmethod
    def lending(used: int, **own: Any) -> FilterResult:
        """A pod of namespace ns asks for one more device than its own quota of 1 has, and another one lends 3."""
        lender = quota(limited(devices=3), name="lender", namespace="other", cohort="research")
        held = [elsewhere(claim(f"h{n}", allocated=[f"a/gpu-{n}"], at="a", users=["u"])) for n in range(used)]
        mine = claim("mine", allocated=["b/gpu-0"], at="b", users=["u"])
        return filtered(pod("p", "c"), claim("c"), mine, *held, lender, quota(limited(devices=1), **own))

    def test_what_nobody_uses_may_be_borrowed(self) -> None:
        assert self.lending(2, cohort="research", borrowing=True).passed == ("a",)
        over = "device quota gold: limit gpu allows 1 device, and cohort research has too little left"
        assert set(self.lending(3, cohort="research", borrowing=True).unresolvable.in_words().values()) == {over}

    @pytest.mark.parametrize("own", [{}, {"cohort": "research"}, {"cohort": "others", "borrowing": True}])
    def test_but_only_by_who_may_and_from_the_own_cohort(self, own: Object) -> None:
        assert QUOTA in self.lending(0, **own).by

    def test_who_is_within_the_own_limit_needs_nothing_from_the_cohort(self) -> None:
        borrowed = [elsewhere(claim(f"h{n}", allocated=[f"a/gpu-{n}"], at="a", users=["u"])) for n in range(3)]
        other = quota(limited(devices=0), name="other", namespace="other", cohort="research", borrowing=True)
        own = quota(limited(devices=1), cohort="research")
        assert filtered(pod("p", "c"), claim("c"), *borrowed, other, own).passed == ("a", "b")


class TestBind:
    @in_virtual_time
    async def test_what_other_binds_have_assumed_counts(self) -> None:
        api = memory_api(*WORLD, pod("p", "c"), claim("c"), pod("q", "d"), claim("d"), quota(limited(devices=1)))
        cluster = Cluster(state_of([]), api)
        api.follow(cluster.state)
        transport = Transport(api)
        told: list[Note] = []
        binder = binder_over(transport, cluster.state, tell=lambda _pod, note: told.append(note))
        transport.script("update resourceclaims", Fault(seconds=1))
        first, second = list(await asyncio.gather(bind_error(binder, "p", "a"), bind_error(binder, "q", "b")))
        assert first == ""
        full = "device quota gold: limit gpu allows 1 device: 1 of 1 in use, 1 more needed"
        assert second == full
        assert [(note.reason, note.text) for note in told] == [("QuotaExceeded", full)]

    def test_the_later_of_two_allocations_by_two_replicas_is_given_back(self) -> None:
        api = memory_api(*WORLD, pod("p", "c"), claim("c"), claim("d"), quota(limited(devices=1)))
        cluster = Cluster(state_of([]), api)
        api.follow(cluster.state)
        transport = Transport(api)

        async def other_replica() -> None:
            raw = await api.get(CLAIMS, ObjectKey("ns", "d"))
            held = claim("d", allocated=["b/gpu-0"], at="b", users=["u"])
            protected = {**raw["metadata"], "finalizers": ["resource.kubernetes.io/delete-protection"]}
            raw = await api.update(CLAIMS, {**raw, "metadata": protected})
            await api.update_status(CLAIMS, {**raw, "status": held["status"]})

        transport.script("update_status resourceclaims", Fault(before=other_replica))
        error = virtualtime.run(bind_error(binder_over(transport, cluster.state), "p", "a"))
        full = "device quota gold: limit gpu allows 1 device: 1 of 1 in use, 1 more needed"
        assert error == f"claim ns/c was allocated after others: {full}"
        assert cluster.state.snapshot.claims[ObjectKey("ns", "c")].claim.allocation is None
        assert cluster.state.snapshot.claims[ObjectKey("ns", "d")].claim.allocation is not None


class TestWaking:
    @staticmethod
    def hint(event: EventType, obj: Object, *objects: Object) -> frozenset[str]:
        """The namespaces whose pods may fit after an event."""
        state = state_of([*WORLD, *objects])
        before = state.snapshot
        state.apply(Event(event, RESOURCES[obj["kind"]], obj))
        return queueing_hint(state.since(before.version), before, state.snapshot, PLUGINS).namespaces

    def test_a_release_wakes_the_namespace_and_those_that_may_borrow_from_it(self) -> None:
        held = claim("held", allocated=["a/gpu-0"], at="a", users=["u"])
        borrower = quota(name="b", namespace="other", cohort="research", borrowing=True)
        idle = quota(name="c", namespace="idle", cohort="research")
        objects = (held, quota(cohort="research"), borrower, idle)
        assert self.hint(EventType.DELETED, held, *objects) == {"ns", "other"}
        assert self.hint(EventType.MODIFIED, claim("held"), *objects) == {"ns", "other"}
        assert self.hint(EventType.DELETED, held, held) == set()
        assert (
            self.hint(EventType.MODIFIED, {**held, "metadata": {**held["metadata"], "labels": {}}}, *objects) == set()
        )

    def test_a_quota_that_changes_or_goes_wakes_its_namespace(self) -> None:
        assert self.hint(EventType.MODIFIED, quota(limited(devices=9)), quota()) == {"ns"}
        assert self.hint(EventType.DELETED, quota(), quota()) == {"ns"}

    def test_a_status_that_changes_wakes_nobody(self) -> None:
        assert self.hint(EventType.MODIFIED, {**quota(), "status": {"summary": "gpu 1/2"}}, quota()) == set()


class TestStatus:
    @staticmethod
    def scene(*objects: Object) -> tuple[Cluster, Transport, QuotaStatus, dict[str, float]]:
        cluster, clock = Cluster.of(*WORLD, *objects), {"now": 10.0}
        transport = Transport(cluster.api)
        return cluster, transport, TestStatus.replica("one", cluster, transport, clock), clock

    @staticmethod
    def replica(name: str, cluster: Cluster, transport: Transport, clock: dict[str, float]) -> QuotaStatus:
        judge = replace(solver(), clock=lambda: clock["now"])
        lease = SharedLease(transport, QUOTA_STATUS, name, lambda: NOW, judge.clock)
        return QuotaStatus(cluster.state, transport, lease, judge, at_once)

    @staticmethod
    def statuses(transport: Transport) -> int:
        """How many statuses were written, or tried to be."""
        return transport.calls.count("patch_status devicequotas")

    @in_virtual_time
    async def test_it_says_what_is_used_and_by_whom_and_is_written_when_it_is_wrong(self) -> None:
        held = claim("held", request(count=2), allocated=["a/gpu-0", "a/gpu-1"], at="a", users=["u", "v"])
        unused, limit = claim("unused"), limited(devices=1, capacity={"memory": "160Gi"})
        cluster, transport, task, clock = self.scene(held, unused, quota(limit))
        for _ in range(4):
            await task.tick()
            clock["now"] += PAUSE_SECONDS
        assert (await cluster.api.get(DEVICE_QUOTAS, ObjectKey("ns", "gold")))["status"] == {
            "observedGeneration": 1,
            "summary": "gpu 20Gi/160Gi memory 2/1",
            "limits": [{"name": "gpu", "used": {"memory": "20Gi", "devices": "2"}, "borrowed": {"devices": "1"}}],
            "claims": 1,
            "usedBy": [{"claim": "held", "devices": 2, "pods": ["u", "v"]}],
        }
        assert self.statuses(transport) == 1
        assert transport.calls[-1] == "update leases", "the lease is given back"

    @pytest.mark.parametrize(("last", "more"), [(Fault(reply_lost=True), 0), (Fault(lost=True), 1)])
    @in_virtual_time
    async def test_one_of_two_replicas_writes_and_the_other_one_takes_over(self, last: Fault, more: int) -> None:
        cluster, transport, one, clock = self.scene(quota())
        other = self.replica("other", cluster, transport, clock)

        async def turns(*replicas: QuotaStatus, seconds: float) -> int:
            """How many statuses are written meanwhile."""
            before, until = self.statuses(transport), clock["now"] + seconds
            while clock["now"] < until:
                for each in replicas:
                    await each.tick()
                clock["now"] += SOON_SECONDS
            return self.statuses(transport) - before

        assert await turns(one, other, seconds=60) == 1
        cluster.load(claim("held", allocated=["a/gpu-0"], at="a", users=["u"]))
        transport.script("patch_status devicequotas", last)
        while any(transport.faults.values()):
            assert await turns(one, seconds=SOON_SECONDS) <= 1
        assert await turns(other, seconds=60) == more, "the first replica has stopped"
        cluster.load(claim("more", allocated=["a/gpu-1"], at="a", users=["u"]))
        assert await turns(other, one, seconds=60) == 1
        assert cluster.state.snapshot.device_quotas[ObjectKey("ns", "gold")].status["summary"] == "gpu 2/2"

    @in_virtual_time
    async def test_a_status_that_can_not_be_written_is_tried_again_later(self) -> None:
        cluster, transport, task, clock = self.scene(quota())
        transport.script("patch_status devicequotas", Fault(refused=ApiError(403, "Forbidden", "no")))
        await task.tick()
        clock["now"] += SOON_SECONDS
        for _ in range(3):
            await task.tick()
        assert self.statuses(transport) == 1
        clock["now"] += PAUSE_SECONDS
        await task.tick()
        status = cluster.state.snapshot.device_quotas[ObjectKey("ns", "gold")].status
        assert status["summary"] == "gpu 0/2"


def test_simulate_and_explain_know_device_quotas() -> None:
    objects = [*WORLD, quota(limited(devices=1)), pod("p", "c"), claim("c"), pod("q", "d"), claim("d")]
    cluster = Simulated.from_objects(objects)
    first, second = cluster.schedule()
    assert (bool(first.node), second.reason) == (True, "2 device quota gold: limit gpu allows 1 device")
    found = cluster.explain("ns/q")
    assert found.cause == "device quota gold: limit gpu allows 1 device: 1 of 1 in use, 1 more needed"
    assert found.advice.startswith("wait until claims of namespace ns give back devices, or raise limit gpu of")


def test_waiting_is_no_advice_for_a_pod_that_asks_for_more_than_the_limit() -> None:
    objects = [*WORLD, quota(limited(devices=1)), pod("p", "c"), claim("c", request(count=2))]
    found = Simulated.from_objects(objects).explain("ns/p")
    assert found.advice == "ask for at most 1 device, or raise limit gpu of DeviceQuota ns/gold"
