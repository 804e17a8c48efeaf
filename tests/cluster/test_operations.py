"""What the extender says of itself is what the API server has."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.cluster.objects.pods import WAITS
from extender.kube.api import ObjectKey, RawObject
from extender.kube.resources import CLAIMS, EVENTS, PODS, TEMPLATES
from extender.plugins.requeue.unserved import DELAY_SECONDS
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import GPUS, bound, by_template, held, rejection
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import pod, request, requests, template

pytestmark = pytest.mark.usefixtures("site")

SECONDS = 60
NAMES = ["pod-0", "pod-1", "pod-2"]

BINDINGS = ("api_requests_total", ("code", "201"), ("resource", "pods/binding"), ("verb", "create"))
STATUS_WRITES = ("api_requests_total", ("code", "200"), ("resource", "resourceclaims/status"), ("verb", "update"))
BINDS = ("verb_duration_seconds_count", ("code", "ok"), ("verb", "bind"))

Sample = tuple[str | tuple[str, str], ...]


async def scraped(verbs: Verbs) -> Mapping[Sample, float]:
    text = (await verbs.http.get("/metrics")).text
    return {
        (sample.name.removeprefix("dra_extender_"), *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def rows(verbs: Verbs, path: str) -> list[Any]:
    return list((await verbs.http.get(path, headers={"accept": "application/json"})).json()["items"])


async def test_metrics_and_tables_agree_with_what_the_api_server_holds(
    client: Client, verbs: Verbs, namespace: str, gpu: Driver
) -> None:
    before, binds = await scraped(verbs), await verbs.answered("bind")
    for node in ("site-0", "site-1"):
        await gpu.publish(node, GPUS)
    await client.create(TEMPLATES, template(namespace, "one", requests(request("gpu", gpu.name))))
    nodes = []
    for name in NAMES:  # one after the other: of two pods at a time, one may find its device taken when it is bound
        await client.create(PODS, pod(namespace, name, claims=[by_template("one")]))
        nodes.append(await bound(client, ObjectKey(namespace, name)))
    # Claims of tests before this one may still be going.
    most = len((await client.list(CLAIMS)).items)
    await verbs.wait_in_step(client)
    await verbs.wait_answered("bind", binds + len(NAMES))
    after = await scraped(verbs)
    least = len((await client.list(CLAIMS)).items)

    def change(sample: Sample) -> float:
        return after.get(sample, 0.0) - before.get(sample, 0.0)

    claims = (await client.list(CLAIMS, namespace)).items
    assert [change(sample) for sample in (BINDINGS, BINDS, STATUS_WRITES)] == [3, 3, 3]
    assert after["clashes_total",] == 0
    assert after["allocations_in_flight",] == 0
    assert least <= after["objects", ("kind", "resourceclaims")] <= most
    whole = ("driver", gpu.name), ("kind", "physical")
    states = {state: after["devices", *whole, ("state", state)] for state in ("allocated", "free")}
    assert states == {"allocated": 3, "free": 1}

    taken = await rows(verbs, f"/devices?driver={gpu.name}&state=allocated")
    assert [(each["pool"], each["device"], each["claims"]) for each in taken] == sorted(
        (pool, device, [f"{namespace}/{each['metadata']['name']}"]) for each in claims for pool, device in held(each)
    )
    decided = await rows(verbs, f"/decisions?namespace={namespace}&verb=bind")
    assert sorted((each["pod"], each["node"], each["error"]) for each in decided) == [
        (name, node, "") for name, node in zip(NAMES, nodes, strict=True)
    ]
    assert {each["ready"] for each in await rows(verbs, "/cluster")} == {True}


async def event(client: Client, namespace: str, reason: str, *, since: int) -> RawObject:
    """The first Event of a namespace with this reason after a revision."""
    async with asyncio.timeout(SECONDS):
        async for each in client.watch(EVENTS, ObjectKey(namespace, ""), since=since):
            if each.object.get("reason") == reason:
                return each.object
    raise AssertionError(f"the watch ended before an Event {reason}")


async def test_a_pod_that_fits_nowhere_is_told_why(client: Client, namespace: str, gpu: Driver) -> None:
    """In its condition by the scheduler, and in an Event that lasts longer than the scheduler's next words."""
    await gpu.publish("site-0", GPUS)
    await client.create(TEMPLATES, template(namespace, "nine", requests(request("gpu", gpu.name, count=9))))
    made = await client.create(PODS, pod(namespace, "pod", claims=[by_template("nine")]))
    since = int(made["metadata"]["resourceVersion"])
    reason = await rejection(client, ObjectKey(namespace, "pod"), about="request gpu")
    assert "not enough devices for request gpu" in reason or "not enough free devices for request gpu" in reason
    told = await event(client, namespace, "DevicesUnavailable", since=since)
    assert (told["regarding"]["uid"], told["type"]) == (made["metadata"]["uid"], "Warning")
    assert "no node has 9 free devices: at most" in told["note"]
    assert told["note"].endswith(f"(kubectl dra explain pod -n {namespace} says more)")
    assert ". What would help: " in told["note"]


def condition(obj: RawObject | None) -> tuple[str, str]:
    """Status and message of the condition of ours; empty if there is none."""
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return next(((each["status"], each["message"]) for each in conditions if each["type"] == WAITS), ("", ""))


async def test_a_pod_says_in_a_condition_why_it_waits_until_it_has_a_node(
    client: Client, namespace: str, gpu: Driver
) -> None:
    """In the words of the Event, which is gone after an hour. The condition comes a minute later."""
    await gpu.publish("site-0", GPUS[:1])
    await client.create(TEMPLATES, template(namespace, "two", requests(request("gpu", gpu.name, count=2))))
    made = await client.create(PODS, pod(namespace, "pod", claims=[by_template("two")]))
    key = ObjectKey(namespace, "pod")
    since = int(made["metadata"]["resourceVersion"])
    told = await event(client, namespace, "DevicesUnavailable", since=since)
    waits = await client.wait_for(PODS, key, lambda obj: condition(obj)[0] == "False", within=DELAY_SECONDS + SECONDS)
    assert condition(waits) == ("False", told["note"])
    await gpu.publish("site-0", GPUS, generation=2)
    has_node = await client.wait_for(PODS, key, lambda obj: condition(obj)[0] == "True")
    assert condition(has_node) == ("True", f"the pod has node {await bound(client, key)}")
