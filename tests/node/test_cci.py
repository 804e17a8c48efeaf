"""A CCI driver in a process of its own on a real node: the claim of KEP-3675 has its cores, and the driver says which.

The machine needs two CPUs. So the numbers of cores are smaller than in the text.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from extender.cluster.compute_claims import with_cores
from extender.kube.api import ObjectKey
from extender.kube.resources import TEMPLATES
from extender.node import cpu_list
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.components import START_SECONDS
from tests.kit.controlplane.scenario import by_template
from tests.kit.node.cci_driver import NAME, heard, recording_driver
from tests.kit.node.compute import (
    ALL,
    CCI,
    CPU_DRIVER,
    OWN,
    SHARED,
    allowed_cpus,
    running_compute,
    start_with_cpus,
    wait_allowed,
    wait_program,
    wait_published,
)
from tests.kit.node.driver import prepared_claims
from tests.kit.node.node import Node
from tests.kit.node.pods import RUN_SECONDS, end_pods, start_pod
from tests.kit.node.sandbox import LOGS_INSIDE
from tests.kit.process import Process, free_port, running
from tests.kit.waiting import wait_for_answer, wait_until

PARAMETERS = {
    "cores": ["1", "1"],
    "device attributes": ["NUMA-DEVICE-AFFINITY-REQUIRED", "NO-DEVICE-AFFINITY"],
    "mem attributes": ["NUMA-MEM-AFFINITY-BIND-REQUIRED", "NO-MEM-AFFINITY"],
    "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-PREFERRED"], ["SHARED"]],
}
"""Those of the text, with fewer cores."""

METRICS_PORT = free_port()
ADMIT, ADD, REMOVE = "CCIAdmit", "CCIAddContainerResource", "CCIRemoveContainerResource"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def compute(node: Node) -> AsyncIterator[Process]:
    async with running_compute(node, f"--metrics-port={METRICS_PORT}") as process:
        yield process


@pytest.fixture
async def asked(tmp_path: Path) -> Path:
    """The file of the driver."""
    return tmp_path / "asked"


@pytest.fixture
async def driver(compute: Process, asked: Path) -> AsyncIterator[Process]:
    assert compute.pid
    process = recording_driver(CCI, asked, LOGS_INSIDE / "cci-driver.log")
    async with running(process, within=START_SECONDS):
        yield process


async def make_template(client: Client, namespace: str, **more: Any) -> None:
    """The claim template that `dra-extender convert` makes of the text's ConfigMap."""
    config = json.dumps({**PARAMETERS, **more})
    metadata = {"name": "cores", "namespace": namespace}
    text = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.json": config}}
    await client.create(TEMPLATES, dict(with_cores(text)))


def metrics() -> list[str]:
    """The lines that the node part exports."""
    return httpx.get(f"http://127.0.0.1:{METRICS_PORT}/metrics", trust_env=False).text.splitlines()


def methods(asked: Path) -> list[str]:
    return [each["method"] for each in heard(asked)]


def wait_asked(asked: Path, *expected: str) -> None:
    wait_until(lambda: methods(asked) == [*expected], f"the driver is asked {expected}", within=RUN_SECONDS)


async def wait_told(client: Client, pod: ObjectKey, words: str) -> None:
    """Wait until an Event of a pod has some words."""

    async def messages() -> list[str]:
        events = (await client.read(f"/api/v1/namespaces/{pod.namespace}/events"))["items"]
        return [each["message"] for each in events if each["involvedObject"]["name"] == pod.name]

    told = f"an Event says {words}"
    await wait_for_answer(messages, lambda found: any(words in each for each in found), told, within=RUN_SECONDS)


async def test_the_claim_of_the_text_without_a_driver_has_its_core_alone(
    compute: Process, client: Client, namespace: str
) -> None:
    assert compute.pid
    await make_template(client, namespace)
    plain = await start_with_cpus(client, namespace, "plain")
    own = await start_with_cpus(client, namespace, "own", "cores")
    assert (allowed_cpus(own), allowed_cpus(plain)) == ({str(OWN)}, {SHARED})
    await end_pods(client, ObjectKey(namespace, "own"))
    wait_allowed(plain, cpu_list.render(ALL))


async def test_a_driver_is_asked_in_the_order_of_the_text_and_its_answer_counts(
    driver: Process, client: Client, namespace: str, asked: Path
) -> None:
    assert driver.pid
    await make_template(client, namespace, **{"cci driver": NAME})
    plain = await start_with_cpus(client, namespace, "plain")
    own = await start_with_cpus(client, namespace, "own", "cores")
    assert (allowed_cpus(own), allowed_cpus(plain)) == ({str(OWN)}, {SHARED})
    admit, add = heard(asked)
    assert (admit["method"], admit["pod"], admit["available"], admit["gives"]) == (ADMIT, own, [OWN], [OWN])
    assert (add["method"], add["container"]) == (ADD, "main")
    assert own in add["cgroup"].replace("_", "-")

    await end_pods(client, ObjectKey(namespace, "own"))
    wait_allowed(plain, cpu_list.render(ALL))
    wait_asked(asked, ADMIT, ADD, REMOVE)
    assert heard(asked)[2]["container_id"] == add["container_id"]
    lines = metrics()
    assert f'cci_manager_allocation_requests_total{{driver="{NAME}"}} 1.0' in lines
    assert "cci_manager_available_cpus 1.0" in lines


async def test_after_kills_of_all_three_everything_is_as_before_and_cores_come_back(
    compute: Process, driver: Process, node: Node, client: Client, namespace: str, asked: Path
) -> None:
    await make_template(client, namespace, **{"cci driver": NAME})
    plain = await start_with_cpus(client, namespace, "plain")
    own = await start_with_cpus(client, namespace, "own", "cores")
    async with node.without_kubelet(client):
        compute.kill()
        driver.kill()
    compute.start(within=START_SECONDS)
    await wait_published(client)
    assert allowed_cpus(await start_with_cpus(client, namespace, "later")) == {SHARED}
    assert (allowed_cpus(own), allowed_cpus(plain)) == ({str(OWN)}, {SHARED})

    await end_pods(client, ObjectKey(namespace, "own"))
    wait_allowed(plain, cpu_list.render(ALL))
    wait_until(lambda: not prepared_claims(CPU_DRIVER), "the claim is unprepared", within=RUN_SECONDS)
    assert methods(asked) == [ADMIT, ADD], "the driver is away"
    driver.start(within=START_SECONDS)
    wait_asked(asked, ADMIT, ADD, REMOVE)


async def test_a_pod_waits_for_its_driver_and_other_pods_do_not(
    driver: Process, client: Client, namespace: str, asked: Path
) -> None:
    await make_template(client, namespace, **{"cci driver": NAME})
    with driver.paused():
        own = await start_pod(client, namespace, "own", claims=[by_template("cores")])
        await wait_told(client, own, f"CCI driver {NAME}")
        await start_with_cpus(client, namespace, "plain")
    uid = await wait_program(client, own)
    assert allowed_cpus(uid) == {str(OWN)}
    assert methods(asked)[-2:] == [ADMIT, ADD]
