"""kill -9 at any point of a bind: what is left on the API server, and that the next try, or the controller, mends it.

The rows of the table in docs/explanation/binding.md, and a law over random ends of random processes.
"""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.claim_rules import FINALIZER
from extender.kube.resources import CLAIMS, PODS
from extender.lab.api import MemoryApi
from extender.lab.cluster import ClaimController
from tests.extender.framework.bind.mortal import ENDS, End, Process, killed, live_and_die
from tests.extender.framework.bind.worlds import CLAIMS_OF, check, cluster, everything
from tests.kit.clusters import DRIVER, claim, device_class, local_slice, node, pod
from tests.kit.servers.memory import Fault, memory_api, writes
from tests.kit.virtualtime import in_virtual_time

FORBIDDEN = Fault(refused=ApiError(403, "Forbidden", "not allowed"))


# --- the rows of the table ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A state in which a bind of the pod p, with claims a and b, can end.

    Attributes:
        end: of the process.
        claims: what is left of a and b: "" untouched, "f" the finalizer, "r" allocated and reserved.
        bound: the pod is bound.
        refused: the Binding is refused, so that the bind is undone.
    """

    end: End
    claims: str
    bound: bool = False
    refused: bool = False


ROWS = {
    "before the first write": Row(End(0, done=False), "-,-"),
    "finalizer": Row(End(0, done=True), "f,-"),
    "finalizer, allocation not sent": Row(End(1, done=False), "f,-"),
    "first claim reserved": Row(End(1, done=True), "r,-"),
    "finalizer of the second": Row(End(2, done=True), "r,f"),
    "all claims reserved, not checked": Row(End(3, done=True), "r,r"),
    "checked, Binding not sent": Row(End(4, done=False), "r,r"),
    "Binding done, nobody told": Row(End(4, done=True), "r,r", bound=True),
    "undo, not fenced": Row(End(5, done=False), "r,r", refused=True),
    "undo, fenced": Row(End(5, done=True), "r,r", refused=True),
    "undo, first claim released": Row(End(6, done=True), "f,r", refused=True),
    "undo, all released": Row(End(7, done=True), "f,f", refused=True),
}


def two_claims() -> MemoryApi:
    there = [node("n"), local_slice("n", 2), device_class(), claim("a"), claim("b"), pod("p", "a", "b")]
    return memory_api(*there)


async def crashed(row: Row) -> MemoryApi:
    """The API server after a process has died."""
    api = two_claims()
    process = Process(api, row.end)
    if row.refused:
        process.transport.script("bind pods", FORBIDDEN)
    task = asyncio.create_task(process.bind("p", "n"))
    await process.transport.died.wait()
    await killed(task)
    return api


async def left(api: MemoryApi) -> tuple[str, bool]:
    claims, pods = await everything(api, CLAIMS), await everything(api, PODS)
    return ",".join(map(_left_of, claims.values())), "nodeName" in pods["p"]["spec"]


def _left_of(raw: RawObject) -> str:
    status = raw.get("status") or {}
    assert bool(status.get("allocation")) is bool(status.get("reservedFor"))
    if status.get("allocation"):
        assert FINALIZER in raw["metadata"]["finalizers"]
        return "r"
    return "f" if raw["metadata"].get("finalizers") else "-"


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
@in_virtual_time
async def test_what_is_left_the_next_try_mends(row: Row) -> None:
    api = await crashed(row)
    assert await left(api) == (row.claims, row.bound)
    process = Process(api)
    assert await process.bind("p", "n") == ""
    assert await left(api) == ("r,r", True)
    assert not process.state.snapshot.assumed


@pytest.mark.parametrize("row", [row for row in ROWS.values() if not row.bound], ids=lambda row: row.claims)
@in_virtual_time
async def test_and_so_does_the_controller_if_the_pod_goes_away(row: Row) -> None:
    api = await crashed(row)
    await api.delete(PODS, ObjectKey("ns", "p"))
    await ClaimController(api).reconcile()
    held = [raw for raw in (await everything(api, CLAIMS)).values() if (raw.get("status") or {}).get("allocation")]
    assert held == []


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
@in_virtual_time
async def test_a_claim_that_is_deleted_is_never_written_to_again_and_goes_with_its_pod(row: Row) -> None:
    api = await crashed(row)
    await api.delete(CLAIMS, ObjectKey("ns", "a"))
    process = Process(api)
    answer = await process.bind("p", "n")
    assert answer in ([""] if row.bound else ["claim a is being deleted", "claim a does not exist"])
    assert writes(process.transport.calls) == []
    await api.delete(PODS, ObjectKey("ns", "p"))
    await ClaimController(api).reconcile()
    assert set(await everything(api, CLAIMS)) == {"b"}


@in_virtual_time
async def test_a_pod_that_waits_for_its_device_does_so_in_the_next_process() -> None:
    ready = "example.com/ready"
    attachable = local_slice("n", 1, bindingConditions=[ready], bindingFailureConditions=["example.com/broken"])
    api = memory_api(node("n"), attachable, device_class(), claim("a"), pod("p", "a"))
    waiting = f"waiting for {ready} of {DRIVER}/n/gpu-0"
    assert await Process(api).bind("p", "n") == waiting
    process = Process(api)
    assert await process.bind("p", "n") == waiting
    assert writes(process.transport.calls) == []
    device = {"driver": DRIVER, "pool": "n", "device": "gpu-0", "conditions": [{"type": ready, "status": "True"}]}
    await api.patch_status(CLAIMS, ObjectKey("ns", "a"), {"status": {"devices": [device]}})
    assert await Process(api).bind("p", "n") == ""


# --- the special claim of extended resources ------------------------------------------------------------------


@dataclass(frozen=True)
class SpecialRow:
    """A state in which a bind of the pod p, which asks for example.com/gpu, can end.

    Attributes:
        end: of the process.
        claim: what is left of the claim: "" nothing, "made", "protected", "reserved" or "unprotected" but reserved.
        told: the pod's status names it.
        bound: the pod is bound.
        refused: the Binding is refused, so that the bind is undone.
    """

    end: End
    claim: str
    told: bool = False
    bound: bool = False
    refused: bool = False


SPECIAL_ROWS = {
    "before it is made": SpecialRow(End(0, done=False), ""),
    "made": SpecialRow(End(0, done=True), "made"),
    "protected": SpecialRow(End(1, done=True), "protected"),
    "reserved": SpecialRow(End(2, done=True), "reserved"),
    "told": SpecialRow(End(3, done=True), "reserved", told=True),
    "bound": SpecialRow(End(4, done=True), "reserved", told=True, bound=True),
    "undo, fenced": SpecialRow(End(5, done=True), "reserved", told=True, refused=True),
    "undo, unprotected": SpecialRow(End(6, done=True), "unprotected", told=True, refused=True),
    "undo, deleted": SpecialRow(End(7, done=True), "", told=True, refused=True),
    "undone": SpecialRow(End(8, done=True), "", refused=True),
}


async def crashed_special(row: SpecialRow) -> MemoryApi:
    """The API server after a process has died; node m has a device plugin."""
    resources = {"example.com/gpu": "1"}
    nodes = [node("n"), node("m", allocatable=resources), local_slice("n", 1)]
    api = memory_api(*nodes, device_class(extended="example.com/gpu"), pod("p", resources=resources))
    process = Process(api, row.end)
    if row.refused:
        process.transport.script("bind pods", FORBIDDEN)
    task = asyncio.create_task(process.bind("p", "n"))
    await process.transport.died.wait()
    await killed(task)
    return api


async def special_left(api: MemoryApi) -> tuple[str, bool, str]:
    """What is left of the claim, whether the pod's status names it, and the pod's node."""
    claims = list((await everything(api, CLAIMS)).values())
    raw = (await everything(api, PODS))["p"]
    told, on = "extendedResourceClaimStatus" in raw["status"], raw["spec"].get("nodeName", "")
    if not claims:
        return "", told, on
    (only,) = claims
    is_protected = bool(only["metadata"].get("finalizers"))
    if (only.get("status") or {}).get("reservedFor"):
        return "reserved" if is_protected else "unprotected", told, on
    return "protected" if is_protected else "made", told, on


@pytest.mark.parametrize("row", SPECIAL_ROWS.values(), ids=list(SPECIAL_ROWS))
@in_virtual_time
async def test_what_is_left_of_a_special_claim_the_next_try_mends(row: SpecialRow) -> None:
    api = await crashed_special(row)
    assert await special_left(api) == (row.claim, row.told, "n" if row.bound else "")
    process = Process(api)
    assert await process.bind("p", "n") == ""
    assert await special_left(api) == ("reserved", True, "n")
    assert not process.state.snapshot.assumed


@pytest.mark.parametrize("row", [row for row in SPECIAL_ROWS.values() if not row.bound], ids=lambda row: row.claim)
@in_virtual_time
async def test_on_a_node_with_a_device_plugin_nothing_is_left(row: SpecialRow) -> None:
    api = await crashed_special(row)
    assert await Process(api).bind("p", "m") == ""
    assert await special_left(api) == ("", False, "m")


@pytest.mark.parametrize("row", [row for row in SPECIAL_ROWS.values() if not row.bound], ids=lambda row: row.claim)
@in_virtual_time
async def test_nor_if_the_pod_goes_away(row: SpecialRow) -> None:
    api = await crashed_special(row)
    await api.delete(PODS, ObjectKey("ns", "p"))
    for _ in range(2):
        await ClaimController(api).reconcile()
    assert await everything(api, CLAIMS) == {}


# --- the law ------------------------------------------------------------------------------------------------

BINDS = st.lists(st.tuples(st.sampled_from(sorted(CLAIMS_OF)), st.sampled_from(["n", "m"])), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ENDS, BINDS, ENDS, BINDS), min_size=1, max_size=4))
@in_virtual_time
async def test_whatever_dies_when_no_device_is_lost_or_used_twice(
    rounds: list[tuple[End, list[tuple[str, str]], End, list[tuple[str, str]]]],
) -> None:
    api = cluster()
    for first, some, second, others in rounds:
        mine = [each for each in some if each[0] < "r"]
        theirs = [each for each in others if each[0] >= "r"]
        await live_and_die(api, [(first, mine), (second, theirs)])
        await check(api)
    last = Process(api)
    for name, on in 2 * [(name, on) for name in sorted(CLAIMS_OF) for on in ("n", "m")]:
        await last.bind(name, on)
    await check(api)
    assert not last.state.snapshot.assumed
    waiting = [name for name, raw in (await everything(api, PODS)).items() if not raw["spec"].get("nodeName")]
    assert len(waiting) < len(CLAIMS_OF)
    for name in waiting:
        assert {await last.bind(name, on) for on in ("n", "m")}.isdisjoint({""})
