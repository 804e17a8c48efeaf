"""What counts in a DeviceQuota: each device once, whether it is allocated, on its way in a bind, or kept for a pod."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from allocator import DeviceId
from extender.cluster.objects.pods import KEPT, Keeping
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Memories
from extender.framework.filter import filter_nodes
from extender.framework.pods.claims import PodClaims, claims_of
from extender.kube.api import Event, EventType, ObjectKey
from extender.kube.resources import CLAIMS
from extender.plugins.quota.kept_claims import kept_claims
from extender.plugins.quota.limit_use import QuotaMetrics, quotas, status_of
from extender.plugins.quota.plugin import QUOTA
from extender.plugins.quota.pod_quota import PodQuota, kept_of, total_of
from tests.extender.plugins.quota.test_device_quota import elsewhere, memory
from tests.kit.binders import bind_error, binder_over
from tests.kit.clusters import (
    DRIVER,
    GPU,
    Cluster,
    Object,
    claim,
    device_class,
    local_slice,
    node,
    pod,
    request,
    snapshot_of,
    solver,
    state_of,
)
from tests.kit.objects.quotas import limited, quota, selecting

NODES = (GPU, node("a"), node("b"), local_slice("a", 8, **memory("10Gi")), local_slice("b", 2, **memory("80Gi")))
OVER = "device quota gold: limit gpu allows {}"


def keeping(waiting: Object, *devices: str, on: str = "a", victims: Sequence[str] = ()) -> Object:
    """A pod with devices of a node kept."""
    kept = Keeping(on, tuple(DeviceId(DRIVER, *each.split("/")) for each in devices), tuple(victims))
    conditions = [{"type": KEPT, "status": "True", "message": kept.message}]
    return {**waiting, "status": {**waiting["status"], "nominatedNodeName": on, "conditions": conditions}}


def kept(name: str, *devices: str, on: str = "a", **more: Any) -> tuple[Object, Object]:
    """A pod for which some devices are kept, and its claim for as many."""
    return keeping(pod(name, f"{name}-c", **more), *devices, on=on), claim(f"{name}-c", request(count=len(devices)))


def asks(name: str = "p", count: int = 1, **more: Any) -> tuple[Object, Object]:
    return pod(name, f"{name}-c", **more), claim(f"{name}-c", request(count=count))


def refusal(snapshot: Snapshot, name: str = "p") -> str:
    """Why filter lets a pod pass nowhere; empty if it does. "..." if it is not a quota."""
    result = filter_nodes(snapshot.pods[ObjectKey("ns", name)], ["a", "b"], snapshot, solver())
    if result.passed:
        return ""
    return next(iter(result.unresolvable.in_words().values())) if QUOTA in result.by else "..."


def in_use(snapshot: Snapshot, name: str = "p") -> str:
    """What is in use from the view of a pod that asks for 100 devices."""
    waiting = snapshot.pods[ObjectKey("ns", name)]
    found = PodQuota.of(waiting, snapshot, replace(solver(), memories=Memories()))
    assert found is not None
    claims = claims_of(waiting, snapshot)
    assert isinstance(claims, PodClaims)
    return str(found.refusal(claims)).rpartition(": ")[2].partition(" in use")[0]


class TestKept:
    @pytest.mark.parametrize(("limit", "over"), [(2, True), (3, False)])
    def test_what_is_kept_for_a_pod_counts_as_if_it_was_allocated(self, limit: int, *, over: bool) -> None:
        held = claim("held", allocated=["a/gpu-0"], at="a", users=["u"])
        snapshot = snapshot_of(*NODES, held, *kept("k", "a/gpu-1"), *asks(), quota(limited(devices=limit)))
        assert refusal(snapshot) == (OVER.format(f"{limit} devices") if over else "")

    def test_what_is_kept_for_a_pod_of_lower_priority_counts_too(self) -> None:
        snapshot = snapshot_of(*NODES, *kept("k", "a/gpu-1"), *asks(priority=9), quota(limited(devices=1)))
        assert refusal(snapshot) == OVER.format("1 device")

    def test_what_is_kept_in_other_namespaces_does_not(self) -> None:
        others = map(elsewhere, kept("k", "a/gpu-1"))
        assert refusal(snapshot_of(*NODES, *others, *asks(), quota(limited(devices=1)))) == ""

    def test_what_is_kept_for_the_pod_itself_does_not(self) -> None:
        snapshot = snapshot_of(*NODES, *kept("p", "a/gpu-1"), quota(limited(devices=1)))
        assert refusal(snapshot) == ""

    def test_a_nomination_by_the_scheduler_counts_what_the_pod_asks_for_at_least(self) -> None:
        ways = [{"name": f"w{n}", "deviceClassName": "gpu", "count": n} for n in (3, 2)]
        there = pod("k", "k-c", nominated="a"), claim("k-c", {"name": "gpu", "firstAvailable": ways})
        for limit, over in ((2, True), (3, False)):
            snapshot = snapshot_of(*NODES, *there, *asks(), quota(limited(devices=limit)))
            assert bool(refusal(snapshot)) is over

    @pytest.mark.parametrize(("on", "again"), [("a", True), ("b", False)])
    def test_what_a_nominated_pod_would_get_is_searched_again_only_if_its_node_has_changed(
        self, on: str, *, again: bool
    ) -> None:
        there = pod("k", "k-c", nominated="a"), claim("k-c"), pod("u", "c", on=on), quota(selecting("true", devices=9))
        state, asked = state_of([*NODES, *there]), solver()
        before = kept_claims("ns", state.snapshot, asked)
        state.apply(Event(EventType.ADDED, CLAIMS, claim("c", allocated=[f"{on}/gpu-0"], at=on, users=["u"])))
        after = kept_claims("ns", state.snapshot, asked)
        assert [each.devices for each in after] == [[DeviceId(DRIVER, "a", "gpu-1" if again else "gpu-0")]]
        assert (after[0].allocation is not before[0].allocation) is again

    @pytest.mark.parametrize("uses", ["deleting", "finished", "bound"])
    def test_a_pod_that_waits_no_more_keeps_nothing(self, uses: str) -> None:
        waiting, own = kept("k", "a/gpu-1", deleting=uses == "deleting", on="a")
        waiting["status"]["phase"] = "Failed" if uses == "finished" else "Pending"
        waiting["spec"] |= {"nodeName": "a"} if uses == "bound" else {}
        assert refusal(snapshot_of(*NODES, waiting, own, *asks(), quota(limited(devices=1)))) == ""


class TestOnce:
    def test_a_claim_that_is_allocated_already_counts_by_its_devices(self) -> None:
        """For some milliseconds, a claim has the devices that are still kept for its pod."""
        waiting, _ = kept("k", "a/gpu-1", "a/gpu-2")
        own = claim("k-c", request(count=2), allocated=["a/gpu-1", "a/gpu-2"], at="a", users=["k"])
        snapshot = snapshot_of(*NODES, waiting, own, *asks(count=100), quota(limited(devices=99)))
        assert in_use(snapshot) == "2 of 99"

    def test_a_claim_that_pods_share_counts_once(self) -> None:
        shared = [keeping(pod(name, "shared"), "a/gpu-1") for name in "kl"]
        snapshot = snapshot_of(*NODES, *shared, claim("shared"), *asks(count=100), quota(limited(devices=99)))
        assert in_use(snapshot) == "1 of 99"

    def test_and_not_against_a_pod_that_shares_it(self) -> None:
        shared = keeping(pod("k", "shared"), "a/gpu-1"), pod("p", "shared")
        assert refusal(snapshot_of(*NODES, *shared, claim("shared"), quota(limited(devices=1)))) == ""

    def test_a_device_that_a_victim_of_the_namespace_still_holds_counts_once(self) -> None:
        victim = pod("v", "v-c", on="a"), claim("v-c", allocated=["a/gpu-1"], at="a", users=["v"])
        waiting = keeping(pod("k", "k-c"), "a/gpu-1", "a/gpu-2", victims=["uid-v"]), claim("k-c", request(count=2))
        snapshot = snapshot_of(*NODES, *victim, *waiting, *asks(count=100), quota(limited(devices=99)))
        assert in_use(snapshot) == "2 of 99"

    async def test_a_bind_on_its_way_counts_by_its_devices(self) -> None:
        snapshot = snapshot_of(*NODES, *kept("k", "a/gpu-1"), *asks(count=100), quota(limited(devices=99)))
        cluster = Cluster.of(*NODES, *kept("k", "a/gpu-1"), *asks(count=100), quota(limited(devices=99)))
        assert await bind_error(binder_over(cluster.api, cluster.state), "k", "a") == ""
        assert in_use(snapshot) == in_use(cluster.state.snapshot) == "1 of 99"


class TestAmounts:
    @pytest.mark.parametrize(
        ("limit", "used"),
        [
            (limited(capacity={"memory": "1Ti"}), {"memory": "90Gi"}),
            (
                selecting(f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) > 0', devices=9),
                {"devices": "1"},
            ),
            (limited(deviceClassName="other", devices=9), {"devices": "0"}),
        ],
    )
    def test_the_devices_that_are_kept_are_measured(self, limit: Object, used: dict[str, str]) -> None:
        snapshot = snapshot_of(*NODES, *kept("k", "a/gpu-1"), *kept("l", "b/gpu-1", on="b"), quota(limit))
        assert amounts(snapshot) == used

    def test_of_two_classes_each_device_counts_in_the_class_that_asks_for_it(self) -> None:
        big = device_class("big", selectors=[f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) > 0'])
        asked = claim("k-c", request("one", device_class="big"), request("two", count=2))
        sizes = local_slice("c", 3)
        for device, size in zip(sizes["spec"]["devices"], ("10Gi", "80Gi", "10Gi"), strict=True):
            device["capacity"] = {"memory": {"value": size}}
        waiting = keeping(pod("k", "k-c"), *(f"c/gpu-{number}" for number in range(3)), on="c")
        for name, used in (("big", "1"), ("gpu", "2")):
            limit = limited(deviceClassName=name, devices=9)
            snapshot = snapshot_of(GPU, big, node("c"), sizes, waiting, asked, quota(limit))
            assert amounts(snapshot) == {"devices": used}

    @pytest.mark.parametrize("gone", ["claim", "class", "device", "node"])
    def test_devices_that_no_request_can_have_now_count_by_their_names(self, gone: str) -> None:
        waiting, own = kept("k", "a/gpu-1", "a/gpu-7")
        left = [each for each in NODES if not (gone == "node" and each["metadata"]["name"] == "a")]
        left = [each for each in left if not (gone == "class" and each is GPU)]
        left += [] if gone == "claim" else [own]
        left += [local_slice("a", 2)] if gone == "device" else []
        assert amounts(snapshot_of(*left, waiting, quota(limited(devices=9)))) == {"devices": "2"}

    def test_optional_requests_count_if_something_is_kept_for_them(self) -> None:
        asked = claim("k-c", request("one"), request("more", count=3), metadata=optional("more"))
        for devices in (["a/gpu-0"], ["a/gpu-0", "a/gpu-1", "a/gpu-2", "a/gpu-3"]):
            snapshot = snapshot_of(*NODES, keeping(pod("k", "k-c"), *devices), asked, quota(limited(devices=9)))
            assert amounts(snapshot) == {"devices": str(len(devices))}

    def test_an_extended_resource_counts_by_its_class(self) -> None:
        waiting = keeping(pod("k", resources={"example.com/gpu": "2"}), "a/gpu-0", "a/gpu-1")
        there = device_class(extended="example.com/gpu"), node("a"), local_slice("a", 2)
        assert amounts(snapshot_of(*there, waiting, quota(limited(devices=9)))) == {"devices": "2"}


def optional(*names: str) -> Object:
    return {"annotations": {"dra-extender.dev/optional-requests": ",".join(names)}}


def amounts(snapshot: Snapshot) -> dict[str, str]:
    """What is kept, by what the limit of the only quota counts."""
    [found] = snapshot.device_quotas.values()
    [limit] = found.limits
    used = kept_of(found, limit, snapshot, solver()).amounts
    return {name.removeprefix("capacity[").removesuffix("]"): str(used.get(name, 0)) for name in limit.hard}


class TestMoreKeptThanAllowed:
    """A quota was lowered, or two replicas have kept devices at once."""

    def test_pods_do_not_wait_for_each_other(self) -> None:
        there = (*kept("k", "a/gpu-1", priority=1), *kept("l", "a/gpu-2", priority=2), quota(limited(devices=1)))
        snapshot = snapshot_of(*NODES, *there)
        assert (refusal(snapshot, "l"), refusal(snapshot, "k")) == ("", OVER.format("1 device"))

    def test_a_nomination_by_a_scheduler_gives_way(self) -> None:
        nominated = pod("n", "n-c", priority=9, nominated="b"), claim("n-c")
        snapshot = snapshot_of(*NODES, *kept("k", "a/gpu-1"), *nominated, quota(limited(devices=1)))
        assert (refusal(snapshot, "k"), refusal(snapshot, "n")) == ("", OVER.format("1 device"))


class TestTold:
    """What is kept is told as a part of what is used."""

    STATE = state_of(
        [
            *(*NODES, claim("held", allocated=["a/gpu-0"], at="a", users=["u"])),
            *(*kept("k", "a/gpu-1", "a/gpu-2"), *asks(), quota(limited(devices=3, capacity={"memory": "1Ti"}))),
        ]
    )
    SNAPSHOT = STATE.snapshot

    def test_by_the_reason_that_people_see(self) -> None:
        waiting = self.SNAPSHOT.pods[ObjectKey("ns", "p")]
        found = PodQuota.of(waiting, self.SNAPSHOT, solver())
        claims = claims_of(waiting, self.SNAPSHOT)
        assert found is not None
        assert isinstance(claims, PodClaims)
        used = "3 of 3 in use (2 of them kept for waiting pods), 1 more needed"
        assert str(found.refusal(claims)) == f"device quota gold: limit gpu allows 3 devices: {used}"

    def test_by_the_table(self) -> None:
        rows = [row.item() for row in quotas(self.SNAPSHOT, solver()).rows]
        assert [(row["counts"], row["used"], row["kept"]) for row in rows] == [
            ("memory", "30Gi", "20Gi"),
            ("devices", "3", "2"),
        ]

    def test_by_the_status(self) -> None:
        [found] = self.SNAPSHOT.device_quotas.values()
        [limit] = found.limits
        totals = {"gpu": total_of(found, limit, self.SNAPSHOT, solver())}
        told = status_of(found, totals, {"gpu": kept_of(found, limit, self.SNAPSHOT, solver()).amounts}, self.SNAPSHOT)
        amounts = {"used": {"memory": "30Gi", "devices": "3"}, "kept": {"memory": "20Gi", "devices": "2"}}
        assert told["limits"] == [{"name": "gpu", **amounts}]
        assert told["summary"] == "gpu 30Gi/1Ti memory (20Gi kept) 3/3 (2 kept)"

    def test_by_the_metrics(self) -> None:
        found = {each.name: each.samples for each in QuotaMetrics(self.STATE, solver()).collect()}
        values = {name: {each.labels["counts"]: each.value for each in samples} for name, samples in found.items()}
        assert values["dra_extender_quota_limit"] == {"devices": 3, "memory": 2**40}
        assert values["dra_extender_quota_used"] == {"devices": 3, "memory": 30 * 2**30}
        assert values["dra_extender_quota_kept"] == {"devices": 2, "memory": 20 * 2**30}
