"""Explanations over HTTP: who gets what, in which form, and what is said of mistakes."""

import asyncio
from typing import Any

import orjson
import pytest
import yaml
from httpx import AsyncClient

from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import unknown_pod
from extender.answers.explain.pod_claims import NOTHING_ASKED, Admission, read_admission
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.config.settings import Settings
from extender.config.sources import load
from extender.faces.assembly import Extender, make_extender
from extender.faces.http.bodies import FREE_BYTES
from extender.kube.api import ApiError, Event, EventType, ObjectKey
from extender.kube.resources import EVENTS, NAMESPACES, PODS, PRIORITY_CLASSES
from extender.tools.faults import RefusedError
from tests.cluster.priority_cases import CLASSES, HIGH, PATIENT
from tests.extender.answers.explain.http_scenes import IN_USE
from tests.kit.clusters import (
    GPU,
    Cluster,
    Object,
    app_over,
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
    state_of,
)
from tests.kit.servers.memory import Fault, Transport, memory_api
from tests.kit.virtualtime import run as run_in_virtual_time

OBJECTS = IN_USE
JSON = {"accept": "application/json"}


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "text/plain"),
        ("application/json", "application/json"),
        ("text/plain, application/json", "text/plain"),
        ("application/json;q=0.9, text/plain", "text/plain"),
        ("application/json;q=0", "text/plain"),
        ("text/html", "text/plain"),
    ],
)
async def test_text_for_terminals_and_json_where_it_is_accepted(client: AsyncClient, accept: str, kind: str) -> None:
    reply = await client.get("/explain/ns/p", headers={"accept": accept})
    assert reply.status_code == 200
    assert reply.headers["content-type"].partition(";")[0] == kind
    assert "pod ns/p fits nowhere: all 2 devices are in use" in reply.text


async def test_both_forms_say_the_same(client: AsyncClient) -> None:
    text = (await client.get("/explain/ns/p")).text
    document = (await client.get("/explain/ns/p", headers=JSON)).json()
    assert document["text"] == text
    assert document["verdict"] == "fits nowhere"
    assert document["requests"][0]["fallouts"][0]["cause"] == "in-use"


async def test_some_nodes_only(client: AsyncClient) -> None:
    document = (await client.get("/explain/ns/p?node=b", headers=JSON)).json()
    assert document["nodes"] == [{"reason": "no free device for request gpu", "nodes": ["b"]}]
    assert [each["node"] for each in document["proposals"]] == ["b"] * len(document["proposals"])
    assert (await client.get("/explain/ns/p?node=b&node=a", headers=JSON)).json()["nodes"][0]["nodes"] == ["b", "a"]
    assert "node x is not known" in (await client.get("/explain/ns/p?node=x")).text


async def test_what_is_proposed_can_be_done(client: AsyncClient, cluster: Cluster) -> None:
    document = (await client.get("/explain/ns/p", headers=JSON)).json()
    assert document["proposals"][0]["changes"][0]["how"] == "kubectl delete pod -n ns somebody"
    await cluster.api.delete(PODS, ObjectKey("ns", "somebody"), uid="uid-somebody")
    await cluster.settle()
    assert (await client.get("/explain/ns/p", headers=JSON)).json()["verdict"] == "fits"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("ns/other", "pod ns/other does not exist"),
        ("ns/sombody", "pod ns/sombody does not exist; did you mean ns/somebody?"),
        ("sn/somebody", "pod sn/somebody does not exist; did you mean ns/somebody?"),
        ("ns/plain", "pod ns/plain needs no devices: its devices do not restrict the choice of a node"),
        ("ns/..", "pod ns/.. does not exist"),
        ("ns/" + "x" * 9000, f"pod ns/{'x' * 9000} does not exist"),
    ],
)
async def test_unknown_pod_is_told_from_one_without_devices(client: AsyncClient, path: str, error: str) -> None:
    reply = await client.get(f"/explain/{path.replace('..', '%2E%2E')}")
    assert (reply.status_code, reply.json()) == (404, {"error": error})


async def test_pod_that_the_watch_has_not_shown_or_that_cannot_be_read_is_neither(cluster: Cluster) -> None:
    state = state_of([GPU])
    state.apply(Event(EventType.ADDED, PODS, pod("broken", "c") | {"spec": {"nodeName": 1}}))
    cluster.load(pod("odd") | {"spec": {"nodeName": 2}})
    async with client_of(Cluster(state, cluster.api).app()) as client:
        for name, error in (
            ("p", "pod ns/p is not known here yet"),
            ("odd", "pod ns/odd can't be read: spec.nodeName: 2 is not a string"),
            ("broken", "pod ns/broken can't be read: spec.nodeName: 1 is not a string"),
        ):
            reply = await client.get(f"/explain/ns/{name}")
            assert (reply.status_code, reply.json()) == (404, {"error": error})


KNOWN = [ObjectKey(namespace, f"train-{n}") for n in range(5000) for namespace in ("east", "west")]


@pytest.mark.parametrize(
    ("namespace", "name", "meant"),
    [
        ("east", "train-4990x", "east/train-4990"),
        ("north", "train-7", "east/train-7"),
        ("wst", "train-7", "west/train-7"),
        ("east", "nothing-like-it", ""),
    ],
)
def test_of_very_many_pods_the_one_that_was_meant_is_named(namespace: str, name: str, meant: str) -> None:
    ending = f"; did you mean {meant}?" if meant else " does not exist"
    assert unknown_pod(ObjectKey(namespace, name), KNOWN).endswith(ending)


OPEN = "no pod with devices is called ns/other; the API server does not say whether it exists"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault(lost=True), ": get pods: outcome unknown: timed out"),
        (Fault(refused=ApiError(403, "Forbidden", "pods is forbidden")), ": pods is forbidden"),
    ],
)
async def test_whether_a_pod_exists_is_left_open_where_the_api_server_does_not_say(
    cluster: Cluster, fault: Fault, why: str
) -> None:
    extender = extender_behind(cluster, fault)
    async with client_of(app_over(extender)) as client:
        reply = await client.get("/explain/ns/other")
        assert (reply.status_code, reply.json()) == (503, {"error": OPEN + why})


def test_an_api_server_that_does_not_answer_is_not_waited_for_longer_than_five_seconds(cluster: Cluster) -> None:
    async def asking() -> float:
        extender, started = extender_behind(cluster, Fault(seconds=60)), asyncio.get_running_loop().time()
        with pytest.raises(RefusedError, match=OPEN):
            await extender.explanations.of_pod(ObjectKey("ns", "other"))
        return asyncio.get_running_loop().time() - started

    assert run_in_virtual_time(asking()) == 5


def extender_behind(cluster: Cluster, fault: Fault) -> Extender:
    """A service whose next read of a pod meets a fault."""
    transport = Transport(cluster.api)
    transport.script("get pods", fault)
    return make_extender(transport, cluster.state, solver(), Settings())


async def test_any_pod_can_be_asked_about_and_nothing_is_written(client: AsyncClient, cluster: Cluster) -> None:
    before = cluster.state.snapshot
    mine = pod("other", "c")
    del mine["metadata"]["uid"]
    as_kubectl_prints_it = await client.post("/explain", content=orjson.dumps(mine))
    assert as_kubectl_prints_it.text.startswith("pod ns/other fits nowhere: all 2 devices are in use\n")
    as_filter_is_sent_it = await client.post("/explain", content=orjson.dumps({"Pod": mine, "NodeNames": ["b"]}))
    assert as_filter_is_sent_it.text.startswith("pod ns/other does not fit on node b")
    by_query = await client.post("/explain?node=a", content=orjson.dumps({"Pod": mine, "NodeNames": ["b"]}))
    assert by_query.text.startswith("pod ns/other does not fit on node a")
    assert cluster.state.snapshot is before


@pytest.mark.parametrize("path", ["/explain/ns/p", "/explain"])
@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("nodes=a", 'unknown parameter "nodes", did you mean "node"?'),
        ("node=a&format=json", 'unknown parameter "format" (known: node)'),
    ],
)
async def test_unknown_parameters_are_named_with_those_there_are(
    client: AsyncClient, path: str, query: str, error: str
) -> None:
    method = "POST" if path == "/explain" else "GET"
    reply = await client.request(method, f"{path}?{query}", content=orjson.dumps(pod("p", "c")))
    assert (reply.status_code, reply.json()) == (400, {"error": error})


async def test_who_takes_neither_text_nor_json_gets_neither(client: AsyncClient) -> None:
    reply = await client.get("/explain/ns/p", headers={"accept": "text/plain;q=0"})
    assert (reply.status_code, reply.json()) == (406, {"error": "there is text/plain and application/json"})


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "the body is empty: expected a Pod as JSON or YAML"),
        (b" \n", "the body is empty: expected a Pod as JSON or YAML"),
        (b"[]", "expected an object, not []"),
        (b"{}", "metadata.name: is required"),
        (b'{"Pod": 1}', "Pod: expected an object, not 1"),
        (b'{"Pod": {"metadata": {"name": "x"}}, "NodeNames": [7]}', "NodeNames[0]: expected a string, not 7"),
        (b'{"metadata": {"name": "x"}, "spec": {"nodeName": 1}}', "spec.nodeName: 1 is not a string"),
    ],
)
async def test_mistakes_are_named(client: AsyncClient, body: bytes, error: str) -> None:
    reply = await client.post("/explain", content=body)
    assert reply.status_code == 400
    assert reply.json()["error"].endswith(error)


YAML_POD = yaml.safe_dump(pod("other", "c"))
FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (YAML_POD, "application/yaml"),
        (YAML_POD, "text/x-yaml; charset=utf-8"),
        (YAML_POD, FORM),
        (YAML_POD, ""),
        (f"# a comment\n---\n{YAML_POD}---\n", FORM),
        (f"\ufeff{YAML_POD}", FORM),
        (YAML_POD.replace("\n", "\r\n"), FORM),
        (yaml.safe_dump(pod("other", "c"), default_flow_style=True), "application/yaml"),
        (orjson.dumps(pod("other", "c")).decode(), "application/yaml"),
        (orjson.dumps(pod("other", "c")).decode(), FORM),
        (yaml.safe_dump({"Pod": pod("other", "c"), "NodeNames": ["a", "b"]}), FORM),
    ],
)
async def test_a_pod_may_be_written_in_yaml(client: AsyncClient, body: str, content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}
    reply = await client.post("/explain", content=body.encode(), headers=headers)
    assert reply.text.startswith("pod ns/other fits nowhere: all 2 devices are in use\n")


@pytest.mark.parametrize(
    ("body", "content_type", "status", "error"),
    [
        (b"metadata: {name: x", FORM, 400, "the body is neither JSON nor YAML: line 1: "),
        (
            b"just words",
            FORM,
            400,
            'the body is neither JSON nor YAML: expected keys and values at the top, not "just words"',
        ),
        (b"- a", "", 400, 'the body is neither JSON nor YAML: expected keys and values at the top, not ["a"]'),
        (b"a: 1\na: 2\n", "", 400, 'the body is neither JSON nor YAML: line 2: the key "a" is there twice'),
        (b"kind: Podmetadata:  name: x", FORM, 400, "use --data-binary"),
        (b"# nothing", "", 400, "the body has no YAML documents: expected one, with a Pod"),
        (b"# joined kind: Pod metadata:", FORM, 400, "expected one, with a Pod; curl --data removes line breaks"),
        (b"a: 1\n---\nb: 2\n", "", 400, "the body has 2 YAML documents: expected one, with a Pod"),
        (b"\xff\xfe", FORM, 400, "the body is neither JSON nor YAML: it is not text in UTF-8"),
        (b"a: b", "application/json", 400, "the body is not JSON: "),
        (b"{a: b}", FORM, 400, "the body is not JSON: "),
        (b"metadata: {name: 7}", FORM, 400, "metadata.name: 7 is not a string"),
        (b"metadata: {name: x}\nspec: {nodeName: 1e400}", FORM, 400, 'line 2: "1e400" is too large for a number'),
        (b"a: " + b"[" * 300, FORM, 400, "nested deeper than 200"),
        (
            b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" * 9,
            FORM,
            400,
            "the body is neither",
        ),
        (b"a: b\n" + b"#" * FREE_BYTES, FORM, 413, f"longer than the limit of {FREE_BYTES} bytes for YAML"),
    ],
)
async def test_mistakes_in_yaml_are_named(
    client: AsyncClient, body: bytes, content_type: str, status: int, error: str
) -> None:
    reply = await client.post("/explain", content=body, headers={"content-type": content_type})
    assert reply.status_code == status
    assert error in reply.json()["error"]


@pytest.mark.parametrize("node", [b"!!python/object/apply:os.system [ls]", b"!!timestamp 2024-01-01", b"*missing"])
async def test_yaml_makes_nothing_but_json(client: AsyncClient, node: bytes) -> None:
    reply = await client.post("/explain", content=b"metadata: {name: x}\nspec: " + node)
    assert (reply.status_code, reply.json()["error"][:33]) == (400, "the body is neither JSON nor YAML")


async def test_a_body_over_the_limit(cluster: Cluster) -> None:
    async with client_of(cluster.app(load("server: {bodyLimitBytes: 1024}"))) as client:
        reply = await client.post("/explain", content=b" " * 2000)
        assert reply.status_code == 413
        assert reply.json()["error"] == "the body is longer than the limit of 1024 bytes"


async def test_a_cluster_that_is_not_known_well_enough(cluster: Cluster) -> None:
    unknown = Cluster(ClusterState(), cluster.api)
    async with client_of(unknown.app()) as client:
        for reply in (
            await client.get("/explain/ns/p"),
            await client.post("/explain", content=orjson.dumps(pod("p", "c"))),
        ):
            assert reply.status_code == 503
            assert "not synced yet" in reply.json()["error"]


async def test_the_documented_example_runs(client: AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    operation = paths["/explain"]["post"]
    example = operation["requestBody"]["content"]["application/json"]["example"]
    text = operation["responses"]["200"]["content"]["text/plain"]["example"]
    assert (await client.post("/explain", json=example)).text == text
    as_yaml = operation["requestBody"]["content"]["application/yaml"]["example"]
    assert (await client.post("/explain", content=as_yaml)).text == text
    assert {each["name"] for each in paths["/explain/{namespace}/{pod}"]["get"]["parameters"]} == {
        "namespace",
        "pod",
        "node",
    }


async def test_filters_are_answered_while_an_explanation_is_made(cluster: Cluster) -> None:
    async with client_of(cluster.app()) as client:
        explaining = [asyncio.create_task(client.get("/explain/ns/p")) for _ in range(3)]
        body = orjson.dumps({"Pod": pod("p", "c"), "NodeNames": ["a"]})
        assert (await client.post("/filter", content=body)).json()["NodeNames"] == []
        assert {(await each).status_code for each in explaining} == {200}


# What the API server says of a pod's claims: asked where the watched objects do not tell, and told in explanations.


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
    text = str(Explainer.alone(snapshot, solver()).explain(snapshot.pods[KEY], admission=found))
    assert text.splitlines()[1:3] == [
        "Note: claim gpu is not made from its template yet.",
        "Note: what the API server says of the pod can't be read: events.events.k8s.io is forbidden.",
    ]


async def test_a_pod_that_does_not_exist_has_the_priority_of_its_class() -> None:
    held = claim("held", allocated=["a/gpu-0"], at="a", users=["holder"])
    cluster = Cluster.of(*WORLD, held, pod("holder", "held", on="a"), claim("c"))
    for each in CLASSES:
        await cluster.api.create(PRIORITY_CLASSES, each)
    new = pod("new", "c")
    del new["spec"]["priority"], new["metadata"]["uid"]
    told = {}
    async with client_of(cluster.app()) as client:
        for name in (HIGH, PATIENT, "priority-hihg"):
            sent = {**new, "spec": {**new["spec"], "priorityClassName": name}}
            told[name] = (await client.post("/explain", content=orjson.dumps(sent))).text
    assert "dra-extender evicts pod ns/holder" in told[HIGH]
    assert "Preemption:" not in told[PATIENT]
    refusal = "the pod is not made: spec.priorityClassName: there is no PriorityClass priority-hihg"
    assert told["priority-hihg"].startswith(f"pod ns/new cannot be placed: {refusal}; did you mean priority-high?")


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


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"ResourceClaims": []}, "spec.ResourceClaims: unknown field; did you mean resourceClaims?"),
        ({"schedulername": "x"}, "spec.schedulername: unknown field; did you mean schedulerName?"),
        (
            {"resourceClaims": [{"name": "a", "resourceclaimName": "c"}]},
            "spec.resourceClaims[0].resourceclaimName: unknown field; did you mean resourceClaimName?",
        ),
    ],
)
async def test_a_field_in_the_wrong_case_is_named_with_the_right_one(
    client: AsyncClient, spec: dict[str, object], error: str
) -> None:
    sent = pod("other", "c")
    sent["spec"] |= spec
    reply = await client.post("/explain", content=orjson.dumps(sent))
    assert (reply.status_code, reply.json()["error"]) == (400, error)
