"""What the extender says of itself is what the API server has."""

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.cluster.api import CLAIMS, PODS, TEMPLATES, ObjectKey
from tests.cluster.harness.client import Client
from tests.cluster.harness.driver import Driver
from tests.cluster.harness.objects import pod, request, requests, template
from tests.cluster.harness.scenario import GPUS, bound, by_template, held
from tests.cluster.harness.verbs import Verbs

pytestmark = pytest.mark.usefixtures("site")

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
    for name in NAMES:
        await client.create(PODS, pod(namespace, name, claims=[by_template("one")]))
    nodes = [await bound(client, ObjectKey(namespace, name)) for name in NAMES]
    await verbs.wait_in_step(client)
    await verbs.wait_answered("bind", binds + len(NAMES))
    after = await scraped(verbs)

    def change(sample: Sample) -> float:
        return after.get(sample, 0.0) - before.get(sample, 0.0)

    claims = (await client.list(CLAIMS, namespace)).items
    assert [change(sample) for sample in (BINDINGS, BINDS, STATUS_WRITES)] == [3, 3, 3]
    assert after["clashes_total",] == 0
    assert after["allocations_in_flight",] == 0
    assert after["objects", ("kind", "resourceclaims")] == len((await client.list(CLAIMS)).items)
    states = {state: after["devices", ("driver", gpu.name), ("state", state)] for state in ("allocated", "free")}
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
