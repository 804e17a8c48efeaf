"""Claims that are reserved for a PodGroup (gate DRAWorkloadResourceClaims): once, for all its pods."""

import asyncio

import pytest

from allocator import Features
from extender.cluster.consumers import consumer_of, holders_near, users_of, without_pods
from extender.cluster.objects.claims import TAKING
from extender.cluster.objects.pods import RELEASED
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.writer import Writer
from extender.config.settings import Settings
from extender.faces.simulation.cluster import Cluster as Simulation
from extender.framework.wire import FilterArgs
from extender.kube.api import ObjectKey, RawObject, WriteRefusedError
from extender.kube.resources import CLAIMS, PODS
from tests.extender.framework.bind.scenes import FORBIDDEN, GET_CLAIM, Scene, action
from tests.extender.plugins.gangs.test_pod_groups import GROUP, TEMPLATE, member, shared
from tests.kit import virtualtime
from tests.kit.binders import binder_over
from tests.kit.clusters import GPU, Cluster, claim, device_class, local_slice, node, parsed, pod, snapshot_of
from tests.kit.objects.parts import api_object
from tests.kit.servers.memory import NOW, Fault

KEY = ObjectKey("ns", "team-gpu")
BY_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "one"}
BY_NAME = {"name": "gpu", "resourceClaimName": "team-gpu"}


def team(*entries: RawObject, name: str = "team") -> RawObject:
    """A PodGroup with claims."""
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(entries) or [BY_TEMPLATE]}
    made = api_object("PodGroup", name, apiVersion="scheduling.k8s.io/v1beta1", namespace="ns", spec=spec)
    return made | {"metadata": {**made["metadata"], "uid": f"uid-{name}"}}


def user(name: str = "p", entry: RawObject = BY_TEMPLATE, *, on: str = "", phase: str = "") -> RawObject:
    """A pod of the group that uses the claim."""
    made = member(name, on=on)
    made["spec"]["resourceClaims"] = [entry]
    made["status"] |= {"phase": phase} if phase else {}
    return made


def held(*consumers: RawObject) -> RawObject:
    """The claim of the group, allocated on node n."""
    made = claim("team-gpu", allocated=["n/gpu-0"], at="n", metadata=shared()["metadata"])
    return made | {"status": {**made["status"], "reservedFor": list(consumers)}}


def scene(*objects: RawObject) -> Scene:
    return Scene(TEMPLATE, *objects, has_group_claims=True)


def consumers(found: RawObject) -> list[RawObject]:
    entries: list[RawObject] = found.get("status", {}).get("reservedFor") or []
    return entries


def gated(*objects: RawObject) -> Snapshot:
    return snapshot_of(device_class(), TEMPLATE, *objects)._replace(has_group_claims=True)


# --- for whom ---------------------------------------------------------------------------------------------------

FOR_WHOM: list[tuple[str, RawObject, RawObject | None, str]] = [
    ("from an equal template", user(), team(), "team"),
    ("of an equal name", user(entry=BY_NAME), team(BY_NAME), "team"),
    ("the second entry of the group", user(), team({**BY_NAME, "name": "x"}, BY_TEMPLATE), "team"),
    ("another name of the entry", user(entry={**BY_NAME, "name": "mine"}), team(BY_NAME), "p"),
    ("by name, of the group from a template", user(entry=BY_NAME), team(), "p"),
    ("the group has no claims", user(), team(BY_NAME), "p"),
    ("the group is not known", user(), None, "p"),
    ("the pod is in another group", member("p", "other"), team(), "p"),
    ("the pod is in no group", member("p", ""), team(), "p"),
]


@pytest.mark.parametrize(("raw", "group", "expected"), [case[1:] for case in FOR_WHOM], ids=[c[0] for c in FOR_WHOM])
def test_the_consumer_of_a_claim(raw: RawObject, group: RawObject | None, expected: str) -> None:
    snapshot = gated(shared(), *filter(None, [group]))
    found = consumer_of(parsed(raw), snapshot.claims[KEY].claim, snapshot)
    assert (found.name, found.is_pod_group) == (expected, expected == "team")


def test_without_the_gate_a_claim_is_reserved_for_each_pod() -> None:
    there = Scene(TEMPLATE, team(), shared(), user("p"), user("q"))
    assert there.run(there.bind("p")) == [""]
    assert there.run(there.bind("q")) == [""]
    assert there.users("team-gpu") == ["p", "q"]


# --- bind -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", [BY_TEMPLATE, BY_NAME], ids=["template", "name"])
def test_pods_are_bound_with_one_reservation_for_their_group(entry: RawObject) -> None:
    there = scene(team(entry), shared(), user("p", entry), user("q", entry))
    assert there.run(there.bind("p")) == [""]
    assert there.run(there.bind("q")) == [""]
    assert (consumers(there.get("team-gpu")), there.devices("team-gpu")) == ([GROUP], ["n/gpu-0"])
    assert (there.node_of("p"), there.node_of("q")) == ("n", "n")


def test_pods_that_are_bound_at_the_same_time_do_not_wait_for_a_second_try() -> None:
    names = [f"p{number}" for number in range(8)]
    there = scene(team(), shared(), *map(user, names))
    assert there.run(*map(there.bind, names)) == [""] * 8
    assert consumers(there.get("team-gpu")) == [GROUP]


def test_a_claim_that_upstream_has_reserved_for_the_group_stays_as_it_is() -> None:
    there = scene(team(), held(GROUP), user("p"))
    assert there.run(there.bind("p")) == [""]
    assert consumers(there.get("team-gpu")) == [GROUP]


def test_a_group_that_was_made_again_reserves_anew() -> None:
    old = {**GROUP, "uid": "uid-of-another"}
    there = scene(team(), held(old), user("p"))
    assert there.run(there.bind("p")) == [""]
    assert consumers(there.get("team-gpu")) == [old, GROUP]


def test_more_pods_than_a_claim_has_places_are_bound() -> None:
    others = [{"resource": "pods", "name": f"o{number}", "uid": f"uid-o{number}"} for number in range(255)]
    there = scene(team(), held(*others, GROUP), user("p"))
    assert there.run(there.bind("p")) == [""]


def test_a_pod_that_is_not_bound_leaves_the_claim_to_its_group() -> None:
    there = scene(team(), shared(), user("p"), user("q"))
    there.transport.script("bind pods", Fault(refused=FORBIDDEN))
    assert there.run(there.bind("p")) != [""]
    assert (consumers(there.get("team-gpu")), there.devices("team-gpu")) == ([GROUP], ["n/gpu-0"])
    assert there.run(there.bind("q", "m")) == ["node m: claim team-gpu is allocated for other nodes"]
    assert there.run(there.bind("q")) == [""]


def test_a_claim_that_is_reserved_for_the_group_is_read_and_not_written() -> None:
    names = [f"p{number}" for number in range(20)]
    there = scene(team(), held(GROUP), *map(user, names))
    before = there.get("team-gpu")["metadata"]["resourceVersion"]
    assert there.run(*map(there.bind, names)) == [""] * 20
    assert there.get("team-gpu")["metadata"]["resourceVersion"] == before
    assert there.transport.calls.count(GET_CLAIM) == 2, "one read is for all that wait when it begins"


def test_a_bind_that_meets_the_mark_of_a_taker_writes_so_that_the_taker_is_refused() -> None:
    marked = held(GROUP)
    marked["metadata"]["annotations"] = {**marked["metadata"].get("annotations", {}), TAKING: "1"}
    there = scene(team(), marked, user("p"), user("q"))
    before = there.get("team-gpu")["metadata"]["resourceVersion"]
    assert there.run(there.bind("p")) == [""]
    after = there.get("team-gpu")["metadata"]
    assert after["resourceVersion"] != before
    assert TAKING not in after["annotations"]
    assert there.run(there.bind("q")) == [""]
    assert there.get("team-gpu")["metadata"] == after


# --- the claim is taken from the group ------------------------------------------------------------------------------

WORLD = (GPU, TEMPLATE, node("n"), node("m"), local_slice("n", 2), local_slice("m", 2), team())


async def filtered(cluster: Cluster, name: str = "p", on: str = "m") -> tuple[RawObject, list[str]]:
    """The claim after a pod got no node, and the pods that were fenced."""
    asked = parsed(await cluster.api.get(PODS, ObjectKey("ns", name)))
    service = cluster.service()
    await service.filter(FilterArgs(asked, (on,)))
    await service.background.tick()
    pods = (await cluster.api.list(PODS)).items
    fenced = [each["metadata"]["name"] for each in pods if RELEASED in str(each["status"].get("conditions"))]
    return await cluster.api.get(CLAIMS, KEY), fenced


def grouped(*objects: RawObject) -> Cluster:
    return Cluster.of(*WORLD, *objects, has_group_claims=True)


def is_allocated(found: RawObject) -> bool:
    return "allocation" in found.get("status", {})


@pytest.mark.parametrize(
    "mates", [[user("q")], [user("q", on="n", phase="Succeeded")]], ids=["no pod has a node", "all have ended"]
)
async def test_a_claim_that_no_pod_of_its_group_runs_with_is_freed(mates: list[RawObject]) -> None:
    found, fenced = await filtered(grouped(held(GROUP), user("p"), *mates))
    assert (is_allocated(found), consumers(found)) == (False, [])
    assert fenced == ["p", *(["q"] if "nodeName" not in mates[0]["spec"] else [])]


async def test_a_claim_that_a_pod_of_its_group_runs_with_stays() -> None:
    found, fenced = await filtered(grouped(held(GROUP), user("p"), user("q", on="n")))
    assert (consumers(found), fenced) == ([GROUP], [])


async def test_a_claim_that_another_group_uses_as_well_stays() -> None:
    other = {**GROUP, "name": "other", "uid": "uid-other"}
    found, _ = await filtered(grouped(held(GROUP, other), user("p")))
    assert consumers(found) == [GROUP, other]


async def test_without_the_gate_a_claim_of_a_group_stays() -> None:
    found, _ = await filtered(Cluster.of(*WORLD, held(GROUP), user("p")))
    assert consumers(found) == [GROUP]


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [(1.0, "pod ns/q runs with claim ns/team-gpu"), (9.0, "the watch does not show pod ns/p yet")],
    ids=["the watch is late", "the watch is too late"],
)
def test_a_claim_stays_if_a_pod_that_the_watch_has_not_shown_runs_with_it(seconds: float, reason: str) -> None:
    """The watch shows the pod before it shows the fence of another pod."""
    there = scene(team(), held(GROUP), user("p"))
    claim, asked = there.state.snapshot.claims[KEY], parsed(user("p"))
    there.watch.of, there.watch.is_behind = PODS, True
    there.api.load(PODS, user("q", on="n"))

    async def take() -> str:
        asyncio.get_running_loop().call_later(seconds, there.watch.catch_up)
        with pytest.raises(WriteRefusedError) as error:
            await Writer(there.transport, there.state, lambda: NOW).deallocate(claim, asked)
        return str(error.value)

    assert virtualtime.run(take()) == reason
    assert consumers(there.get("team-gpu")) == [GROUP]


def test_a_pod_that_is_bound_while_its_claim_is_taken_keeps_it() -> None:
    """Another process binds a pod after its fence: its write to the claim makes ours refused."""
    there = scene(team(), held(GROUP), user("p"), user("q"))
    claim, asked = there.state.snapshot.claims[KEY], parsed(user("p"))
    other = binder_over(there.api, there.state)
    bound = action(lambda: other.bind(ObjectKey("ns", "q"), "uid-q", "n"))
    there.transport.script("update_status resourceclaims", bound)

    async def take() -> None:
        with pytest.raises(WriteRefusedError):
            await Writer(there.transport, there.state, lambda: NOW).deallocate(claim, asked)

    virtualtime.run(take())
    assert (consumers(there.get("team-gpu")), there.node_of("q")) == ([GROUP], "n")


def test_a_void_allocation_is_taken_from_the_whole_group() -> None:
    earlier = claim("theirs", allocated=["n/gpu-0"], at="n")
    there = scene(earlier, team(), held(GROUP), user("p"), user("q"))
    (answer,) = there.run(there.bind("p"))
    assert answer == "the allocation of claim team-gpu is void: others hold its devices"
    assert (consumers(there.get("team-gpu")), there.devices("team-gpu")) == ([], [])
    assert there.run(there.bind("q")) == [""]
    assert there.devices("team-gpu") == ["n/gpu-1"]


# --- what a reservation for a group means elsewhere ------------------------------------------------------------------


def test_pods_of_the_group_that_leave_free_nothing() -> None:
    snapshot = gated(team(), held(GROUP), user("p", on="n"))
    left = without_pods(snapshot, [parsed(user("p", on="n"))])
    assert left.claims[KEY].claim.allocation is not None


def test_an_eviction_of_a_pod_of_the_group_frees_nothing_so_it_is_no_victim() -> None:
    snapshot = gated(node("n"), local_slice("n", 2), team(), held(GROUP), user("p", on="n"))
    assert list(holders_near(snapshot.nodes["n"], snapshot, Features())) == []


def test_the_users_of_a_claim_are_the_pods_of_its_group_that_name_it() -> None:
    other = pod("unrelated", "c") | {
        "spec": {**pod("unrelated", "c")["spec"], "schedulingGroup": {"podGroupName": "team"}}
    }
    snapshot = gated(team(), held(GROUP), user("p"), user("q"), other)
    assert sorted(each.name for each in users_of(snapshot.claims[KEY].claim, snapshot)) == ["p", "q"]


# --- the cluster in memory -------------------------------------------------------------------------------------------


def unmade(name: str) -> RawObject:
    """A pod of the group before its claims are made."""
    made = user(name)
    del made["status"]["resourceClaimStatuses"]
    return made


def in_memory(*objects: RawObject) -> Simulation:
    settings = Settings.model_validate({"featureGates": {"DRAWorkloadResourceClaims": True}})
    nodes = (GPU, node("n"), local_slice("n", 2))
    return Simulation.from_objects([*nodes, TEMPLATE, *objects], settings=settings)


def test_one_claim_is_made_for_the_group_and_its_pods_share_it() -> None:
    cluster = in_memory(team(), unmade("p"), unmade("q"))
    (only,) = cluster.snapshot.claims.values()
    assert (only.claim.pod_group, only.claim.owner_name) == ("team", "team")
    placed = cluster.schedule()
    assert [(each.node, [one.result.device.device for one in each.devices]) for each in placed] == [
        ("n", ["gpu-0"])
    ] * 2
    (only,) = cluster.snapshot.claims.values()
    assert [str(consumer) for consumer in only.claim.reserved_for] == ["PodGroup team"]


def test_other_entries_of_a_pod_of_the_group_get_claims_of_their_own() -> None:
    raw = unmade("p")
    raw["spec"]["resourceClaims"].append({**BY_TEMPLATE, "name": "mine"})
    cluster = in_memory(team(), raw)
    found = {each.claim.pod_group or "p" for each in cluster.snapshot.claims.values()}
    assert found == {"team", "p"}


def test_pods_wait_for_the_group_and_its_claims() -> None:
    cluster = in_memory(unmade("p"))
    assert not cluster.snapshot.claims
    assert [each.node for each in cluster.schedule()] == [""]
    cluster.add(team())
    assert [each.node for each in cluster.schedule()] == ["n"]


def test_the_end_of_the_pods_leaves_the_devices_to_the_group_and_the_end_of_the_group_frees_them() -> None:
    cluster = in_memory(team(BY_NAME), claim("team-gpu"), user("p", BY_NAME))
    assert [each.node for each in cluster.schedule()] == ["n"]
    cluster.remove("Pod", "p", "ns")
    assert cluster.snapshot.claims[KEY].claim.allocation is not None
    cluster.remove("PodGroup", "team", "ns")
    left = cluster.snapshot.claims[KEY].claim
    assert (left.allocation, left.reserved_for) == (None, ())


def test_a_claim_from_a_template_goes_with_its_group() -> None:
    cluster = in_memory(team(), unmade("p"))
    cluster.schedule()
    cluster.remove("Pod", "p", "ns")
    cluster.remove("PodGroup", "team", "ns")
    assert not cluster.snapshot.claims


def test_without_the_gate_each_pod_gets_a_claim_of_its_own_and_users_are_told() -> None:
    nodes = (GPU, node("n"), local_slice("n", 2))
    cluster = Simulation.from_objects([*nodes, TEMPLATE, team(), unmade("p"), unmade("q")])
    assert len(cluster.snapshot.claims) == 2
    assert cluster.ignored == ("spec.resourceClaims of PodGroups (feature gate DRAWorkloadResourceClaims is off)",)
    assert in_memory(team(), unmade("p")).ignored == ()
