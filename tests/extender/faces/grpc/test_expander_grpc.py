"""Cluster Autoscaler's gRPC expander: what is answered, and how errors and certificates are."""

import asyncio
import gc
import json
import sys
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from extender.autoscaler.autoscaler import Autoscaler
from extender.autoscaler.scale_up.plan import parse_demand, parse_room
from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import parse_pod
from extender.config.settings import Settings
from extender.faces.grpc import messages
from extender.faces.grpc.messages import FIELDS_A_STEP, SHORT_BYTES, as_json, decoded, new
from extender.faces.grpc.opening import GrpcError, open_grpc
from extender.faces.grpc.server import Newest, decode_options
from extender.framework.metrics import Metrics
from extender.framework.wire import WireError
from extender.kube.certificates import CertificateFiles, Certificates
from extender.tools.intake import Budget, Source, at_once
from extender.tools.offload import in_thread
from tests.extender.autoscaler.scenes import autoscaler_over, machine, node_template, pod_of
from tests.extender.faces.grpc.scenes import call, serving
from tests.kit.certificates import Authority, Pair
from tests.kit.clusters import GPU, claim_template, state_of
from tests.kit.measure import resident_peak
from tests.kit.process import free_port
from tests.kit.protobuf import answer, encoded, request

T = TypeVar("T")

BIG, SMALL = node_template("big", 4), node_template("small", 1)
NODES = {name: machine("template", name, cpu="8", memory="8Gi") for name in ("big", "small", "unknown")}
PODS = [pod_of(f"p{index}", "gpu") for index in range(4)]


def autoscaler() -> Autoscaler:
    return autoscaler_over(state_of([GPU, claim_template()]), BIG, SMALL)


async def test_the_best_group_is_answered_with_its_reason() -> None:
    body = request({"big": (1, PODS), "small": (4, PODS)}, NODES)
    async with serving(autoscaler()) as address:
        reason = "pods that get a place: 4 of 4; new nodes: 1; stranded devices: 0; devices of a new node: template big"
        assert answer(await call(address, body)) == [("big", 1, reason)]


async def test_the_messages_of_older_autoscalers_are_the_same_with_other_numbers() -> None:
    pods = b"".join(b"\x22" + _sized(encoded("Pod", pod)) for pod in PODS)
    option = b"\x0a" + _sized(b"big") + b"\x10\x01" + pods
    entry = b"\x0a" + _sized(b"big") + b"\x12" + _sized(encoded("Node", NODES["big"]))
    async with serving(autoscaler()) as address:
        found = answer(await call(address, b"\x0a" + _sized(option) + b"\x12" + _sized(entry)))
        assert [name for name, _, _ in found] == ["big"]


async def test_a_group_gets_only_pods_that_its_option_has() -> None:
    body = request({"big": (1, PODS[:1]), "small": (3, PODS[1:])}, NODES)
    async with serving(autoscaler()) as address:
        [(name, _, reason)] = answer(await call(address, body))
        assert name == "small"
        assert reason.startswith("pods that get a place: 3 of 4; new nodes: 3;")


async def test_no_group_is_answered_if_none_helps() -> None:
    body = request({"small": (2, [pod_of("p", "nothing")])}, NODES)
    async with serving(autoscaler()) as address:
        assert answer(await call(address, body)) == []


async def test_groups_whose_devices_are_not_known_are_left_to_the_next_expander() -> None:
    body = request({"unknown": (1, PODS), "small": (0, PODS)}, NODES)
    async with serving(autoscaler()) as address:
        [(name, _, reason)] = answer(await call(address, body))
        assert name == "unknown"
        assert reason.startswith("nothing is known of the devices of these groups, and no other group helps: ns/p0: ")


async def test_a_call_takes_its_room_until_its_threads_have_ended_although_its_caller_has_left() -> None:
    begun, go = threading.Event(), threading.Event()

    async def held(work: Callable[[], T]) -> T:
        if begun.is_set():
            return work()

        def wait() -> T:
            begun.set()
            assert go.wait(10)
            return work()

        return await in_thread(wait)

    budget, body = Budget(), request({"big": (1, PODS)}, NODES)
    async with serving(replace(autoscaler(), off_loop=held), budget=budget) as address:
        asking = asyncio.create_task(call(address, body))
        assert await asyncio.to_thread(begun.wait, 10)
        taken = budget.taken[Source.GRPC]
        asking.cancel()
        await asyncio.wait([asking])
        await call(address, b"")
        assert 0 < budget.taken[Source.GRPC] == taken
        go.set()
        async with asyncio.timeout(10):
            for _ in iter(lambda: any(budget.taken.values()), False):
                await asyncio.sleep(0)


async def test_no_options_no_answer() -> None:
    async with serving(autoscaler()) as address:
        assert answer(await call(address, b"")) == []


NAMELESS: dict[str, Any] = {"metadata": {}, "spec": {"containers": []}}
ODD: dict[str, Any] = {"metadata": {"name": "p", "uid": "u"}, "spec": {"resourceClaims": [{"name": "x"}]}}

INVALID: dict[str, tuple[bytes, str]] = {
    "no message": (b"\xff\xff", "is not a BestOptionsRequest in protocol buffers"),
    "no name": (request({"": (1, [])}, NODES), "options[0].nodeGroupId: missing"),
    "twice": (request({"big": (1, [])}, NODES) * 2, "options[1].nodeGroupId: node group big is there twice"),
    "no node": (request({"other": (1, [])}, NODES), "nodeBytesMap: has no node of node group other"),
    "negative": (request({"big": (-1, [])}, NODES), "options[0].nodeCount: must not be negative, not -1"),
    "pod without name": (
        request({"big": (1, [NAMELESS])}, NODES),
        "options[0].podBytes[0]: metadata.name: is required",
    ),
    "odd claim": (
        request({"big": (1, [ODD])}, NODES),
        "spec.resourceClaims[0]: exactly one of resourceClaimName and resourceClaimTemplateName must be set",
    ),
    "odd node": (
        request({"big": (1, [])}, {"big": {"status": {"allocatable": {"cpu": "much"}}}}),
        'nodeBytesMap[big]: status.allocatable[cpu]: "much" is not a quantity',
    ),
}


@pytest.mark.parametrize(("body", "message"), INVALID.values(), ids=INVALID)
async def test_an_invalid_request_is_told_by_object_and_field(body: bytes, message: str) -> None:
    async with serving(autoscaler()) as address:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(address, body)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert message in (error.value.details() or "")


async def test_a_cluster_that_is_not_known_is_unavailable() -> None:
    async with serving(autoscaler_over(ClusterState())) as address:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(address, request({"big": (1, PODS)}, NODES))
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "not ready: " in (error.value.details() or "")


async def test_calls_are_counted() -> None:
    registry, port = CollectorRegistry(), free_port()
    async with open_grpc(Settings.model_validate({"grpc": {"host": "127.0.0.1", "port": port}}), Budget()) as start:
        await start(autoscaler(), Metrics(registry))
        await call(f"127.0.0.1:{port}", b"")
    assert (
        'dra_extender_verb_duration_seconds_count{code="ok",verb="best_options"} 1.0'
        in generate_latest(registry).decode()
    )


async def test_without_a_port_nothing_is_served() -> None:
    async with open_grpc(Settings(), Budget()) as start:
        metrics = Metrics(registry := CollectorRegistry())
        await start(autoscaler(), metrics)
    assert "best_options" not in generate_latest(registry).decode()


async def test_an_address_in_use_is_told() -> None:
    async with serving(autoscaler()) as address:
        host, _, port = address.partition(":")
        taken = Settings.model_validate({"grpc": {"host": host, "port": int(port)}})
        with pytest.raises(GrpcError, match=rf"cannot listen on {address}"):
            async with open_grpc(taken, Budget()):
                pass


async def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "extender.faces.grpc.server", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(GrpcError, match=r"pip install '\.\[grpc\]' in a clone"):
        async with open_grpc(Settings.model_validate({"grpc": {"port": 1, "host": "127.0.0.1"}}), Budget()):
            pass


# --- certificates -------------------------------------------------------------------------------------------


def files(folder: Path, pair: Pair) -> dict[str, str]:
    certificate, key = pair.write(folder)
    return {"certificate": str(certificate), "key": str(key)}


def trusting(authority: Authority, client: Pair | None = None) -> grpc.ChannelCredentials:
    shown = (client.key, client.certificate) if client else (None, None)
    return grpc.ssl_channel_credentials(authority.pem, *shown)


async def test_as_cluster_autoscaler_calls_with_tls_and_no_certificate_of_its_own(tmp_path: Path) -> None:
    authority = Authority()
    async with serving(autoscaler(), **files(tmp_path, authority.server())) as address:
        assert answer(await call(address, b"", trusting(authority))) == []
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call(address, b"", trusting(Authority("other")))
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_with_authorities_for_clients_a_client_needs_a_certificate(tmp_path: Path) -> None:
    authority, clients = Authority(), Authority("clients")
    (tmp_path / "clients.crt").write_bytes(clients.pem)
    settings = {**files(tmp_path, authority.server()), "clientCa": str(tmp_path / "clients.crt")}
    async with serving(autoscaler(), **settings) as address:
        assert answer(await call(address, b"", trusting(authority, clients.client("autoscaler")))) == []
        for client in (None, authority.client("autoscaler")):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(address, b"", trusting(authority, client))


def test_a_renewed_certificate_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    certificate, key = Authority().server().write(tmp_path)
    certificates = Certificates(CertificateFiles(certificate, key))
    newest = Newest(certificates)
    assert newest() is None
    Authority().server().write(tmp_path)
    assert certificates.refresh()
    assert isinstance(newest(), grpc.ServerCertificateConfiguration)
    assert newest() is None


async def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    settings = {"port": 1, **files(tmp_path, Authority().server())}
    (tmp_path / "tls.key").write_text("x")
    with pytest.raises(GrpcError, match=r"grpc: .*tls\.crt and .*tls\.key: "):
        async with open_grpc(Settings.model_validate({"grpc": settings}), Budget()):
            pass


def _sized(data: bytes) -> bytes:
    """The bytes after their number, as a varint."""
    number, size = len(data), b""
    while number > 0x7F:
        size += bytes([number & 0x7F | 0x80])
        number >>= 7
    return size + bytes([number]) + data


# --- memory --------------------------------------------------------------------------------------------------

EMPTY_OPTIONS = b"\x0a\x00" * 500_000
FULL_POD = b"\x12" + b"\xc0\x96\xb1\x02" + b"\x12\x00" * 2_500_000
"""A pod with 2.5 million empty containers."""

DENSE = {
    "options": EMPTY_OPTIONS,
    "fields of a number": b"\x10\x01" * 500_000,
    "entries of a map": b"\x1a\x00" * 500_000,
    "containers": b"\x0a" + _sized(b"\x0a\x01a" + b"\x2a" + _sized(FULL_POD)) + b"\x1a\x03\x0a\x01a",
    "a group, and then options": b"\x0b\x0c" + EMPTY_OPTIONS,
}


@pytest.mark.parametrize("body", DENSE.values(), ids=DENSE)
async def test_a_message_with_millions_of_fields_is_refused_before_they_are_built(body: bytes) -> None:
    budget = Budget(256 * 1024 * 1024)
    before = resident_peak()
    async with serving(autoscaler(), budget=budget) as address:
        with pytest.raises(grpc.RpcError) as refused:
            await call(address, body)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "with more than 250000 fields, or with groups" in (refused.value.details() or "")
    assert resident_peak() - before < 100_000_000, "they would take 100 bytes each, and more"
    assert not any(budget.taken.values())


@pytest.mark.parametrize("has_room", [True, False], ids=["refused for its fields", "refused for want of memory"])
async def test_what_a_refused_message_took_is_freed_at_once(has_room: bool) -> None:
    """Nothing waits for Python to look for cycles."""
    budget = Budget(64 * 1024 * 1024)
    if not has_room:
        assert budget.take(Source.GRPC, budget.share(Source.GRPC))

    async def refused(address: str) -> None:
        with pytest.raises(grpc.RpcError):
            await call(address, EMPTY_OPTIONS)

    async with serving(autoscaler(), budget=budget) as address:
        await refused(address)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(10):
                await refused(address)
            assert tracemalloc.get_traced_memory()[0] < 3 * len(EMPTY_OPTIONS)
        finally:
            tracemalloc.stop()
            gc.enable()


async def test_a_message_for_which_others_leave_no_memory_may_come_again() -> None:
    budget = Budget(64 * 1024 * 1024)
    body = request({"big": (1, PODS)}, NODES)
    async with serving(autoscaler(), budget=budget) as address:
        assert budget.take(Source.GRPC, budget.share(Source.GRPC))
        with pytest.raises(grpc.RpcError) as refused:
            await call(address, body)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        budget.give_back(Source.GRPC, budget.share(Source.GRPC))
        assert answer(await call(address, body))


async def test_a_message_is_no_longer_than_a_part_of_the_memory() -> None:
    async with serving(autoscaler(), budget=Budget(64 * 1024 * 1024)) as address:
        with pytest.raises(grpc.RpcError) as refused:
            await call(address, b"\x00" * 3_000_000)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_what_an_autoscaler_sends_has_few_fields() -> None:
    body = request({f"group-{number}": (1, PODS * 250) for number in range(50)}, NODES)
    assert len(body) > SHORT_BYTES
    assert not at_once(messages.counts.is_over("BestOptionsRequest", body))


# Objects in protocol buffers: what is read of them is what is read of the API's JSON.


EXAMPLES = [
    each
    for path in sorted(Path("config/example").rglob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
    if each
]

ODD_POD: dict[str, Any] = {
    "metadata": {
        "name": "odd",
        "namespace": "ns",
        "uid": "u",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionTimestamp": "2026-01-02T03:05:05Z",
        "labels": {"empty": "", "app": "x"},
        "annotations": {"dra-extender.dev/policy": "pack"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        ],
    },
    "spec": {
        "schedulerName": "dra-scheduler",
        "priority": -7,
        "preemptionPolicy": "Never",
        "nodeSelector": {"zone": "a"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["a", ""]}]}]
                }
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]},
        },
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
        "schedulingGates": [{"name": "example.com/gate"}],
        "schedulingGroup": {"podGroupName": "train"},
        "overhead": {"cpu": "10m"},
        "resources": {"requests": {"cpu": "3"}},
        "resourceClaims": [
            {"name": "one", "resourceClaimName": "c"},
            {"name": "two", "resourceClaimTemplateName": "t"},
        ],
        "volumes": [{"name": "v", "persistentVolumeClaim": {}}],
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"example.com/gpu": "1"}}}
        ],
        "containers": [
            {
                "name": "main",
                "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}],
                "resources": {
                    "limits": {"example.com/gpu": "2", "memory": "1Gi"},
                    "requests": {"cpu": "100m"},
                    "claims": [{"name": "one", "request": "gpu"}],
                },
            }
        ],
    },
    "status": {
        "phase": "Pending",
        "nominatedNodeName": "n",
        "startTime": "2026-01-02T03:04:06Z",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}],
        "resourceClaimStatuses": [{"name": "two", "resourceClaimName": "odd-two-x"}],
        "extendedResourceClaimStatus": {
            "resourceClaimName": "special",
            "requestMappings": [{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r"}],
        },
    },
}


@pytest.mark.parametrize(
    "pod",
    [ODD_POD, *(each for each in EXAMPLES if each["kind"] == "Pod")],
    ids=lambda pod: pod["metadata"]["name"],
)
def test_a_pod_is_read_as_from_json(pod: dict[str, Any]) -> None:
    found = as_json(decoded("Pod", encoded("Pod", pod), ""))
    assert parse_pod(found) == parse_pod(pod)
    assert parse_demand(found) == parse_demand(pod)


@pytest.mark.parametrize(
    "node", [each for each in EXAMPLES if each["kind"] == "Node"], ids=lambda node: node["metadata"]["name"]
)
def test_a_node_is_read_as_from_json(node: dict[str, Any]) -> None:
    assert parse_room(as_json(decoded("Node", encoded("Node", node), ""))) == parse_room(node)


def test_go_writes_empty_texts_and_no_time_and_the_api_leaves_them_out() -> None:
    pod = {"metadata": {"name": "p", "namespace": ""}, "spec": {"nodeName": "", "containers": []}}
    assert as_json(decoded("Pod", encoded("Pod", pod), "")) == {"metadata": {"name": "p"}, "spec": {}}
    zero = b"\x0a\x01p\x42\x0b\x08\x80\x92\xb8\xc3\x98\xfe\xff\xff\xff\x01"  # creationTimestamp of 1-1-1
    zero = bytes([0x0A, len(zero)]) + zero
    assert as_json(decoded("Pod", zero, "")) == {"metadata": {"name": "p"}}


def test_a_time_far_from_now_is_still_a_time() -> None:
    metadata = b"\x0a\x01p\x4a\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"  # deletionTimestamp 2**63 - 1
    found = as_json(decoded("Pod", bytes([0x0A, len(metadata)]) + metadata, ""))
    assert parse_pod(found).deleting


def test_what_is_no_message_is_refused_with_its_place() -> None:
    with pytest.raises(WireError, match=r"options\[0\]\.podBytes\[1\]: is not a Pod in protocol buffers"):
        decoded("Pod", b"\xff\xff", "options[0].podBytes[1]")


RECORDED = Path(__file__).parent / "recorded"
ASKED = json.loads((RECORDED / "best_options.json").read_text())


@pytest.mark.parametrize("name", ["best_options.bin", "best_options_1.34.1.bin"])
def test_a_request_that_go_has_written_is_read_as_from_json(name: str) -> None:
    """tests/kit/expander_client wrote the files (``--record``). Kubernetes' own code marshaled the objects."""
    args = at_once(decode_options((RECORDED / name).read_bytes()))
    asked = {each["id"]: each for each in ASKED["options"]}
    counts = {name: each["count"] for name, each in asked.items()}
    assert {group.name: group.limit for group in args.groups} == counts
    assert [group.room for group in args.groups] == [parse_room(node) for node in ASKED["nodes"].values()]
    pods = {pod["metadata"]["name"]: pod for option in asked.values() for pod in option["pods"]}
    assert {each.pod.name for each in args.pods} == pods.keys()
    for each in args.pods:
        raw = pods[each.pod.name]
        assert replace(each.pod, uid="") == replace(parse_pod(raw), uid="")
        assert each.demand == parse_demand(raw)
        assert each.groups == frozenset(name for name, option in asked.items() if raw in option["pods"])


def options(count: int, pods: int) -> bytes:
    """A message with as many options as this, each with some pods."""
    pod, nodes = encoded("Pod", {"metadata": {"name": "p"}}), {}
    message = new("BestOptionsRequest")
    for number in range(count):
        message.options.add(nodeGroupId=f"group-{number}", nodeCount=1, pod=[pod] * pods)
        nodes[f"group-{number}"] = encoded("Node", {"metadata": {"name": "n"}})
    message.nodeBytesMap.update(nodes)
    return bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("message", "steps"),
    [(options(2_000, 1), 5 * 2_000 // FIELDS_A_STEP + 2_000), (options(1, 7), 7)],
    ids=["many fields", "some pods"],
)
def test_a_message_is_read_in_small_steps(message: bytes, steps: int) -> None:
    """Between them, all other work has its turn."""
    assert sum(1 for _ in decode_options(message)) >= steps
