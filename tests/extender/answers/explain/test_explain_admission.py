"""What the API server says of a pod's claims: asked where the watched objects do not tell, and told in explanations."""

from typing import Any

import pytest

from extender.answers.explain.claim_admission import NOTHING_ASKED, Admission, read_admission
from extender.answers.explain.explainer import Explainer
from extender.answers.explain.output import as_text
from extender.cluster.objects.pods import Pod
from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import EVENTS, NAMESPACES
from tests.kit.clusters import (
    GPU,
    Cluster,
    Object,
    claim,
    claim_template,
    client_of,
    local_slice,
    node,
    parsed,
    pod,
    request,
    snapshot_of,
    solver,
)
from tests.kit.servers.memory import Fault, Transport, memory_api

KEY = ObjectKey("ns", "p")
WORLD = (GPU, node("a"), local_slice("a"))
LABEL = "resource.kubernetes.io/admin-access"
FORBIDDEN = 'claims "p-gpu" is forbidden: exceeded quota: gpus'


def from_template(**status: Any) -> Object:
    made = pod("p")
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    made["status"] |= status
    return made


def watching(name: str = "watch") -> Object:
    asked = request()
    asked["exactly"]["adminAccess"] = True
    return claim(name, asked)


def event(name: str, text: str, uid: str = "uid-p", **times: Any) -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "ns", "name": name},
        "reason": "FailedResourceClaimCreation",
        "regarding": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": uid},
        "note": f"PodResourceClaim {text}",
        **times,
    }


async def asked(waiting: Pod, *events: Object, objects: tuple[Object, ...] = (), fault: Fault | None = None) -> Any:
    """What is known of a pod, and the calls that it took."""
    api = memory_api()
    for each in events:
        await api.create(EVENTS, each)
    transport = Transport(api)
    if fault is not None:
        transport.script("select events", fault)
    found = await read_admission(waiting, snapshot_of(*WORLD, claim_template(), *objects), transport)
    return found, transport.calls


@pytest.mark.parametrize(
    "known",
    [
        pod("p", "c"),
        from_template(resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "made"}]),
        from_template(phase="Succeeded"),
    ],
    ids=["claims by name", "claims that are made", "a pod that has ended"],
)
async def test_for_most_pods_nothing_is_asked(known: Object) -> None:
    assert await asked(parsed(known), objects=(claim("c"),)) == (NOTHING_ASKED, [])


async def test_the_latest_failure_of_the_pods_own_claim_counts() -> None:
    old = event("old", "gpu: create ResourceClaim: too early", deprecatedLastTimestamp="2026-01-01T00:00:00Z")
    new = event("new", f"gpu: {FORBIDDEN}", series={"count": 9, "lastObservedTime": "2026-01-03T00:00:00.000000Z"})
    others = event("others", "gpu: another pod's", uid="uid-q", eventTime="2026-01-04T00:00:00.000000Z")
    gone = event("gone", "fpga: is made by now", eventTime="2026-01-05T00:00:00.000000Z")
    found, calls = await asked(parsed(from_template()), new, old, others, gone)
    text = f"{FORBIDDEN} (Event FailedResourceClaimCreation, 2026-01-03T00:00:00.000000Z)"
    assert found == Admission({"gpu": text})
    assert calls == ["select events", "select resourcequotas"]


async def test_events_that_can_not_be_read_are_a_note() -> None:
    refused = Fault(refused=ApiError(403, "Forbidden", "events.events.k8s.io is forbidden"))
    found, _ = await asked(parsed(from_template()), fault=refused)
    snapshot = snapshot_of(*WORLD, claim_template(), from_template())
    text = as_text(Explainer.alone(snapshot, solver()).explain(snapshot.pods[KEY], admission=found))
    assert text.splitlines()[1:3] == [
        "Note: claim gpu is not made from its template yet.",
        "Note: what the API server says of the pod's claims can't be read: events.events.k8s.io is forbidden.",
    ]


async def test_a_claim_that_quota_keeps_from_being_made_is_explained_by_the_event() -> None:
    cluster = Cluster.of(*WORLD, claim_template(), from_template())
    note = event("e", f"gpu: {FORBIDDEN}", eventTime="2026-01-03T00:00:00.000000Z")
    await cluster.api.create(EVENTS, note)
    async with client_of(cluster.app()) as client:
        text = (await client.get("/explain/ns/p")).text
    assert text == (
        f"pod ns/p cannot be placed: claim gpu can't be made from its template: {FORBIDDEN} "
        "(Event FailedResourceClaimCreation, 2026-01-03T00:00:00.000000Z)\n"
    )


async def test_a_claim_that_the_controller_in_memory_can_not_make_is_explained_by_its_event() -> None:
    template = claim_template("gpu", watching()["spec"]["devices"]["requests"][0])
    cluster = Cluster.of(*WORLD, template, from_template())
    for _ in range(2):
        with pytest.raises(ApiError, match="adminAccess"):
            await cluster.settle()
    events = (await cluster.api.list(EVENTS)).items
    assert [each["reason"] for each in events] == ["FailedResourceClaimCreation"]
    async with client_of(cluster.app()) as client:
        text = (await client.get("/explain/ns/p")).text
    assert "claim gpu can't be made from its template: create ResourceClaim: ResourceClaim" in text
    assert f'needs the label {LABEL}: "true" on the namespace' in text


@pytest.mark.parametrize(("labels", "allowed"), [({}, False), ({LABEL: "false"}, False), ({LABEL: "true"}, True)])
async def test_admin_access_needs_the_label_of_the_namespace(labels: dict[str, str], *, allowed: bool) -> None:
    cluster = Cluster.of(*WORLD, watching(), pod("p", "watch"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": labels}}
    await cluster.api.create(NAMESPACES, namespace)
    async with client_of(cluster.app()) as client:
        text = (await client.get("/explain/ns/p")).text
    cause = f'claim watch asks for adminAccess, and namespace ns has no label {LABEL}: "true"'
    refused = f"pod ns/p cannot be placed: {cause}\nTo do: kubectl label namespace ns {LABEL}=true.\n"
    assert text.startswith("pod ns/p fits on 1 of 1 node: a" if allowed else refused)
