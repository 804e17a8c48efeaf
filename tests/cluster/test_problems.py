"""Problems on a real control plane: five of them at once, each with its object, and Events on a pod and on a claim."""

from typing import Any

import httpx
import pytest

from extender.kube.api import ObjectKey
from extender.kube.resources import CLAIMS, PODS
from tests.kit.controlplane.client import WAIT_SECONDS, Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import GPUS, bound, by_name, event
from tests.kit.controlplane.service import Extender
from tests.kit.objects.manifests import claim, claim_spec, pod
from tests.kit.waiting import wait_for_answer

TAINT = {"key": "worn", "value": "yes", "effect": "NoSchedule"}


@pytest.fixture
async def troubled(client: Client, namespace: str, gpu: Driver) -> str:
    """A device in use gets a taint, a pool stays incomplete, and a node and a claim do not exist."""
    await gpu.publish("site-0", GPUS)
    await client.create(CLAIMS, claim(namespace, "held", claim_spec(device_class=gpu.name)))
    await client.create(PODS, pod(namespace, "holder", claims=[by_name("held")]))
    await bound(client, ObjectKey(namespace, "holder"))
    await gpu.publish("site-0", [{**each, "taints": [TAINT]} for each in GPUS], generation=2)
    await gpu.publish("site-1", GPUS, of=2)
    await gpu.publish("gone", GPUS)
    await client.create(PODS, pod(namespace, "lost", claims=[by_name("nowhere")]))
    return namespace


async def test_five_problems_at_once_are_told_with_their_objects(
    client: Client, site: Extender, troubled: str, gpu: Driver, nic: Driver
) -> None:
    """The class of the second driver selects nothing: the driver has published no slice."""
    expected = {
        ("tainted-in-use", f"{troubled}/held"),
        ("incomplete-pool", f"{gpu.name}/site-1"),
        ("gone-node", f"{gpu.name}/gone"),
        ("missing", f"{troubled}/lost"),
        ("unmatched-class", nic.name),
    }

    async def ask() -> list[dict[str, Any]]:
        async with httpx.AsyncClient(base_url=site.url, timeout=WAIT_SECONDS) as http:
            answer = await http.get("/problems", params={"namespace": troubled, "format": "json"})
            return list(answer.raise_for_status().json()["items"])

    def are_there(found: list[dict[str, Any]]) -> bool:
        return expected <= {(each["cause"], each["object"]) for each in found}

    found = await wait_for_answer(ask, are_there, "five problems", within=WAIT_SECONDS)
    assert all(each[field] for each in found for field in ("cost", "advice", "since"))
    of_pod = await event(client, troubled, "DRAProblem", about="claim nowhere does not exist")
    assert of_pod["regarding"]["name"] == "lost"
    of_claim = await event(client, troubled, "DRAProblem", about="worn=yes:NoSchedule")
    assert (of_claim["regarding"]["kind"], of_claim["regarding"]["name"]) == ("ResourceClaim", "held")
