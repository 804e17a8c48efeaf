"""dra-extender as the chart installs it, on real nodes, while pods come and go: what operators do to it.

The tests share one cluster and go on from each other, in this order.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import NODES, PODS, SLICES, TEMPLATES
from tests.cluster.rendering import chart
from tests.installed.callers import EXPANDER_SECRET, SECRETS, callers, certificate, expand, rotate
from tests.installed.conftest import counted
from tests.installed.load import Load
from tests.installed.replicas import (
    LEASE,
    Monitor,
    errors_of_schedulers,
    expected_refusals,
    leader,
    lines_of,
    metrics_of,
    ready,
    refusals,
    warnings_of,
)
from tests.installed.rights import credentials, refused, requests_of, unused
from tests.installed.site import (
    AUDIT,
    MACHINES,
    NAMESPACE,
    NODE_ACCOUNT,
    ROLLOUT_SECONDS,
    TEMPLATE,
    TOKEN_SECONDS,
    WORKLOAD,
    Site,
    one_of,
    with_image,
)
from tests.kit.certificates import Authority
from tests.kit.controlplane.aftermath import wait_settled
from tests.kit.controlplane.binaries import find_expander_client
from tests.kit.controlplane.client import LEASES, Client, key_of
from tests.kit.controlplane.scenario import by_template
from tests.kit.node.building import REPOSITORY, TAGS
from tests.kit.node.compute import CPU_DRIVER, OWN, SHARED, allowed_cpus, wait_program
from tests.kit.node.machine import Machine
from tests.kit.node.pods import devices_of, end_pods, start_pod
from tests.kit.objects.manifests import pod as a_pod
from tests.kit.objects.manifests import template
from tests.kit.waiting import pause, wait_for_answer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("monitor")]

FIRST, SECOND = TAGS
Figures = dict[str, str]
CONSOLE = ("/", "/console/fleet")
VERBS_PORT, NODE_METRICS = 8888, 9465
LEEWAY_SECONDS = 60
"""An API server takes a token for so long after its end."""


@asynccontextmanager
async def check_pods_go_on(what: str, load: Load, figures: Figures) -> AsyncIterator[None]:
    """Within, something happens. Pods have to go on coming, running and going, then and after it."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    await load.goes_on()
    pods = load.since(began)
    waits = sorted(each.bound - each.made for each in pods if each.bound)
    figures[what] = (
        f"{took:.0f} s; {sum(bool(each.ran) for each in pods)} pods ran, "
        f"until bound: median {waits[len(waits) // 2]:.1f} s, longest {waits[-1]:.1f} s"
    )
    assert load.lost() == []
    assert load.twice == []


async def test_a_pod_has_its_device(site: Site, load: Load, figures: Figures) -> None:
    """Two replicas are ready, and serve."""
    assert load.fates
    async with check_pods_go_on("a pod", load, figures):
        key = await start_pod(site.client, WORKLOAD, "first", claims=[by_template(TEMPLATE)])
        assert len(await devices_of(site.client, key)) == 1
        await end_pods(site.client, key)
    pods = await site.replicas()
    assert len(ready(pods)) == 2
    assert len({each["spec"]["nodeName"] for each in pods}) == 2, "each has a machine of its own"


async def test_the_image_runs_as_any_user_and_writes_nothing(site: Site) -> None:
    """Another user than that of the chart, with no right and no file to write; and no shell is there."""

    async def end_of(name: str, **container: object) -> RawObject:
        limits = {
            "runAsUser": 1_234_567,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        image = {
            "name": "main",
            "image": f"{REPOSITORY}:{FIRST}",
            "imagePullPolicy": "Never",
            "securityContext": limits,
        }
        made = a_pod(
            WORKLOAD,
            name,
            scheduler="default-scheduler",
            containers=[image | container],
            restartPolicy="Never",
            automountServiceAccountToken=False,
        )
        await site.client.create(PODS, made)

        def has_ended(found: RawObject | None) -> bool:
            return (found or {}).get("status", {}).get("phase") in ("Succeeded", "Failed")

        found = await site.client.wait_for(PODS, ObjectKey(WORKLOAD, name), has_ended, within=ROLLOUT_SECONDS)
        assert found
        await end_pods(site.client, key_of(found))
        (status,) = found["status"]["containerStatuses"]
        ended: RawObject = status["state"]["terminated"]
        return ended

    assert (await end_of("any-user", args=["--version"]))["exitCode"] == 0
    assert "no such file" in (await end_of("shell", command=["/bin/sh"]))["message"]


async def test_the_leader_is_told_to_end(site: Site, load: Load, figures: Figures) -> None:
    before = await leader(site)
    async with check_pods_go_on("the leader is deleted", load, figures):
        await site.client.end(ObjectKey(NAMESPACE, before))
        await wait_for_another_leader(site, before)
        await site.rolled_out()


async def test_a_second_image_is_rolled_out(site: Site, load: Load, figures: Figures) -> None:
    async with check_pods_go_on("rolling upgrade", load, figures):
        await site.apply(**with_image(SECOND))
    assert await images(site) == {f"{REPOSITORY}:{SECOND}"}


async def test_the_first_image_is_rolled_back_to(site: Site, load: Load, figures: Figures) -> None:
    async with check_pods_go_on("rollback", load, figures):
        await site.roll_back()
    assert await images(site) == {f"{REPOSITORY}:{FIRST}"}


async def test_a_replica_is_evicted_and_the_budget_keeps_the_other(site: Site, load: Load, figures: Figures) -> None:
    before = await leader(site)
    (other,) = {*ready(await site.replicas())} - {before}
    async with check_pods_go_on("the leader is evicted", load, figures):
        await site.client.evict(ObjectKey(NAMESPACE, before))
        with pytest.raises(ApiError, match="disruption budget"):
            await site.client.evict(ObjectKey(NAMESPACE, other))
        await wait_for_another_leader(site, before)
        await site.rolled_out()


async def test_a_machine_is_drained(site: Site, load: Load, figures: Figures) -> None:
    """That of the leader: all of its pods are evicted, as kubectl drain does it."""
    before = await leader(site)
    node = (await site.client.get(PODS, ObjectKey(NAMESPACE, before)))["spec"]["nodeName"]
    async with check_pods_go_on("drain of the leader's node", load, figures):
        await site.client.patch(NODES, ObjectKey("", node), {"spec": {"unschedulable": True}})
        await wait_for_answer(
            lambda: evict_all(site.client, node), lambda left: not left, "the node is empty", within=120
        )
        await wait_for_another_leader(site, before)
        await site.rolled_out()
    await site.client.patch(NODES, ObjectKey("", node), {"spec": {"unschedulable": None}})


async def test_certificates_are_rotated(site: Site, load: Load, figures: Figures) -> None:
    """The port for callers off the node shows a certificate of another authority, without a restart."""
    old, new = Authority("old"), Authority("new")
    await site.client.create(SECRETS, certificate(old))
    await site.apply(api={"enabled": True})
    caller, pods = await callers(site), await site.replicas()
    for path in CONSOLE:
        assert [await caller.ask(pod, old, path=path) for pod in pods] == ["200"] * 2, path
    async with check_pods_go_on("rotated certificates", load, figures), caller.calling(pods, old, new):
        await rotate(site, new)

        async def with_new() -> list[str]:
            return [await caller.ask(pod, new) for pod in pods]

        await wait_for_answer(with_new, lambda found: found == ["200"] * 2, "the new certificates", within=120)
    assert {*caller.answers} == {"200"}
    assert [each["restartCount"] for pod in await site.replicas() for each in containers_of(pod)] == [0] * 6


async def test_the_expander_answers_a_cluster_autoscaler(
    site: Site, load: Load, figures: Figures, tmp_path: Path
) -> None:
    """On its own port; the verbs of schedulers are on loopback alone."""
    authority = Authority()
    await site.client.create(SECRETS, certificate(authority, EXPANDER_SECRET))
    async with check_pods_go_on("the port for expanders is opened", load, figures):
        await site.apply(expander={"enabled": True, "anonymous": True})
    node = await site.client.get(NODES, ObjectKey("", Machine(1).name))
    pending = a_pod(WORKLOAD, "more", claims=[by_template(TEMPLATE)])
    asked = {"options": [{"id": "group", "count": 1, "pods": [pending]}], "nodes": {"group": node}}
    for pod in await site.replicas():
        answer = await expand(find_expander_client(os.environ), tmp_path, pod, authority, asked)
        assert [each["id"] for each in answer["options"]] == ["group"]
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(pod["status"]["podIP"], VERBS_PORT)


async def test_the_node_part_gives_a_pod_a_cpu_for_itself(site: Site, load: Load, figures: Figures) -> None:
    """As the chart renders it: from the image of dra-extender, with an account, rights and mounts of its own."""
    for number in range(1, MACHINES + 1):
        labels = {"metadata": {"labels": {"dra-extender.dev/compute": "true"}}}
        await site.client.patch(NODES, ObjectKey("", Machine(number).name), labels)
    async with check_pods_go_on("the node part is installed", load, figures):
        await site.apply(node={"enabled": True, "reservedCpus": SHARED})

        async def published() -> int:
            return sum(each["spec"]["driver"] == CPU_DRIVER for each in (await site.client.list(SLICES)).items)

        await wait_for_answer(published, lambda found: found == MACHINES, "slices with CPUs", within=ROLLOUT_SECONDS)
    await site.client.create(TEMPLATES, template(WORKLOAD, "one-cpu", one_of(CPU_DRIVER)))
    key = await start_pod(site.client, WORKLOAD, "own-cpu", claims=[by_template("one-cpu")])
    assert allowed_cpus(await wait_program(site.client, key)) == {str(OWN)}
    await end_pods(site.client, key)
    metrics = [await metrics_of(each, NODE_METRICS) for each in await site.replicas("dra-extender-node")]
    assert len(metrics) == MACHINES
    assert all("cci_manager_available_cpus 1.0" in each for each in metrics)


async def test_tokens_are_renewed_before_they_end(site: Site, load: Load, figures: Figures) -> None:
    """When the tokens with which the replicas began have ended, each replica goes on with others."""
    pods = await site.replicas()
    began, restarted = [datetime.fromisoformat(each["status"]["startTime"]) for each in pods], restarts(pods)
    async with check_pods_go_on("tokens are renewed", load, figures):
        end = max(began) + timedelta(seconds=TOKEN_SECONDS + LEEWAY_SECONDS + 15)
        await pause((end - datetime.now(UTC)).total_seconds())
    tokens = {each["metadata"]["name"]: len(credentials(AUDIT, each["metadata"]["name"])) for each in pods}
    figures["tokens of each replica"] = ", ".join(map(str, tokens.values()))
    assert min(tokens.values()) >= 2
    assert restarts(await site.replicas()) == restarted


def restarts(pods: list[RawObject]) -> dict[str, list[int]]:
    """How often each container was started again, by the pod's name."""
    return {pod["metadata"]["name"]: [each["restartCount"] for each in containers_of(pod)] for pod in pods}


async def test_nothing_is_lost_and_nothing_was_refused(
    site: Site, load: Load, monitor: Monitor, figures: Figures
) -> None:
    await load.stop()
    await wait_settled(site.client, WORKLOAD, within=60)
    figures["pods in all"] = f"{len(load.fates)}; taken by the drain: {sum(each.taken for each in load.fates.values())}"
    calls, errors = (monitor.total(f"verb_duration_seconds_count.*{code}") for code in ("", 'code="error"'))
    figures["calls of schedulers"] = f"{calls:.0f}, of which {errors:.0f} failed"
    figures["of these, by cause"] = ", ".join(f"{cause}: {number}" for cause, number in expected_refusals().items())
    figures["warnings of dra-extender"] = counted(warnings_of("dra-extender"))
    figures["warnings of the node part"] = counted(warnings_of("node"))
    figures["errors of kube-scheduler"] = counted(errors_of_schedulers())
    assert load.lost() == []
    assert load.twice == []
    assert refusals() == []
    assert monitor.total("clashes_total|lost_claims_total") == 0


async def test_no_right_is_missing(site: Site, figures: Figures) -> None:
    figures["requests of dra-extender and its scheduler"] = str(sum(1 for _ in requests_of(AUDIT)))
    figures["rights that were not used"] = ", ".join(map(str, unused(chart(site.helm, site.values), AUDIT)))
    unused_by_nodes = unused(chart(site.helm, site.values), AUDIT, NODE_ACCOUNT)
    figures["rights that the node part did not use"] = ", ".join(map(str, unused_by_nodes))
    assert refused(AUDIT) == refused(AUDIT, NODE_ACCOUNT) == []
    for container in ("config-check", "dra-extender", "kube-scheduler", "node"):
        assert [line for line in lines_of(container) if re.search("forbidden|unauthorized", line, re.IGNORECASE)] == []


def containers_of(pod: RawObject) -> list[RawObject]:
    """The statuses of all containers of a pod."""
    status = pod["status"]
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


async def images(site: Site) -> set[str]:
    """The images of dra-extender that run."""
    return {each["image"] for pod in await site.replicas() for each in pod["spec"]["initContainers"]}


async def wait_for_another_leader(site: Site, before: str) -> None:
    """Wait until the scheduler of another pod leads."""

    def is_another(lease: RawObject | None) -> bool:
        holder = (lease or {}).get("spec", {}).get("holderIdentity") or ""
        return bool(holder) and not holder.startswith(f"{before}_")

    await site.client.wait_for(LEASES, LEASE, is_another, within=ROLLOUT_SECONDS)


async def evict_all(client: Client, node: str) -> list[str]:
    """Evict the pods of a node that are not ending; the names of those that are there."""
    pods = [each for each in (await client.list(PODS)).items if each["spec"].get("nodeName") == node]
    for pod in pods:
        if not pod["metadata"].get("deletionTimestamp"):
            try:
                await client.evict(key_of(pod))
            except ApiError as error:
                # Its budget allows it later, or it is gone.
                if error.status not in (404, 429):
                    raise
    return [pod["metadata"]["name"] for pod in pods]
