"""`dra-extender node` on a real node: who may run on which CPUs, as the kernel says. The machine needs two CPUs."""

from collections.abc import AsyncIterator

import pytest_asyncio

from extender.kube.api import CLASSES, SLICES, TEMPLATES, ObjectKey
from extender.node import cpu_list
from extender.node.topology import read_machine
from tests.kit.controlplane.client import Client, connect
from tests.kit.controlplane.components import START_SECONDS
from tests.kit.controlplane.scenario import by_template
from tests.kit.node.compute import CPU_DRIVER, STATE_FILE, allowed_cpus, node_part
from tests.kit.node.driver import prepared_claims
from tests.kit.node.node import Node
from tests.kit.node.pods import RUN_SECONDS, end_pods, start_pod, wait_running
from tests.kit.objects.manifests import claim_spec, device_class, template
from tests.kit.process import Process, running
from tests.kit.waiting import wait_for_answer, wait_until

ALL = read_machine().numbers
OWN = max(ALL)
"""The last CPU: the only one that claims can have."""

SHARED = cpu_list.render(ALL - {OWN})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def compute(node: Node) -> AsyncIterator[Process]:
    process = node_part(node.plane, f"--reserved-cpus={SHARED}")
    async with connect(node.plane.access()) as client, running(process, within=START_SECONDS):
        await client.create(CLASSES, device_class(CPU_DRIVER, CPU_DRIVER))
        await wait_published(client)
        yield process
        await client.delete(CLASSES, ObjectKey("", CPU_DRIVER))


async def wait_published(client: Client) -> None:
    async def devices() -> list[str]:
        own = [each["spec"] for each in (await client.list(SLICES)).items if each["spec"]["driver"] == CPU_DRIVER]
        return [device["name"] for each in own for device in each["devices"]]

    await wait_for_answer(devices, lambda found: found == [f"cpu-{OWN}"], "the CPU is published", within=RUN_SECONDS)


async def start(client: Client, namespace: str, name: str, *, claims: bool = False) -> str:
    """The uid of a pod that runs."""
    key = await start_pod(client, namespace, name, claims=[by_template("one-cpu")] if claims else [])
    return str((await wait_running(client, key))["metadata"]["uid"])


def wait_allowed(uid: str, cpus: str) -> None:
    wait_until(lambda: allowed_cpus(uid) == {cpus}, f"pod {uid} may run on {cpus}", within=RUN_SECONDS)


async def test_a_pod_with_a_claim_has_its_cpu_alone_and_others_have_it_back_afterwards(
    compute: Process, client: Client, namespace: str
) -> None:
    assert compute.pid
    await client.create(TEMPLATES, template(namespace, "one-cpu", claim_spec(1, CPU_DRIVER)))
    plain = await start(client, namespace, "plain")
    assert allowed_cpus(plain) == {cpu_list.render(ALL)}
    own = await start(client, namespace, "own", claims=True)
    assert (allowed_cpus(own), allowed_cpus(plain)) == ({str(OWN)}, {SHARED})
    assert allowed_cpus(await start(client, namespace, "later")) == {SHARED}

    await end_pods(client, ObjectKey(namespace, "own"))
    wait_allowed(plain, cpu_list.render(ALL))
    assert allowed_cpus(await start(client, namespace, "last")) == {cpu_list.render(ALL)}


async def test_after_kills_of_node_part_and_kubelet_and_a_damaged_store_nobody_has_another_cpu(
    compute: Process, node: Node, client: Client, namespace: str
) -> None:
    await client.create(TEMPLATES, template(namespace, "one-cpu", claim_spec(1, CPU_DRIVER)))
    plain = await start(client, namespace, "plain")
    own = await start(client, namespace, "own", claims=True)
    for damage in (False, True):
        async with node.without_kubelet(client):
            compute.kill()
            if damage:
                STATE_FILE.write_bytes(STATE_FILE.read_bytes()[:-20])
        compute.start(within=START_SECONDS)
        await wait_published(client)
        assert allowed_cpus(await start(client, namespace, f"later-{damage}".lower())) == {SHARED}
        assert (allowed_cpus(own), allowed_cpus(plain)) == ({str(OWN)}, {SHARED})
    assert [path.name for path in STATE_FILE.parent.glob("*.damaged-*")] == ["node.state.damaged-1"]

    await end_pods(client, ObjectKey(namespace, "own"))
    wait_allowed(plain, cpu_list.render(ALL))
    wait_until(lambda: not prepared_claims(CPU_DRIVER), "the claim is unprepared", within=RUN_SECONDS)
