"""Objects in protocol buffers: what is read of them is what is read of the API's JSON."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.autoscaler.scale_up.plan import parse_demand, parse_room
from extender.cluster.objects.pods import parse_pod
from extender.faces.grpc.messages import FIELDS_A_PIECE, as_json, decoded, new
from extender.faces.grpc.server import decode_options
from extender.framework.wire import WireError
from tests.kit.protobuf import encoded

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
    args = decode_options((RECORDED / name).read_bytes())
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
    ("message", "pieces"),
    [(options(2_000, 1), 5 * 2_000 // FIELDS_A_PIECE + 2_000), (options(1, 7), 7)],
    ids=["many fields", "some pods"],
)
def test_a_message_is_read_in_small_pieces(message: bytes, pieces: int) -> None:
    """Between them, the thread lets others have the interpreter."""
    looks: list[None] = []
    decode_options(message, lambda: looks.append(None))
    assert len(looks) >= pieces
