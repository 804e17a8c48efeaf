"""Device preemption with grace periods that containers use to their end."""

from collections.abc import AsyncIterator

import pytest

from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, PODS, TEMPLATES
from tests.kit.controlplane.aftermath import check_preempted
from tests.kit.controlplane.client import PRIORITIES, Client, key_of
from tests.kit.controlplane.scenario import by_template, held, rejection
from tests.kit.node.driver import GPUS, variable
from tests.kit.node.node import Node
from tests.kit.node.pods import RUN_SECONDS, devices_of, start_pod, wait_running
from tests.kit.objects.manifests import is_bound, priority_class, template

GRACE_SECONDS = 2


@pytest.fixture
async def important(client: Client, namespace: str) -> AsyncIterator[str]:
    """A priority class above that of other pods."""
    await client.create(PRIORITIES, priority_class(namespace, 1000))
    yield namespace
    await client.delete(PRIORITIES, ObjectKey("", namespace))


def is_terminating(pod: RawObject) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


async def test_a_pod_gets_the_device_when_the_victims_grace_period_is_over(
    node: Node, client: Client, namespace: str, important: str
) -> None:
    await client.create(TEMPLATES, template(namespace, "one-gpu"))
    low = [
        await start_pod(
            client,
            namespace,
            f"low-{number}",
            claims=[by_template("one-gpu")],
            stays=True,
            terminationGracePeriodSeconds=GRACE_SECONDS,
        )
        for number in range(len(GPUS))
    ]
    for key in low:
        await wait_running(client, key)

    wanted = await start_pod(client, namespace, "wanted", claims=[by_template("one-gpu")], priorityClassName=important)
    await rejection(client, wanted, about="waiting for devices of terminating pods")
    (victim,) = filter(is_terminating, (await client.list(PODS, namespace)).items)
    assert victim["metadata"]["deletionGracePeriodSeconds"] == GRACE_SECONDS
    assert not is_bound(await client.get(PODS, wanted))
    ((_, device),) = held(await client.get(CLAIMS, claim_of(victim)))

    await client.wait_for(PODS, key_of(victim), lambda found: found is None, within=RUN_SECONDS)
    assert await devices_of(client, wanted) == dict([variable(device)])
    runs = await wait_running(client, wanted)
    (container,) = runs["status"]["containerStatuses"]
    assert container["state"]["running"]["startedAt"] >= victim["metadata"]["deletionTimestamp"], "a time to end at"
    assert len((await client.list(PODS, namespace)).items) == len(GPUS), "nobody else was evicted"
    await check_preempted(client, namespace, node.extender)


def claim_of(pod: RawObject) -> ObjectKey:
    """The claim that was made for a pod from its only template."""
    (made,) = pod["status"]["resourceClaimStatuses"]
    return ObjectKey(pod["metadata"]["namespace"], made["resourceClaimName"])
