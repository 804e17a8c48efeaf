"""Components of the node end without warning, and the extender, too: no container loses its device."""

from pathlib import Path

from extender.kube.resources import CLAIMS, NODES, PODS, TEMPLATES
from tests.kit.controlplane.aftermath import losses, wait_settled
from tests.kit.controlplane.client import Client, key_of
from tests.kit.controlplane.scenario import bound, by_name, by_template, findings, rejection
from tests.kit.node.driver import GPU_DRIVER, GPUS, prepared_claims, variable
from tests.kit.node.node import NODE_KEY, Node, is_lost, wait_node_ready
from tests.kit.node.pods import RUN_SECONDS, devices_of, start_pod, wait_running
from tests.kit.objects.manifests import claim, claim_spec, template
from tests.kit.waiting import wait_until

ALL_DEVICES = dict(variable(each["name"]) for each in GPUS)


def running_probes() -> int:
    """The containers that run, by their processes: what the kubelet knows of them does not count."""
    lines = (path / "cmdline" for path in Path("/proc").iterdir() if path.name.isdigit())
    return sum(_read(line).startswith(b"/probe\0show") for line in lines)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class TestKubeletAndDriver:
    async def test_a_container_keeps_its_device(self, node: Node, client: Client, namespace: str) -> None:
        await client.create(TEMPLATES, template(namespace, "one-gpu"))
        before = await start_pod(client, namespace, "before", claims=[by_template("one-gpu")])
        seen = await devices_of(client, before)
        async with node.without_kubelet(client):
            assert running_probes() == 1
            meanwhile = await start_pod(client, namespace, "meanwhile", claims=[by_template("one-gpu")])
            await bound(client, meanwhile)

        found = await devices_of(client, meanwhile)
        assert len(found) == 1
        assert found != seen
        (container,) = (await wait_running(client, before))["status"]["containerStatuses"]
        assert container["restartCount"] == 0
        assert await devices_of(client, before) == seen
        assert await findings(client, namespace) == []

    async def test_a_pod_that_is_deleted_meanwhile_ends_when_they_are_back(
        self, node: Node, client: Client, namespace: str
    ) -> None:
        await client.create(TEMPLATES, template(namespace, "one-gpu"))
        key = await start_pod(client, namespace, "pod", claims=[by_template("one-gpu")])
        await devices_of(client, key)
        (made,) = (await client.list(CLAIMS, namespace)).items
        async with node.without_kubelet(client):
            await client.end(key)
        await client.wait_for(PODS, key, lambda found: found is None, within=RUN_SECONDS)
        assert made["metadata"]["uid"] not in prepared_claims(GPU_DRIVER)
        await client.wait_gone(CLAIMS, key_of(made))


async def test_the_extender_is_killed_while_pods_come(node: Node, client: Client, namespace: str) -> None:
    """The first pod is bound; the others are anywhere. Each container has one device, and none has another's."""
    await client.create(TEMPLATES, template(namespace, "one-gpu"))
    names = [f"pod-{number}" for number in range(len(GPUS))]
    pods = [await start_pod(client, namespace, name, claims=[by_template("one-gpu")]) for name in names[:-1]]
    await bound(client, pods[0])
    async with node.without_extender():
        pods.append(await start_pod(client, namespace, names[-1], claims=[by_template("one-gpu")]))
    seen = [await devices_of(client, key) for key in pods]
    assert [len(each) for each in seen] == [1] * len(GPUS)
    assert {name: value for each in seen for name, value in each.items()} == ALL_DEVICES
    await wait_settled(client, namespace, within=RUN_SECONDS)
    assert await findings(client, namespace) == []


async def test_a_device_of_a_lost_node_is_used_again_after_its_pod_was_deleted_by_force(
    node: Node, client: Client, namespace: str
) -> None:
    """The container runs on while nobody looks after it, and ends when its kubelet is back.

    The kubelet unprepares the claim later: it looks for claims without pods once a minute.
    """
    await client.create(TEMPLATES, template(namespace, "one-gpu"))
    await client.create(CLAIMS, claim(namespace, "all", claim_spec(len(GPUS))))
    lost = await start_pod(client, namespace, "lost", claims=[by_template("one-gpu")])
    assert len(await devices_of(client, lost)) == 1
    (made,) = (each for each in (await client.list(CLAIMS, namespace)).items if key_of(each).name != "all")
    async with node.without_kubelet(client):
        await client.wait_for(NODES, NODE_KEY, is_lost, within=RUN_SECONDS)
        await client.delete(PODS, lost)
        await client.wait_for(CLAIMS, key_of(made), lambda found: found is None, within=RUN_SECONDS)
        after = await start_pod(client, namespace, "after", claims=[by_name("all")])
        await rejection(client, after, about="untolerated taint")
        assert running_probes() == 1, "nobody has told the container to end"
        assert await losses(client, namespace) == []

    await wait_node_ready(client)
    assert await devices_of(client, after) == ALL_DEVICES
    wait_until(lambda: running_probes() == 1, "the first container has ended", within=RUN_SECONDS)
