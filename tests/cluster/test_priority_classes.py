"""Priorities of new pods: the real admission plugin, with the cases that our own rules pass."""

from typing import Any, Final

import pytest

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import PODS, PRIORITY_CLASSES
from tests.cluster.priority_cases import CASES, CLASSES, DEFAULT, Case
from tests.kit.controlplane.client import Client
from tests.kit.controlplane.driver import Driver
from tests.kit.controlplane.scenario import by_name
from tests.kit.controlplane.verbs import Verbs
from tests.kit.objects.manifests import pod
from tests.kit.waiting import wait_for_answer

_REFUSALS: Final = {
    "priorityClassName": "no PriorityClass with name",
    "priority": "the integer value of priority",
    "preemptionPolicy": "the string value of PreemptionPolicy",
}
"""In the words of the API server, by the field that is wrong."""

_SECONDS: Final = 20.0


async def admitted(client: Client, namespace: str, spec: dict[str, Any]) -> tuple[str, int, str] | str:
    """What a new pod gets, or the refusal. The pod is only tried."""
    new: RawObject = {**pod(namespace, "tried"), "apiVersion": "v1", "kind": "Pod"}
    try:
        found = (await client.try_out(PODS, {**new, "spec": {**new["spec"], **spec}}))["spec"]
    except ApiError as error:
        return error.message
    return found.get("priorityClassName", ""), found["priority"], found["preemptionPolicy"]


async def check(client: Client, namespace: str, case: Case) -> None:
    """The API server learns of new classes a moment later."""
    words = _REFUSALS.get(case.refused, "")
    await wait_for_answer(
        lambda: admitted(client, namespace, case.spec),
        lambda found: words in found if isinstance(found, str) and words else found == case.got,
        f"{case}",
        within=_SECONDS,
    )


@pytest.mark.parametrize("default", [False, True], ids=["no default", "a default"])
async def test_a_real_api_server_admits_in_the_same_way(client: Client, namespace: str, *, default: bool) -> None:
    classes = (*CLASSES, DEFAULT) if default else CLASSES
    for each in classes:
        await client.create(PRIORITY_CLASSES, each)
    try:
        for case in CASES.values():
            if case.default is default:
                await check(client, namespace, case)
    finally:
        for each in classes:
            await client.delete(PRIORITY_CLASSES, ObjectKey("", each["metadata"]["name"]))
        await check(client, namespace, Case({}, ("", 0, "PreemptLowerPriority")))


async def test_what_if_and_explain_know_the_classes_of_the_cluster(
    verbs: Verbs, namespace: str, important: str, gpu: Driver
) -> None:
    """With the rights of deploy/rbac.yaml."""
    requests = [{"name": "gpu", "deviceClassName": gpu.name}]
    new = {"namespace": namespace, "name": "new", "priorityClassName": important, "requests": requests}
    reply = await verbs.http.post("/what-if", json={"pods": [new]}, headers={"accept": "application/json"})
    assert [(each["pod"], each["priority"]) for each in reply.raise_for_status().json()["pods"]] == [
        (f"{namespace}/new", 1000)
    ]
    unknown = {**pod(namespace, "new"), "apiVersion": "v1", "kind": "Pod"}
    unknown["spec"] |= {"priorityClassName": f"no-{important}", "resourceClaims": [by_name("c")]}
    text = (await verbs.http.post("/explain", json=unknown)).raise_for_status().text
    assert f"the pod is not made: spec.priorityClassName: there is no PriorityClass no-{important}" in text
