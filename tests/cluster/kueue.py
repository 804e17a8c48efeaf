"""Kueue admits Jobs whose pods have claims, and dra-scheduler schedules the pods: ``make test-kueue``.

KUEUE names the program, and KUEUE_CHART the folder of the chart of the same version.
"""

import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from extender.cluster.objects.pods import GROUP, GROUP_SIZE
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLASSES, DEVICE_QUOTAS, POD_GROUPS, PODS, SLICES, TEMPLATES, Resource
from extender.plugins.admission_checks.jobs import JOB_LABEL
from tests.kit.controlplane.binaries import Binaries
from tests.kit.controlplane.client import NAMESPACES, Client, connect, key_of
from tests.kit.controlplane.components import ControlPlane, Options
from tests.kit.controlplane.definitions import DEVICE_QUOTA
from tests.kit.controlplane.extended import box, special_claims
from tests.kit.controlplane.fleet import fleet
from tests.kit.controlplane.kueue import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    FLAVORS,
    GATE,
    LOCAL_QUEUES,
    QUEUE,
    WORKLOADS,
    Kueue,
    kueue,
    rendered,
)
from tests.kit.controlplane.own import own_plane
from tests.kit.controlplane.pair import pair
from tests.kit.controlplane.scenario import GPUS, SITE, by_template, findings, rejection
from tests.kit.controlplane.service import SERVE, Extender, running_extender
from tests.kit.objects.manifests import (
    DEVICE_CLASS,
    device_class,
    is_bound,
    pod,
    request,
    requests,
    resource_slice,
    template,
)
from tests.kit.objects.manifests import namespace as a_namespace
from tests.kit.objects.parts import api_object
from tests.kit.objects.quotas import limited, quota
from tests.kit.places import ROOT
from tests.kit.waiting import wait_for_answer

JOBS: Final = Resource("Job", "jobs", "batch", ("v1",), namespaced=True)
COUNTED: Final = "gpus"
"""What the quotas of Kueue call the devices of the class."""

DEVICES: Final = len(GPUS) * len(SITE)
WITHIN: Final = 60.0

CHECK: Final = "devices"
"""The name of the AdmissionCheck that dra-extender answers."""

SERVE_CHECKS: Final = ("env", "DRA_EXTENDER__ADMISSION_CHECKS__ENABLED=true", *SERVE)
HASTY: Final = ("env", "DRA_EXTENDER__ADMISSION_CHECKS__GIVE_BACK_SECONDS=5", *SERVE_CHECKS)


@pytest.fixture(scope="module")
def program() -> Path:
    if not (found := os.environ.get("KUEUE")):
        pytest.skip("KUEUE names no Kueue")
    return Path(found)


@pytest.fixture(scope="module")
def manifests(helm: Path) -> str:
    if not (found := os.environ.get("KUEUE_CHART")):
        pytest.skip("KUEUE_CHART names no chart of Kueue")
    return rendered(helm, Path(found))


@pytest.fixture(scope="module")
def plane(program: Path, binaries: Binaries, logs: Path) -> Iterator[ControlPlane]:
    """A control plane that runs Jobs, and knows DeviceQuotas."""
    assert program.is_file()
    options = Options(more_controllers=("job-controller",))
    with own_plane(binaries, logs, "kueue", options, definition=DEVICE_QUOTA) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admitting(plane: ControlPlane, site: object, program: Path, manifests: str) -> AsyncIterator[Kueue]:
    """Kueue runs, and each node of the site has two GPUs."""
    assert site
    async with connect(plane.access()) as admin:
        await admin.create(CLASSES, device_class())
        for name in SITE:
            await admin.create(SLICES, resource_slice(name, name, GPUS))
        [wanted], (flavor, *_), _, [check] = page()
        async with kueue(plane, admin, program, manifests, wanted) as found:
            await admin.create(FLAVORS, flavor)
            await admin.create(ADMISSION_CHECKS, check)
            yield found


def page(namespace: str = "") -> list[list[RawObject]]:
    """The objects in each example of the page. Namespace, ClusterQueue and LocalQueue have this name."""
    text = re.sub("training|team", namespace, (ROOT / "docs/how-to/kueue.md").read_text())
    found = re.findall(r"^ +```yaml\n(.*?)^ +```$", text, re.MULTILINE | re.DOTALL)
    return [list(yaml.safe_load_all(dedent(each))) for each in found]


pytestmark = pytest.mark.usefixtures("admitting")


def _of_kueue(kind: str, name: str, namespace: str = "", **spec: Any) -> RawObject:
    return api_object(kind, name, namespace=namespace, apiVersion="kueue.x-k8s.io/v1beta2", spec=spec)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of Kueue, with its Jobs. Queue, ClusterQueue and namespace have one name."""

    client: Client
    name: str

    async def open(self, devices: int, resource: str = COUNTED, checks: Sequence[str] = (), **more: Any) -> None:
        """Make it, with a quota of devices, or of a resource; and with AdmissionChecks, or other fields."""
        flavor = {"name": "any", "resources": [{"name": resource, "nominalQuota": devices}]}
        groups = [{"coveredResources": [resource], "flavors": [flavor]}]
        asked = {"admissionChecks": [{"name": each} for each in checks]}
        spec: RawObject = {"resourceGroups": groups, **({"admissionChecksStrategy": asked} if checks else {}), **more}
        cluster_queue = _of_kueue("ClusterQueue", self.name, namespaceSelector={}, **spec)
        await self.client.create(CLUSTER_QUEUES, cluster_queue)
        await self.client.create(LOCAL_QUEUES, _of_kueue("LocalQueue", self.name, self.name, clusterQueue=self.name))

    async def add(
        self, job: str, pods: int, claim: RawObject | None = None, *, is_gang: bool = False, **more: Any
    ) -> None:
        """Add a Job. Its author does not suspend it: that is up to Kueue.

        Args:
            pods: how many run at the same time; each has a claim.
            claim: the spec of the claims; None: for one GPU.
            is_gang: the pods run together or not at all, by annotations.
            more: further fields of its spec.
        """
        await self.client.create(TEMPLATES, template(self.name, job, claim))
        spec = pod(self.name, job, claims=[by_template(job)], restartPolicy="Never")["spec"]
        annotations = {GROUP: job, GROUP_SIZE: str(pods)} if is_gang else {}
        await self.start(job, pods, {"metadata": {"annotations": annotations}, "spec": spec}, **more)

    async def start(self, job: str, pods: int, of_pods: RawObject, **more: Any) -> None:
        """Add a Job with this template of its pods, and further fields of its spec."""
        spec = {"parallelism": pods, "completions": pods, "template": of_pods, **more}
        made = api_object("Job", job, namespace=self.name, apiVersion="batch/v1", spec=spec)
        made["metadata"]["labels"] = {QUEUE: self.name}
        await self.client.create(JOBS, made)

    async def pods_of(self, job: str) -> Sequence[RawObject]:
        """The pods of a Job that have not ended."""
        found = (await self.client.list(PODS, self.name)).items
        of_job = [each for each in found if each["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job]
        return [each for each in of_job if each["status"]["phase"] == "Pending"]

    async def bound(self, job: str) -> Sequence[RawObject]:
        """Those that have a node."""
        return list(filter(is_bound, await self.pods_of(job)))

    async def wait_bound(self, job: str, number: int) -> Sequence[RawObject]:
        """The pods of a Job that have a node, as soon as there are ``number`` of them."""
        what = f"{number} pods of {job} are bound"
        return await wait_for_answer(partial(self.bound, job), lambda pods: len(pods) == number, what, within=WITHIN)

    async def end(self, pods: Sequence[RawObject]) -> None:
        """The pods are done, as their kubelets tell."""
        for each in pods:
            await self.client.patch_status(PODS, key_of(each), {"status": {"phase": "Succeeded"}})

    async def be_ready(self, pods: Sequence[RawObject]) -> None:
        """The containers of the pods are ready, as their kubelets tell."""
        for each in pods:
            conditions = [*each["status"]["conditions"], {"type": "Ready", "status": "True"}]
            await self.client.patch_status(PODS, key_of(each), {"status": {"conditions": conditions}})

    async def wait_leaving(self, job: str, number: int) -> Sequence[RawObject]:
        """So many pods of a Job that have a node and are told to end, as soon as there are no others."""
        what = f"{number} pods of {job} are told to end"
        return await wait_for_answer(
            partial(self.bound, job),
            lambda pods: len([each for each in pods if "deletionTimestamp" in each["metadata"]]) == number,
            what,
            within=WITHIN,
        )

    async def go(self, pods: Sequence[RawObject]) -> None:
        """The pods have ended and are gone, as their kubelets tell."""
        for each in pods:
            await self.client.delete(PODS, key_of(each))

    async def is_suspended(self, job: str) -> bool:
        return bool((await self.client.get(JOBS, ObjectKey(self.name, job)))["spec"]["suspend"])

    async def workloads(self, job: str) -> Sequence[RawObject]:
        """What Kueue has made of a Job."""
        found = (await self.client.list(WORKLOADS, self.name)).items
        return [each for each in found if each["metadata"]["ownerReferences"][0]["name"] == job]

    async def checked(self, job: str, state: str, text: str = "") -> RawObject:
        """The entry of the check for a Job, once it has this state and this text."""

        async def entries() -> Sequence[RawObject]:
            return [
                each for one in await self.workloads(job) for each in one.get("status", {}).get("admissionChecks", ())
            ]

        def is_it(each: RawObject) -> bool:
            return bool(each["name"] == CHECK and each["state"] == state and text in each["message"])

        what = f"the check of {job} is {state}: {text}"
        found = await wait_for_answer(entries, lambda all_: any(map(is_it, all_)), what, within=WITHIN)
        return next(filter(is_it, found))

    async def told(self, job: str, condition: str, text: str) -> RawObject:
        """A condition of the workload that Kueue has made of a Job, once it has this text."""

        async def conditions() -> Sequence[RawObject]:
            return [each for one in await self.workloads(job) for each in one.get("status", {}).get("conditions", ())]

        def is_it(each: RawObject) -> bool:
            return bool(each["type"] == condition and text in each["message"])

        what = f"{condition} of {job}: {text}"
        found = await wait_for_answer(conditions, lambda all_: any(map(is_it, all_)), what, within=WITHIN)
        return next(filter(is_it, found))

    async def close(self) -> None:
        """Remove its Jobs, and the queue."""
        for each in (await self.client.list(JOBS, self.name)).items:
            await self.client.delete(JOBS, key_of(each))
        await self.client.delete(CLUSTER_QUEUES, ObjectKey("", self.name))


@pytest.fixture
async def queue(client: Client, namespace: str) -> AsyncIterator[Queue]:
    """A queue that is not open yet."""
    found = Queue(client, namespace)
    yield found
    await found.close()


@pytest.fixture
async def other_queue(client: Client, neighbor: str) -> AsyncIterator[Queue]:
    """A second one."""
    found = Queue(client, neighbor)
    yield found
    await found.close()


async def test_the_examples_of_the_page_run(client: Client, queue: Queue) -> None:
    _, (_, cluster_queue, local_queue), [job], _ = page(queue.name)
    await client.create(CLUSTER_QUEUES, cluster_queue)
    await client.create(LOCAL_QUEUES, local_queue)
    await client.create(TEMPLATES, template(queue.name, "one-gpu"))
    await client.create(JOBS, job)
    await queue.wait_bound("train", 4)
    assert (await queue.told("train", "Admitted", ""))["status"] == "True"


async def test_a_job_waits_for_its_quota_and_then_its_pods_get_devices(client: Client, queue: Queue) -> None:
    await queue.open(devices=2)
    await queue.add("first", 2)
    running = await queue.wait_bound("first", 2)
    await queue.add("second", 1)
    refused = await queue.told("second", "QuotaReserved", "insufficient unused quota")
    assert refused["status"] == "False"
    assert COUNTED in refused["message"]
    assert await queue.is_suspended("second")
    assert await queue.pods_of("second") == []
    await queue.end(running)
    await queue.wait_bound("second", 1)
    assert not await queue.is_suspended("second")
    assert await findings(client, queue.name) == []


async def test_admitted_pods_wait_for_devices_if_the_quota_is_larger_than_what_there_is(
    client: Client, queue: Queue
) -> None:
    await queue.open(devices=DEVICES + 4)
    await queue.add("large", DEVICES + 1)
    running = await queue.wait_bound("large", DEVICES)
    [waiting] = [each for each in await queue.pods_of("large") if not is_bound(each)]
    assert await rejection(client, key_of(waiting), about="no free device for request gpu")
    assert (await queue.told("large", "Admitted", ""))["status"] == "True"
    await queue.end(running[:1])
    await client.wait_for(PODS, key_of(waiting), is_bound, within=WITHIN)
    assert await findings(client, queue.name) == []


async def check_gangs(client: Client, queue: Queue, **job: Any) -> None:
    """Of two admitted Jobs, one runs whole, and then the other one.

    Args:
        job: arguments of `Queue.add` that make a gang of its pods.
    """
    size = DEVICES // 2 + 1
    await queue.open(devices=2 * size)
    for name in "ab":
        await queue.add(name, size, **job)

    async def bound() -> list[int]:
        return sorted([len(await queue.bound(name)) for name in "ab"])

    await wait_for_answer(bound, [0, size].__eq__, "one of the Jobs runs whole", within=WITHIN)
    for name in "ab":
        assert not await queue.is_suspended(name)
        await queue.end(await queue.bound(name))
    await wait_for_answer(bound, [0, size].__eq__, "the other one runs whole", within=WITHIN)
    assert await findings(client, queue.name) == []


async def test_of_two_admitted_jobs_one_runs_whole_if_they_are_gangs(client: Client, queue: Queue) -> None:
    await check_gangs(client, queue, is_gang=True)


async def test_the_same_by_the_gang_policy_of_kubernetes(
    binaries: Binaries, logs: Path, program: Path, manifests: str, kubernetes: str
) -> None:
    """With the gates on, annotations count no more: so it has a control plane of its own."""
    if kubernetes != "1.37":
        pytest.skip("Jobs have a scheduling policy in 1.37")
    gates = {"GenericWorkload": True, "WorkloadWithJob": True}
    more = ("job-controller", "podgroup-protection-controller")
    options = Options(gates, {"scheduling.k8s.io/v1beta1": True}, more_controllers=more)
    [wanted], (flavor, *_), *_ = page()
    with own_plane(binaries, logs, "kueue-groups", options) as plane:
        async with (
            connect(plane.access()) as client,
            fleet(client, nodes=DEVICES, devices=1),
            pair(client, plane, gates="GenericWorkload=true"),
            kueue(plane, client, program, manifests, wanted),
        ):
            await client.create(FLAVORS, flavor)
            await client.create(NAMESPACES, a_namespace("groups"))
            await check_gangs(client, Queue(client, "groups"), scheduling={"schedulingPolicy": {"gang": {}}})
            groups = (await client.list(POD_GROUPS, "groups")).items
            assert ["gang" in each["spec"]["schedulingPolicy"] for each in groups] == [True, True]


async def test_a_pod_waits_at_the_gate_of_kueue_and_then_gets_devices(client: Client, queue: Queue) -> None:
    await queue.open(devices=1)
    await client.create(TEMPLATES, template(queue.name, "one"))
    for name in ("first", "second"):
        made = pod(queue.name, name, claims=[by_template("one")], restartPolicy="Never")
        made["metadata"]["labels"] = {QUEUE: queue.name}
        await client.create(PODS, made)
        await queue.told(name, "QuotaReserved", "")
    first, second = (ObjectKey(queue.name, name) for name in ("first", "second"))
    await client.wait_for(PODS, first, is_bound, within=WITHIN)
    assert await queue.told("second", "QuotaReserved", "insufficient unused quota")
    assert {"name": GATE} in (await client.get(PODS, second))["spec"]["schedulingGates"]
    await queue.end([await client.get(PODS, first)])
    await client.wait_for(PODS, second, is_bound, within=WITHIN)
    assert await findings(client, queue.name) == []


async def test_a_device_quota_holds_pods_that_kueue_has_admitted(client: Client, queue: Queue) -> None:
    await client.create(DEVICE_QUOTAS, quota(limited(DEVICE_CLASS, devices=1), namespace=queue.name))
    await queue.open(devices=2)
    await queue.add("job", 2)
    running = await queue.wait_bound("job", 1)
    [waiting] = [each for each in await queue.pods_of("job") if not is_bound(each)]
    assert await rejection(client, key_of(waiting), about="device quota gold: limit gpu allows 1 device")
    await queue.add("next", 1)
    assert await queue.told("next", "QuotaReserved", "insufficient unused quota")
    await queue.end(running)
    await client.wait_for(PODS, key_of(waiting), is_bound, within=WITHIN)


async def test_kueue_counts_an_extended_resource_by_its_name(client: Client, queue: Queue) -> None:
    key, resource = ObjectKey("", DEVICE_CLASS), "example.com/gpu"
    await client.patch(CLASSES, key, {"spec": {"extendedResourceName": resource}})
    await queue.open(2, resource)
    spec = pod(queue.name, "job", restartPolicy="Never")["spec"] | {"containers": [box("main", **{resource: "1"})]}
    for name in ("first", "second"):
        await queue.start(name, 2, {"spec": spec})
    running = await queue.wait_bound("first", 2)
    assert len(await special_claims(client, queue.name)) == 2
    assert resource in (await queue.told("second", "QuotaReserved", "insufficient unused quota"))["message"]
    await queue.end(running)
    await queue.wait_bound("second", 2)
    await client.patch(CLASSES, key, {"spec": {"extendedResourceName": None}})
    assert await findings(client, queue.name) == []


ONE: Final = request("gpu", DEVICE_CLASS)
REFUSED: Final[Mapping[str, tuple[RawObject, str]]] = {
    "a selector": (
        requests(request("gpu", DEVICE_CLASS, selectors=[{"cel": {"expression": "true"}}])),
        "CEL selectors are not supported",
    ),
    "all devices": (requests(request("gpu", DEVICE_CLASS, allocationMode="All")), "'All' is not supported"),
    "alternatives": (
        requests({"name": "gpu", "firstAvailable": [{"name": "any", "deviceClassName": DEVICE_CLASS}]}),
        "FirstAvailable device selection is not supported",
    ),
    "a constraint": (
        requests(ONE, constraints=[{"matchAttribute": "example.com/root"}]),
        "device constraints (MatchAttribute) are not supported",
    ),
}


@pytest.mark.parametrize(("claim", "reason"), REFUSED.values(), ids=REFUSED)
async def test_kueue_admits_no_job_with_claims_that_it_can_not_count(
    queue: Queue, claim: RawObject, reason: str
) -> None:
    await queue.open(devices=DEVICES)
    await queue.add("job", 1, claim)
    assert (await queue.told("job", "QuotaReserved", reason))["status"] == "False"
    assert await queue.is_suspended("job")


# --- the AdmissionCheck of dra-extender ---------------------------------------------------------------------


def _is_active(found: RawObject | None) -> bool:
    conditions = (found or {}).get("status", {}).get("conditions", ())
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


@asynccontextmanager
async def answering(
    client: Client, plane: ControlPlane, serve: Sequence[str] = SERVE_CHECKS
) -> AsyncIterator[Extender]:
    """A replica answers the check; another one, beside the scheduler, allocates."""
    async with running_extender(plane, serve=serve) as running:
        await client.wait_for(ADMISSION_CHECKS, ObjectKey("", CHECK), _is_active, within=WITHIN)
        yield running


async def test_a_job_is_admitted_once_there_are_devices_for_all_of_its_pods(
    client: Client, plane: ControlPlane, queue: Queue
) -> None:
    async with answering(client, plane):
        await queue.open(devices=3 * DEVICES, checks=[CHECK])
        await queue.add("first", DEVICES - 1)
        running = await queue.wait_bound("first", DEVICES - 1)
        ready = await queue.checked("first", "Ready")
        assert f"there are devices for its {DEVICES - 1} pods together" in ready["message"]
        assert {each["metadata"]["labels"][JOB_LABEL].partition(".")[2] for each in running} == {"0"}
        await queue.add("second", 3)
        pending = await queue.checked("second", "Pending", "1 of 3 pods would get them")
        assert "no free device for request gpu" in pending["message"]
        assert await queue.is_suspended("second")
        assert await queue.pods_of("second") == []
        await queue.end(running[:1])
        await queue.checked("second", "Pending", "2 of 3 pods would get them")
        await queue.end(running[1:2])
        await queue.wait_bound("second", 3)
        assert await findings(client, queue.name) == []


async def test_of_two_jobs_one_is_admitted_and_the_other_one_after_it(
    client: Client, plane: ControlPlane, queue: Queue
) -> None:
    size = DEVICES // 2 + 1
    async with answering(client, plane):
        await queue.open(devices=2 * size, checks=[CHECK])
        for name in "ab":
            await queue.add(name, size)

        async def bound() -> list[int]:
            return sorted([len(await queue.bound(name)) for name in "ab"])

        await wait_for_answer(bound, [0, size].__eq__, "one of the Jobs runs whole", within=WITHIN)
        [waiting] = [name for name in "ab" if not await queue.bound(name)]
        await queue.checked(waiting, "Pending", f"{DEVICES - size} of {size} pods would get them")
        assert await queue.pods_of(waiting) == []
        [other] = set("ab") - {waiting}
        await queue.end(await queue.bound(other))
        await queue.wait_bound(waiting, size)


async def test_another_process_goes_on_after_a_kill(client: Client, plane: ControlPlane, queue: Queue) -> None:
    async with answering(client, plane) as killed:
        await queue.open(devices=2 * DEVICES, checks=[CHECK])
        await queue.add("first", DEVICES)
        running = await queue.wait_bound("first", DEVICES)
        await queue.add("second", 1)
        told = await queue.checked("second", "Pending", "0 of 1 pod would get them")
        killed.process.kill()
        await queue.end(running)
    async with answering(client, plane):
        await queue.wait_bound("second", 1)
        assert (await queue.checked("second", "Ready"))["lastTransitionTime"] >= told["lastTransitionTime"]


async def test_a_job_that_waits_for_long_gives_its_quota_to_others(
    client: Client, plane: ControlPlane, queue: Queue
) -> None:
    async with answering(client, plane, HASTY):
        await queue.open(devices=DEVICES + 1, checks=[CHECK], queueingStrategy="StrictFIFO")
        await queue.add("large", DEVICES + 1)
        await queue.checked("large", "Pending", f"of {DEVICES + 1} pods would get them")
        await queue.add("small", 1)
        assert await queue.told("small", "QuotaReserved", "insufficient unused quota")
        await queue.wait_bound("small", 1)
        assert await queue.told("large", "Evicted", "At least one admission check is false")
        assert await queue.is_suspended("large")


async def test_a_job_without_devices_runs_at_once(client: Client, plane: ControlPlane, queue: Queue) -> None:
    async with answering(client, plane):
        await queue.open(1, "cpu", checks=[CHECK])
        spec = pod(queue.name, "plain", restartPolicy="Never")["spec"] | {"containers": [box("main", cpu="100m")]}
        await queue.start("plain", 2, {"spec": spec})
        await queue.wait_bound("plain", 2)
        assert (await queue.checked("plain", "Ready"))["message"] == "no pod needs devices"


async def test_extended_resources_are_asked_for_like_claims(client: Client, plane: ControlPlane, queue: Queue) -> None:
    key, resource = ObjectKey("", DEVICE_CLASS), "example.com/gpu"
    await client.patch(CLASSES, key, {"spec": {"extendedResourceName": resource}})
    async with answering(client, plane):
        await queue.open(4 * DEVICES, resource, checks=[CHECK])
        spec = pod(queue.name, "job", restartPolicy="Never")["spec"]
        for name, pods, each in (("fits", DEVICES // 2, "2"), ("waits", 1, "1"), ("never", 1, "3")):
            await queue.start(name, pods, {"spec": spec | {"containers": [box("main", **{resource: each})]}})
            await queue.checked(name, "Ready" if name == "fits" else "Pending")
        running = await queue.wait_bound("fits", DEVICES // 2)
        await queue.end(running)
        await queue.wait_bound("waits", 1)
        assert await queue.is_suspended("never")
    await client.patch(CLASSES, key, {"spec": {"extendedResourceName": None}})


async def test_pods_without_a_job_ask_as_well(client: Client, plane: ControlPlane, queue: Queue) -> None:
    async with answering(client, plane):
        await queue.open(2 * DEVICES, checks=[CHECK])
        await client.create(TEMPLATES, template(queue.name, "all", requests(request("gpu", DEVICE_CLASS, count=2))))
        names = [f"pod-{number}" for number in range(len(SITE) + 1)]
        for name in names:
            made = pod(queue.name, name, claims=[by_template("all")], restartPolicy="Never")
            made["metadata"]["labels"] = {QUEUE: queue.name}
            await client.create(PODS, made)

        async def placed() -> list[RawObject]:
            found = (await client.list(PODS, queue.name)).items
            return [each for each in found if is_bound(each) and each["status"]["phase"] == "Pending"]

        what = "a pod on each node"
        running = await wait_for_answer(placed, lambda pods: len(pods) == len(SITE), what, within=WITHIN)
        assert all(JOB_LABEL in each["metadata"]["labels"] for each in running)
        [waiting] = {*names} - {each["metadata"]["name"] for each in running}
        await queue.checked(waiting, "Pending", "0 of 1 pod would get them")
        assert {"name": GATE} in (await client.get(PODS, ObjectKey(queue.name, waiting)))["spec"]["schedulingGates"]
        await queue.end(running[:1])
        await client.wait_for(PODS, ObjectKey(queue.name, waiting), is_bound, within=WITHIN)


# --- further settings of Kueue -------------------------------------------------------------------------------

UNREADY_SECONDS: Final = 6
"""The time that Kueue gives the pods of an admitted Job until they are ready."""

IMPATIENT: Final = {"timeout": f"{UNREADY_SECONDS}s", "requeuingStrategy": {"backoffBaseSeconds": 600}}


async def test_kueue_needs_no_more_rights_than_its_chart_gives(queue: Queue, admitting: Kueue) -> None:
    await queue.open(devices=1)
    await queue.add("job", 1)
    await queue.end(await queue.wait_bound("job", 1))
    assert await queue.told("job", "Finished", "")
    assert [line for line in admitting.process.log.read_text().splitlines() if "is forbidden" in line] == []


async def test_a_job_whose_pods_wait_for_devices_gives_its_quota_and_its_devices_to_others(
    client: Client, queue: Queue, admitting: Kueue
) -> None:
    async with admitting.with_settings(waitForPodsReady=IMPATIENT):
        await queue.open(devices=DEVICES + 1)
        await queue.add("large", DEVICES + 1)
        await queue.wait_bound("large", DEVICES)
        await queue.add("small", 1)
        assert await queue.told("small", "QuotaReserved", "insufficient unused quota")
        assert await queue.told("large", "Evicted", "Exceeded the PodsReady timeout")
        await queue.go(await queue.wait_leaving("large", DEVICES))
        await queue.be_ready(await queue.wait_bound("small", 1))
        assert (await queue.told("small", "PodsReady", "All pods reached readiness"))["status"] == "True"
        assert await queue.is_suspended("large")
        assert await findings(client, queue.name) == []


async def test_a_job_that_waits_for_its_check_has_not_begun_to_wait_for_ready_pods(
    client: Client, plane: ControlPlane, queue: Queue, admitting: Kueue
) -> None:
    async with admitting.with_settings(waitForPodsReady=IMPATIENT), answering(client, plane):
        await queue.open(devices=3 * DEVICES, checks=[CHECK])
        await queue.add("large", DEVICES + 1)
        await queue.checked("large", "Pending", f"{DEVICES} of {DEVICES + 1} pods would get them")
        await queue.add("slow", 1)
        await queue.wait_bound("slow", 1)
        assert await queue.told("slow", "Evicted", "Exceeded the PodsReady timeout")
        await queue.go(await queue.wait_leaving("slow", 1))
        [waiting] = await queue.workloads("large")
        true = {each["type"] for each in waiting["status"]["conditions"] if each["status"] == "True"}
        assert true == {"QuotaReserved"}


async def test_a_job_that_waits_for_its_check_keeps_others_out_if_kueue_blocks_admission(
    client: Client, plane: ControlPlane, queue: Queue, admitting: Kueue
) -> None:
    """Kueue counts it among those whose pods are not ready."""
    blocking = {**IMPATIENT, "blockAdmission": True}
    async with admitting.with_settings(waitForPodsReady=blocking), answering(client, plane):
        await queue.open(devices=3 * DEVICES, checks=[CHECK])
        await queue.add("large", DEVICES + 1)
        await queue.checked("large", "Pending", f"{DEVICES} of {DEVICES + 1} pods would get them")
        await queue.add("small", 1)
        assert await queue.told(
            "small", "QuotaReserved", "waiting for all admitted workloads to be in PodsReady condition"
        )
        [large] = await queue.workloads("large")
        await client.patch(WORKLOADS, key_of(large), {"spec": {"active": False}})
        await queue.wait_bound("small", 1)


COHORT: Final[dict[str, Any]] = {"preemption": {"reclaimWithinCohort": "Any"}}


@pytest.mark.parametrize("checks", [(), (CHECK,)], ids=["without the check", "with the check"])
async def test_a_queue_gets_the_devices_back_that_another_one_of_its_cohort_has_borrowed(
    client: Client, plane: ControlPlane, queue: Queue, other_queue: Queue, checks: Sequence[str]
) -> None:
    async with answering(client, plane):
        await queue.open(devices=DEVICES - 4, checks=checks, cohortName=queue.name, **COHORT)
        await other_queue.open(devices=4, checks=checks, cohortName=queue.name, **COHORT)
        await queue.add("borrows", DEVICES - 1)
        borrowed = await queue.wait_bound("borrows", DEVICES - 1)
        await other_queue.add("owns", 4)
        assert await queue.told("borrows", "Evicted", "Preempted to accommodate a workload")
        assert len(await other_queue.bound("owns")) < 4
        await queue.go(await queue.wait_leaving("borrows", len(borrowed)))
        owned = await other_queue.wait_bound("owns", 4)
        assert await queue.told("borrows", "QuotaReserved", "insufficient unused quota")
        await other_queue.end(owned)
        await queue.wait_bound("borrows", DEVICES - 1)
        assert await findings(client, queue.name) == []
