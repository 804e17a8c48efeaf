"""Deallocation: a claim that keeps its pod off every node is freed, if nobody else would miss it."""

from dataclasses import replace
from typing import Any

import pytest

from extender.cluster.objects.claims import ALLOCATION_MODE
from extender.cluster.objects.pods import GROUP, GROUP_SIZE, RELEASED
from extender.config.settings import Settings
from extender.faces.assembly import make_extender
from extender.framework.filter import filter_nodes
from extender.framework.wire import FilterArgs
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS
from extender.plugins.deallocate import AGAIN_SECONDS, HELD_SECONDS, claim_in_the_way
from extender.tools.offload import at_once
from tests.kit.clusters import GPU, Cluster, Object, claim, local_slice, node, parsed, pod, snapshot_of, solver
from tests.kit.servers.freed import Freed
from tests.kit.servers.memory import Fault, Transport

WORLD = (GPU, node("a"), node("b"), local_slice("a"), local_slice("b"))
MINE = pod("p", "c")
ELSEWHERE = claim("c", allocated=["b/gpu-0"], at="b")
KEY = ObjectKey("ns", "c")


def blocked(**more: Any) -> Object:
    return claim("c", allocated=["b/gpu-0"], at="b", **more)


IN_THE_WAY: list[tuple[str, Object, bool]] = [
    ("reserved for nobody", blocked(), True),
    ("reserved for the pod alone", blocked(users=["p"]), True),
    ("reserved for another pod", blocked(users=["q"]), False),
    ("reserved for the pod and another", blocked(users=["p", "q"]), False),
    ("allocated where the pod may go", claim("c", allocated=["a/gpu-0"], at="a"), False),
    ("allocated for all nodes", claim("c", allocated=["a/gpu-0"]), False),
    ("not allocated", claim("c"), False),
    (
        "being deleted",
        blocked(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}),
        False,
    ),
]


@pytest.mark.parametrize(("obj", "expected"), [c[1:] for c in IN_THE_WAY], ids=[c[0] for c in IN_THE_WAY])
def test_which_claims_are_in_the_way(obj: Object, expected: bool) -> None:
    snapshot = snapshot_of(*WORLD, obj)
    asked = parsed(MINE)
    reasons = filter_nodes(asked, ["a"], snapshot, solver()).unresolvable.distinct
    assert (claim_in_the_way(asked, reasons, snapshot) is not None) == expected


async def filtered(cluster: Cluster, names: tuple[str, ...] = ("a",), asked: Object = MINE, **sent: Any) -> RawObject:
    """The claim after a filter call and what it leaves to be done."""
    service = cluster.service()
    await service.filter(FilterArgs(parsed(asked), names, **sent))
    await service.background.tick()
    return await cluster.api.get(CLAIMS, KEY)


def is_allocated(obj: RawObject) -> bool:
    return "allocation" in obj.get("status", {})


async def test_what_was_free_all_along_is_freed() -> None:
    cluster = Cluster.of(*WORLD, MINE, ELSEWHERE)
    assert (await filtered(cluster)).get("status", {}) == {}


async def test_nothing_is_written_before_the_answer() -> None:
    cluster = Cluster.of(*WORLD, MINE, ELSEWHERE)
    service = cluster.service()
    result = await service.filter(FilterArgs(parsed(MINE), ["a"]))
    assert result.unresolvable.in_words() == {"a": "claim c is allocated for other nodes"}
    assert is_allocated(await cluster.api.get(CLAIMS, KEY))
    await service.background.tick()
    assert not is_allocated(await cluster.api.get(CLAIMS, KEY))


async def test_then_the_pod_finds_a_node() -> None:
    cluster = Cluster.of(*WORLD, MINE, ELSEWHERE)
    await filtered(cluster)
    result = await cluster.service().filter(FilterArgs(parsed(MINE), ["a"]))
    assert list(result.passed) == ["a"]


async def test_a_binding_that_may_be_on_its_way_is_fenced_first() -> None:
    cluster = Cluster.of(*WORLD, MINE, blocked(users=["p"]))
    before = await cluster.api.get(PODS, ObjectKey("ns", "p"))
    assert not is_allocated(await filtered(cluster))
    after = await cluster.api.get(PODS, ObjectKey("ns", "p"))
    assert [c["type"] for c in after["status"]["conditions"]] == [RELEASED]
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]


async def test_fields_that_we_do_not_know_stay() -> None:
    strange = {**ELSEWHERE, "status": {**ELSEWHERE["status"], "devices": [{"driver": "x"}], "new": {"field": 1}}}
    cluster = Cluster.of(*WORLD, MINE, strange)
    assert (await filtered(cluster))["status"] == {"new": {"field": 1}}


async def test_where_whole_nodes_are_sent_they_count() -> None:
    cluster = Cluster.of(*WORLD, MINE, ELSEWHERE)
    assert not is_allocated(await filtered(cluster, ("fictional",), nodes={"fictional": node("fictional")}))


@pytest.mark.parametrize(
    ("names", "asked"),
    [
        (("a", "b"), MINE),
        ((), MINE),
        (("a",), pod("p", "c", nominated="a")),
    ],
    ids=["a node is left", "no node was asked about", "only the nominated node was asked about"],
)
async def test_a_call_that_shows_no_need_frees_nothing(names: tuple[str, ...], asked: Object) -> None:
    cluster = Cluster.of(*WORLD, asked, ELSEWHERE)
    assert is_allocated(await filtered(cluster, names, asked))


async def test_a_pod_that_only_waits_for_others_to_leave_frees_nothing() -> None:
    asked = pod("p", "c", "d", nominated="b", priority=9)
    nodes = (GPU, node("a"), node("b"), local_slice("a"), local_slice("b", 2))
    theirs = claim("v", allocated=["b/gpu-1"], at="b", users=["victim"])
    victim = pod("victim", "v", on="b", deleting=True)
    cluster = Cluster.of(*nodes, asked, ELSEWHERE, claim("d"), theirs, victim)
    assert is_allocated(await filtered(cluster, ("a", "b"), asked))


async def test_prioritize_frees_nothing() -> None:
    cluster = Cluster.of(*WORLD, MINE, ELSEWHERE)
    service = cluster.service()
    await service.prioritize(FilterArgs(parsed(MINE), ["a"]))
    await service.background.tick()
    assert is_allocated(await cluster.api.get(CLAIMS, KEY))


# --- what happens between the answer and the write ----------------------------------------------------------


async def meanwhile(cluster: Cluster, change: Any) -> RawObject:
    service = cluster.service()
    await service.filter(FilterArgs(parsed(MINE), ["a"]))
    await change(cluster, service)
    await service.background.tick()
    return await cluster.api.get(CLAIMS, KEY)


async def test_a_claim_that_somebody_reserves_meanwhile_stays() -> None:
    async def reserve(cluster: Cluster, _: object) -> None:
        raw = await cluster.api.get(CLAIMS, KEY)
        raw["status"]["reservedFor"] = [{"resource": "pods", "name": "q", "uid": "uid-q"}]
        await cluster.api.update_status(CLAIMS, raw)

    assert is_allocated(await meanwhile(Cluster.of(*WORLD, MINE, ELSEWHERE), reserve))


async def test_a_claim_of_a_pod_that_gets_bound_meanwhile_stays() -> None:
    async def bind(cluster: Cluster, _: object) -> None:
        await cluster.api.bind_pod(ObjectKey("ns", "p"), "b", uid="uid-p")

    assert is_allocated(await meanwhile(Cluster.of(*WORLD, MINE, blocked(users=["p"])), bind))


async def test_a_claim_that_is_in_flight_meanwhile_stays() -> None:
    async def assume(cluster: Cluster, _: object) -> None:
        decided = snapshot_of(claim("c", allocated=["a/gpu-0"])).claims[KEY].claim.allocation
        assert decided
        cluster.state.assume("uid-c", decided, "uid-q")

    assert is_allocated(await meanwhile(Cluster.of(*WORLD, MINE, ELSEWHERE), assume))


async def test_a_claim_that_is_gone_meanwhile_is_no_error() -> None:
    cluster = Cluster.of(*WORLD, MINE, ELSEWHERE)
    service = cluster.service()
    await service.filter(FilterArgs(parsed(MINE), ["a"]))
    await cluster.api.delete(CLAIMS, KEY)
    await service.background.tick()
    assert KEY not in cluster.state.snapshot.claims


async def test_the_claims_of_one_namespace_do_not_delay_those_of_another() -> None:
    names, pods, claims = ("c0", "c1", "c2", "own"), [], []
    for number, name in enumerate(names):
        found = claim(name, allocated=[f"b/gpu-{number}"], at="b"), pod(name, name)
        for each in found if name == "own" else ():
            each["metadata"]["namespace"] = "other"
        claims.append(found[0])
        pods.append(found[1])
    cluster = Cluster.of(GPU, node("a"), node("b"), local_slice("a"), local_slice("b", 4), *pods, *claims)
    freed, service = Freed(), cluster.service()
    cluster.api.follow(freed)
    for each in pods:
        await service.filter(FilterArgs(parsed(each), ["a"]))
    await service.background.tick()
    assert freed.names == ["c0", "own", "c1", "c2"]


# --- what a bind that was cut has left ----------------------------------------------------------------------


def of_gang(raw: Object) -> Object:
    raw["metadata"]["annotations"] = {GROUP: "x", GROUP_SIZE: "2"}
    return raw


class Held:
    """A pod of a gang that misses a pod; the pod's claim has a device."""

    def __init__(self, *objects: Object, asked: Object | None = None) -> None:
        self.seconds = 0.0
        self.asked = asked or of_gang(pod("p", "c"))
        self.cluster = Cluster.of(*WORLD, self.asked, *objects)
        by = replace(solver(), clock=lambda: self.seconds)
        self.transport = Transport(self.cluster.api)
        self.service = make_extender(self.transport, self.cluster.state, by, Settings(), off_loop=at_once).service

    async def after(self, seconds: float) -> bool:
        """Whether the claim has its device after the pod was rejected, and so many seconds have passed."""
        await self.service.filter(FilterArgs(parsed(self.asked), ["a", "b"]))
        await self.service.background.tick()
        self.seconds += seconds
        await self.service.background.tick()
        return is_allocated(await self.cluster.api.get(CLAIMS, KEY))


async def test_what_a_bind_that_was_cut_has_left_is_given_back_after_a_minute() -> None:
    found = Held(blocked(users=["p"]))
    assert await found.after(HELD_SECONDS - 1)
    assert not await found.after(1)


async def test_what_the_api_server_refuses_to_give_back_is_given_back_a_moment_later() -> None:
    found = Held(blocked(users=["p"]))
    away = ApiError(500, "InternalError", "etcdserver: request timed out")
    found.transport.script("update_status resourceclaims", *[Fault(refused=away)] * 20)
    assert await found.after(HELD_SECONDS)
    found.transport.faults.clear()
    found.seconds += AGAIN_SECONDS
    await found.service.background.tick()
    assert not is_allocated(await found.cluster.api.get(CLAIMS, KEY))


async def test_devices_that_get_attached_after_the_pod_was_rejected_are_given_back() -> None:
    """Nobody asks about the pod again (history 1001729)."""
    raw = blocked(users=["p"])
    result = raw["status"]["allocation"]["devices"]["results"][0]
    result["bindingConditions"] = ["attached"]
    found = Held(raw)
    assert await found.after(2 * HELD_SECONDS), "they are still being attached"
    device = {name: result[name] for name in ("driver", "pool", "device")}
    ready = [{**device, "conditions": [{"type": "attached", "status": "True", "reason": "Done", "message": ""}]}]
    await found.cluster.api.patch_status(CLAIMS, KEY, {"status": {"devices": ready}})
    found.seconds += AGAIN_SECONDS
    await found.service.background.tick()
    assert not is_allocated(await found.cluster.api.get(CLAIMS, KEY))


KEPT: list[tuple[str, Held]] = [
    ("the pod fits", Held(blocked(users=["p"]), asked=MINE)),
    ("reserved for nobody", Held(blocked())),
    ("another pod uses it, too", Held(blocked(users=["p", "q"]))),
    ("immediate", Held(blocked(users=["p"], metadata={"annotations": {ALLOCATION_MODE: "Immediate"}}))),
]


@pytest.mark.parametrize("found", [each for _, each in KEPT], ids=[name for name, _ in KEPT])
async def test_a_claim_that_may_be_needed_stays(found: Held) -> None:
    assert await found.after(2 * HELD_SECONDS)


async def test_a_pod_that_is_bound_meanwhile_keeps_its_claim() -> None:
    found = Held(blocked(users=["p"]))
    assert await found.after(1.0)
    await found.cluster.api.bind_pod(ObjectKey("ns", "p"), "b", uid="uid-p")
    found.seconds += 2 * HELD_SECONDS
    await found.service.background.tick()
    assert is_allocated(await found.cluster.api.get(CLAIMS, KEY))


async def test_what_another_replica_has_allocated_since_then_stays() -> None:
    """It may be about to bind the pod."""
    found = Held(blocked(users=["p"]))
    assert await found.after(1.0)
    anew = claim("c", allocated=["a/gpu-0"], at="a", users=["p"])["status"]
    raw = await found.cluster.api.get(CLAIMS, KEY)
    await found.cluster.api.update_status(CLAIMS, {**raw, "status": {}})
    await found.cluster.api.patch_status(CLAIMS, KEY, {"status": anew})
    found.seconds += HELD_SECONDS
    await found.service.background.tick()
    assert is_allocated(await found.cluster.api.get(CLAIMS, KEY))
