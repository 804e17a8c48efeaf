"""Jobs with the gang policy of Kubernetes 1.37 (gate WorkloadWithJob): the job controller makes their PodGroups."""

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import POD_GROUPS, PODS, TEMPLATES, Resource
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.components import ControlPlane, Options
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.pair import Pair, pair
from tests.kit.controlplane.scenario import by_template, findings
from tests.kit.objects.manifests import is_bound, pod, template
from tests.kit.objects.parts import api_object
from tests.kit.waiting import wait_for_answer

JOBS: Final = Resource("Job", "jobs", "batch", ("v1",), namespaced=True)
GATES: Final = {"GenericWorkload": True, "WorkloadWithJob": True}
SIZE: Final = 3
WITHIN: Final = 60.0


@pytest.fixture(scope="module")
def plane(binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that runs Jobs, with the gates on."""
    more = ("job-controller", "podgroup-protection-controller")
    options = Options(feature_gates=GATES, runtime_config={"scheduling.k8s.io/v1beta1": True}, more_controllers=more)
    with own_plane(binaries, logs, "job-groups", options) as running:
        yield running


@pytest.fixture
async def nodes(client: Client, kubernetes: str) -> AsyncIterator[None]:
    """Nodes with one GPU each."""
    if kubernetes != "1.37":
        pytest.skip("Jobs have a scheduling policy in 1.37")
    async with fleet(client, nodes=4, devices=1):
        yield


@pytest.fixture
async def ours(client: Client, plane: ControlPlane, nodes: None) -> AsyncIterator[Pair]:
    """The extender and a scheduler with the plugin GangScheduling."""
    assert nodes is None
    async with pair(client, plane, gates="GenericWorkload=true") as running:
        yield running


def job(namespace: str, name: str, pods: int = SIZE, **gang: Any) -> RawObject:
    """A Job whose pods run together, each with a GPU."""
    spec = pod(namespace, name, claims=[by_template("one")], restartPolicy="Never")["spec"]
    policy = {"schedulingPolicy": {"gang": gang}}
    of_job = {"parallelism": pods, "completions": pods, "scheduling": policy, "template": {"spec": spec}}
    return api_object("Job", name, namespace=namespace, apiVersion="batch/v1", spec=of_job)


async def bound(client: Client, namespace: str, name: str) -> Sequence[RawObject]:
    """The pods of a Job that have a node, and have not ended."""
    found = (await client.list(PODS, namespace)).items
    of_job = [each for each in found if each["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name]
    return [each for each in of_job if is_bound(each) and each["status"]["phase"] == "Pending"]


async def test_of_two_jobs_with_the_gang_policy_one_runs_whole_and_then_the_other(
    client: Client, ours: Pair, namespace: str
) -> None:
    assert ours.extender.process.is_running
    await client.create(TEMPLATES, template(namespace, "one"))
    for name in "ab":
        await client.create(JOBS, job(namespace, name))

    async def numbers() -> list[int]:
        return sorted([len(await bound(client, namespace, name)) for name in "ab"])

    await wait_for_answer(numbers, [0, SIZE].__eq__, "one of the Jobs runs whole", within=WITHIN)
    groups = (await client.list(POD_GROUPS, namespace)).items
    assert [each["spec"]["schedulingPolicy"] for each in groups] == 2 * [{"gang": {"minCount": SIZE}}]
    [waiting] = [name for name in "ab" if not await bound(client, namespace, name)]
    found = (await client.list(PODS, namespace)).items
    named = {each["spec"]["schedulingGroup"]["podGroupName"] for each in found}
    assert named == {each["metadata"]["name"] for each in groups}
    for each in await bound(client, namespace, next(iter({*"ab"} - {waiting}))):
        await client.patch_status(PODS, key_of(each), {"status": {"phase": "Succeeded"}})
    what = "the other Job runs whole"
    enough = partial(bound, client, namespace, waiting)
    await wait_for_answer(enough, lambda pods: len(pods) == SIZE, what, within=WITHIN)
    assert await findings(client, namespace) == []


async def test_a_job_that_was_suspended_first_is_a_gang_as_well(client: Client, ours: Pair, namespace: str) -> None:
    assert ours.extender.process.is_running
    await client.create(TEMPLATES, template(namespace, "one"))
    suspended = job(namespace, "later", pods=5, minCount=4)
    suspended["spec"]["suspend"] = True
    await client.create(JOBS, suspended)
    key = ObjectKey(namespace, "later")

    def is_suspended(found: RawObject | None) -> bool:
        return any(each["type"] == "Suspended" for each in (found or {}).get("status", {}).get("conditions", ()))

    await client.wait_for(JOBS, key, is_suspended, within=WITHIN)
    await client.patch(JOBS, key, {"spec": {"suspend": False}})
    enough = partial(bound, client, namespace, "later")
    await wait_for_answer(enough, lambda pods: len(pods) == 4, "four of five pods run", within=WITHIN)
    [group] = (await client.list(POD_GROUPS, namespace)).items
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
    assert await findings(client, namespace) == []
