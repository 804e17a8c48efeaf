"""Claims of PodGroups (gate DRAWorkloadResourceClaims): the pods of a group share the claim made for the group."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, CLASSES, NODES, POD_GROUPS, PODS, SLICES, TEMPLATES
from tests.kit.controlplane.aftermath import is_allocated
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import WAIT_SECONDS, Client, key_of
from tests.kit.controlplane.components import ControlPlane, Options
from tests.kit.controlplane.in_tree import IN_TREE, in_tree
from tests.kit.controlplane.only_scheduler import DEFAULT, only_scheduler, policies_in_force
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.pair import Pair, pair
from tests.kit.controlplane.scenario import bound, by_template, event, findings, held
from tests.kit.objects.manifests import DEVICE_CLASS, add_node, device_class, is_bound, pod, resource_slice, template
from tests.kit.waiting import wait_for_answer

GATES: Final = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
SWITCHES: Final = ",".join(f"{gate}=true" for gate in GATES)
PLACES: Final = [f"grouped-{number}" for number in range(4)]
SIZE: Final = 4

pytestmark = pytest.mark.usefixtures("nodes")


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane with the gates on."""
    versions = {"scheduling.k8s.io/v1beta1": True}
    more = ("podgroup-protection-controller",)
    options = Options(feature_gates=GATES, runtime_config=versions, more_controllers=more)
    with own_plane(binaries, logs, "pod-groups", options) as running:
        yield running


@pytest.fixture
async def nodes(client: Client, kubernetes: str) -> AsyncIterator[None]:
    """Nodes with one GPU each."""
    if kubernetes == "1.36":
        pytest.skip("1.36 serves the kind in another version")
    await client.create(CLASSES, device_class())
    for place in PLACES:
        await add_node(client, place)
        await client.create(SLICES, resource_slice(place, place, [{"name": "gpu"}]))
    yield
    for place in PLACES:
        await client.delete(SLICES, ObjectKey("", place))
        await client.delete(NODES, ObjectKey("", place))
    await client.delete(CLASSES, ObjectKey("", DEVICE_CLASS))


@pytest.fixture
async def ours(client: Client, plane: ControlPlane, nodes: None) -> AsyncIterator[Pair]:
    """The extender and a scheduler with the gates on, and so with the plugin GangScheduling."""
    assert nodes is None
    async with pair(client, plane, gates=SWITCHES) as running:
        yield running


async def add_group(client: Client, namespace: str, name: str = "team", *, size: int = 0) -> None:
    """A PodGroup with a claim from a template; with a size, its pods run together."""
    policy: RawObject = {"gang": {"minCount": size}} if size else {"basic": {}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": policy, "resourceClaims": [by_template("one")]},
    }
    await client.create(POD_GROUPS, group)


async def claim_of(client: Client, namespace: str, group: str = "team") -> ObjectKey:
    """The key of the claim of a group, once it is made."""
    found = await client.wait_for(POD_GROUPS, ObjectKey(namespace, group), _has_claim)
    assert found
    return ObjectKey(namespace, found["status"]["resourceClaimStatuses"][0]["resourceClaimName"])


def _has_claim(obj: RawObject | None) -> bool:
    return bool(obj and obj.get("status", {}).get("resourceClaimStatuses"))


def member(namespace: str, name: str, group: str = "team", *, scheduler: str = "dra-scheduler") -> RawObject:
    belongs = {"podGroupName": group}
    return pod(namespace, name, claims=[by_template("one")], scheduler=scheduler, schedulingGroup=belongs)


def consumers(claim: RawObject) -> list[tuple[str, str]]:
    return [(user["resource"], user["name"]) for user in claim["status"].get("reservedFor", [])]


async def test_pods_of_a_group_share_its_claim_until_the_group_is_gone(
    client: Client, namespace: str, ours: Pair
) -> None:
    assert ours.name
    await client.create(TEMPLATES, template(namespace, "one"))
    await add_group(client, namespace)
    key = await claim_of(client, namespace)
    made = [await client.create(PODS, member(namespace, name)) for name in ("first", "second")]
    assert len({await bound(client, key_of(each)) for each in made}) == 1
    (only,) = (await client.list(CLAIMS, namespace)).items
    assert (key_of(only), len(held(only)), consumers(only)) == (key, 1, [("podgroups", "team")])
    assert await findings(client, namespace) == []
    for each in made:
        await client.delete(PODS, key_of(each))
    later = await client.create(PODS, member(namespace, "later"))
    await bound(client, key_of(later))
    now = await client.get(CLAIMS, key)
    assert now["status"]["allocation"] == only["status"]["allocation"]
    await client.delete(PODS, key_of(later))
    await client.delete(POD_GROUPS, ObjectKey(namespace, "team"))
    # The garbage collector deletes the claim later.
    await client.wait_for(CLAIMS, key, lambda obj: not is_allocated(obj))


async def test_a_pod_joins_others_of_its_group_that_upstreams_scheduler_has_bound(
    client: Client, namespace: str, plane: ControlPlane
) -> None:
    """Our scheduler has its gate off: with the gate on, it refuses groups that another scheduler has pods of.

    So it must not hold pods until their claims exist: without the gate, the plugin takes no claim of a group for one.
    """
    await client.create(TEMPLATES, template(namespace, "one"))
    await add_group(client, namespace)
    key = await claim_of(client, namespace)
    async with in_tree(plane, f"--feature-gates={SWITCHES}"):
        theirs = await client.create(PODS, member(namespace, "theirs", scheduler=IN_TREE))
        place = await bound(client, key_of(theirs))
    before = await client.get(CLAIMS, key)
    async with pair(client, plane, holds_pods=False) as ours:
        own = await client.create(PODS, member(namespace, "ours", scheduler=ours.name))
        assert await bound(client, key_of(own)) == place
    after = await client.get(CLAIMS, key)
    assert after["status"] == before["status"]
    assert consumers(after) == [("podgroups", "team")]
    assert await findings(client, namespace) == []
    for each in (theirs, own):
        await client.delete(PODS, key_of(each))
    await client.delete(POD_GROUPS, ObjectKey(namespace, "team"))


async def test_a_claim_that_keeps_its_group_off_every_node_gets_other_devices(
    client: Client, namespace: str, ours: Pair
) -> None:
    await client.create(TEMPLATES, template(namespace, "one"))
    await add_group(client, namespace)
    key = await claim_of(client, namespace)
    first = await client.create(PODS, member(namespace, "first", scheduler=ours.name))
    place = await bound(client, key_of(first))
    await client.delete(PODS, key_of(first))
    assert is_allocated(await client.get(CLAIMS, key))
    await client.patch(NODES, ObjectKey("", place), {"spec": {"unschedulable": True}})
    second = await client.create(PODS, member(namespace, "second", scheduler=ours.name))
    assert await bound(client, key_of(second)) != place
    assert await findings(client, namespace) == []


async def test_gangs_with_claims_of_their_groups_run_whole_although_the_extender_is_killed_amid(
    client: Client, namespace: str, ours: Pair
) -> None:
    """Six gangs want the four GPUs: each gang runs beside its GPU, and two gangs wait as a whole."""
    await client.create(TEMPLATES, template(namespace, "one"))
    gangs = [f"gang-{number}" for number in range(6)]
    for gang in gangs:
        await add_group(client, namespace, gang, size=SIZE)
    for number in range(SIZE):
        for gang in gangs:
            await client.create(PODS, member(namespace, f"{gang}-{number}", gang, scheduler=ours.name))

    async def running() -> Counter[tuple[str, str]]:
        pods = (await client.list(PODS, namespace)).items
        return Counter((gang_of(each), each["spec"]["nodeName"]) for each in pods if is_bound(each))

    await wait_for_answer(running, lambda found: found.total() >= 2, "pods run", within=60)
    ours.kill()
    await ours.restart()
    await wait_for_answer(running, lambda found: found.total() == SIZE * len(PLACES), "four gangs run", within=120)
    found = await running()
    assert set(found.values()) == {SIZE}
    assert sorted(place for _, place in found) == PLACES
    for claim in (await client.list(CLAIMS, namespace)).items:
        if is_allocated(claim):
            ((resource, group),) = consumers(claim)
            assert (resource, group in {gang for gang, _ in found}) == ("podgroups", True)
    assert await findings(client, namespace) == []


def gang_of(pod: RawObject) -> str:
    """``gang-7`` of ``gang-7-0``."""
    name: str = pod["metadata"]["name"]
    return name.rpartition("-")[0]


async def test_the_clusters_only_scheduler_serves_a_group_that_its_policies_have_marked(
    client: Client, plane: ControlPlane, namespace: str
) -> None:
    await client.create(TEMPLATES, template(namespace, "one"))
    async with only_scheduler(client, plane, gates=SWITCHES), policies_in_force(client):
        await add_group(client, namespace)
        claim = await claim_of(client, namespace)
        for number in range(2):
            await client.create(PODS, member(namespace, f"member-{number}", scheduler=DEFAULT))
        on = {await bound(client, ObjectKey(namespace, f"member-{number}")) for number in range(2)}
        found = await client.get(CLAIMS, claim)
        assert [pool for pool, _ in held(found)] == [*on]
        assert await findings(client, namespace) == []


async def test_a_pod_with_another_priority_than_its_group_is_tried_by_no_scheduler_and_explain_says_so(
    client: Client, namespace: str, ours: Pair
) -> None:
    await client.create(TEMPLATES, template(namespace, "one"))
    await add_group(client, namespace)
    key = await claim_of(client, namespace)
    urgent = member(namespace, "urgent")
    urgent["spec"]["priorityClassName"] = "system-cluster-critical"
    await client.create(PODS, urgent)
    await event(
        client, namespace, "FailedScheduling", about="should have the same priority as the pod group's priority"
    )
    async with httpx.AsyncClient(base_url=ours.extender.url, timeout=WAIT_SECONDS) as http:
        told = (await http.get(f"/explain/{namespace}/urgent")).text
        listed = await http.get("/problems", params={"namespace": namespace, "format": "json"})
    why = "kube-scheduler tries no pod of PodGroup team: pod urgent has priority 2000000000, and the group has 0"
    assert why in told.partition("\n")[0]
    assert any(each["cause"] == "gang" and why in each["problem"] for each in listed.json()["items"])
    assert not is_allocated(await client.get(CLAIMS, key))
