"""`dra-extender node` on a real node: who may run on which CPUs, as the kernel says. The machine needs two CPUs."""

from collections.abc import AsyncIterator

import pytest_asyncio

from extender.kube.api import ObjectKey
from extender.kube.resources import TEMPLATES
from extender.node import cpu_list
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import START_SECONDS
from tests.kit.node.compute import (
    ALL,
    CPU_DRIVER,
    OWN,
    SHARED,
    STATE_FILE,
    allowed_cpus,
    running_compute,
    start_with_cpus,
    wait_allowed,
    wait_published,
)
from tests.kit.node.driver import prepared_claims
from tests.kit.node.node import Node
from tests.kit.node.pods import RUN_SECONDS, end_pods
from tests.kit.objects.manifests import claim_spec, template
from tests.kit.process import Process
from tests.kit.waiting import wait_until


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def compute(node: Node) -> AsyncIterator[Process]:
    async with running_compute(node) as process:
        yield process


async def test_a_pod_with_a_claim_has_its_cpu_alone_and_others_have_it_back_afterwards(
    compute: Process, client: Client, namespace: str
) -> None:
    assert compute.pid
    await client.create(TEMPLATES, template(namespace, "one-cpu", claim_spec(1, CPU_DRIVER)))
    plain = await start_with_cpus(client, namespace, "plain")
    assert allowed_cpus(plain) == {cpu_list.render(ALL)}
    own = await start_with_cpus(client, namespace, "own", "one-cpu")
    assert (allowed_cpus(own), allowed_cpus(plain)) == ({str(OWN)}, {SHARED})
    assert allowed_cpus(await start_with_cpus(client, namespace, "later")) == {SHARED}

    await end_pods(client, ObjectKey(namespace, "own"))
    wait_allowed(plain, cpu_list.render(ALL))
    assert allowed_cpus(await start_with_cpus(client, namespace, "last")) == {cpu_list.render(ALL)}


async def test_after_kills_of_node_part_and_kubelet_and_a_damaged_store_nobody_has_another_cpu(
    compute: Process, node: Node, client: Client, namespace: str
) -> None:
    await client.create(TEMPLATES, template(namespace, "one-cpu", claim_spec(1, CPU_DRIVER)))
    plain = await start_with_cpus(client, namespace, "plain")
    own = await start_with_cpus(client, namespace, "own", "one-cpu")
    for damage in (False, True):
        async with node.without_kubelet(client):
            compute.kill()
            if damage:
                STATE_FILE.write_bytes(STATE_FILE.read_bytes()[:-20])
        compute.start(within=START_SECONDS)
        await wait_published(client)
        assert allowed_cpus(await start_with_cpus(client, namespace, f"later-{damage}".lower())) == {SHARED}
        assert (allowed_cpus(own), allowed_cpus(plain)) == ({str(OWN)}, {SHARED})
    assert [path.name for path in STATE_FILE.parent.glob("*.damaged-*")] == ["node.state.damaged-1"]

    await end_pods(client, ObjectKey(namespace, "own"))
    wait_allowed(plain, cpu_list.render(ALL))
    wait_until(lambda: not prepared_claims(CPU_DRIVER), "the claim is unprepared", within=RUN_SECONDS)
