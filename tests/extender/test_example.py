"""The example cluster: what it shows, that an API server would take it, and where each of its pods goes."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocator import parse_slice
from extender import Cluster, Placement
from extender.kube.claim_rules import check_expression
from extender.lab.manifests import load, unauthorized
from tests.kit.places import EXAMPLE

Object = dict[str, Any]


def read(folder: Path) -> list[Object]:
    """All objects of a folder's files, files by name."""
    texts = (path.read_text() for path in sorted(folder.rglob("*.yaml")))
    return [document for text in texts for document in yaml.safe_load_all(text)]


OBJECTS = read(EXAMPLE)


def of(kind: str) -> list[Object]:
    return [each for each in OBJECTS if each["kind"] == kind]


def names(kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in of(kind)}


def claim_specs() -> Iterator[Object]:
    yield from (claim["spec"]["devices"] for claim in of("ResourceClaim"))
    yield from (template["spec"]["spec"]["devices"] for template in of("ResourceClaimTemplate"))


def requests() -> list[Object]:
    """All requests and alternatives of all claims and templates."""
    every = [request for spec in claim_specs() for request in spec["requests"]]
    return [part for request in every for part in request.get("firstAvailable", [request.get("exactly")])]


def constraints() -> list[Object]:
    return [each for spec in claim_specs() for each in spec.get("constraints", ())]


def devices() -> list[tuple[Object, Object]]:
    """Each device with the spec of its slice."""
    return [(each["spec"], device) for each in of("ResourceSlice") for device in each["spec"].get("devices", ())]


def pcie_roots() -> dict[str, set[tuple[str, str]]]:
    """Driver to the PCIe roots, with their nodes, on which it has a device."""
    roots: dict[str, set[tuple[str, str]]] = {}
    for spec, device in devices():
        root = device["attributes"].get("resource.kubernetes.io/pcieRoot")
        if root:
            roots.setdefault(spec["driver"], set()).add((spec["nodeName"], root["string"]))
    return roots


def incomplete_pools() -> set[str]:
    counts: dict[str, list[int]] = {}
    for each in of("ResourceSlice"):
        pool = each["spec"]["pool"]
        key = f"{each['spec']['driver']}/{pool['name']}"
        counts.setdefault(key, []).append(pool["resourceSliceCount"])
    return {pool for pool, wanted in counts.items() if len(wanted) != wanted[0]}


SHOWN: dict[str, Callable[[], object]] = {
    "eight nodes or more": lambda: len(of("Node")) >= 8,
    "four drivers": lambda: len({spec["driver"] for spec, _ in devices()}) >= 4,
    "shared counters": lambda: any("sharedCounters" in each["spec"] for each in of("ResourceSlice")),
    "devices that consume counters": lambda: any("consumesCounters" in device for _, device in devices()),
    "GPUs and NICs on one PCIe root": lambda: pcie_roots()["gpu.example.com"] & pcie_roots()["nic.example.com"],
    "a pool that many nodes reach": lambda: any("nodeSelector" in spec for spec, _ in devices()),
    "a pool that all nodes reach": lambda: any(spec.get("allNodes") for spec, _ in devices()),
    "a request policy": lambda: any(
        "requestPolicy" in capacity
        for _, device in devices()
        for capacity in device.get("capacity", {}).values()
        if device.get("allowMultipleAllocations")
    ),
    "a tainted device": lambda: any(device.get("taints") for _, device in devices()),
    "a taint rule": lambda: of("DeviceTaintRule"),
    "an incomplete pool": lambda: incomplete_pools() == {"gpu.example.com/gpu-east-3"},
    "an extended resource name": lambda: any("extendedResourceName" in each["spec"] for each in of("DeviceClass")),
    "a device plugin": lambda: any("example.com/gpu" in each["status"]["allocatable"] for each in of("Node")),
    "configuration by a class": lambda: any("config" in each["spec"] for each in of("DeviceClass")),
    "alternatives": lambda: any("firstAvailable" in r for spec in claim_specs() for r in spec["requests"]),
    "all devices": lambda: any(request.get("allocationMode") == "All" for request in requests()),
    "several devices": lambda: any(request.get("count", 1) > 1 for request in requests()),
    "admin access": lambda: any(request.get("adminAccess") for request in requests()),
    "selectors": lambda: any(request.get("selectors") for request in requests()),
    "tolerations": lambda: any(request.get("tolerations") for request in requests()),
    "capacity requests": lambda: any(request.get("capacity") for request in requests()),
    "matchAttribute": lambda: any("matchAttribute" in each for each in constraints()),
    "distinctAttribute": lambda: any("distinctAttribute" in each for each in constraints()),
    "an allocated claim": lambda: any(each.get("status", {}).get("allocation") for each in of("ResourceClaim")),
    "a claim that is being deleted": lambda: any("deletionTimestamp" in c["metadata"] for c in of("ResourceClaim")),
    "two pods with one claim": lambda: len(set(named_claims())) < len(named_claims()),
}


def named_claims() -> list[str]:
    references = (each for pod in of("Pod") for each in pod["spec"].get("resourceClaims", ()))
    return [each["resourceClaimName"] for each in references if "resourceClaimName" in each]


def named_templates() -> list[str]:
    references = (each for pod in of("Pod") for each in pod["spec"].get("resourceClaims", ()))
    return [each["resourceClaimTemplateName"] for each in references if "resourceClaimTemplateName" in each]


@pytest.mark.parametrize("what", SHOWN)
def test_what_the_example_shows(what: str) -> None:
    assert SHOWN[what]()


def test_objects_have_names_of_their_own() -> None:
    keys = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in OBJECTS]
    assert len(keys) == len(set(keys))


def test_all_apis_are_stable() -> None:
    assert {each["apiVersion"] for each in OBJECTS} == {"v1", "resource.k8s.io/v1"}


def test_what_is_missing_is_missing_on_purpose() -> None:
    classes = {request["deviceClassName"] for request in requests()}
    assert classes - names("DeviceClass") == {"tensor.example.com"}
    assert set(named_claims()) - names("ResourceClaim") == {"reserved-gpu"}
    assert set(named_templates()) - names("ResourceClaimTemplate") == {"three-gpus"}


def test_nothing_is_left_unused() -> None:
    assert names("ResourceClaimTemplate") <= set(named_templates())
    assert names("DeviceClass") <= {request["deviceClassName"] for request in requests()}


def test_pods_are_ours_and_their_order_is_that_of_the_stories() -> None:
    pending = [pod for pod in of("Pod") if "nodeName" not in pod["spec"]]
    assert all(pod["spec"]["schedulerName"] == "dra-scheduler" for pod in of("Pod"))
    created = [pod["metadata"]["creationTimestamp"] for pod in pending]
    assert all(earlier < later for earlier, later in pairwise(created))


def test_containers_name_claims_of_their_pod() -> None:
    for pod in of("Pod"):
        offered = {each["name"] for each in pod["spec"].get("resourceClaims", ())}
        used = {c["name"] for each in pod["spec"]["containers"] for c in each["resources"].get("claims", ())}
        assert used == offered, pod["metadata"]["name"]


def test_all_domains_are_reserved_for_examples() -> None:
    hosts = re.compile(r"\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|org|net|io)\b")
    found = {host for path in EXAMPLE.rglob("*.yaml") for host in hosts.findall(path.read_text())}
    foreign = {host for host in found if not host.endswith(("example.com", ".k8s.io", ".kubernetes.io"))}
    assert foreign <= {"topology.kubernetes.io", "kubernetes.io"}


@pytest.mark.parametrize("each", of("ResourceSlice"), ids=lambda each: each["metadata"]["name"])
def test_partitions_add_up_to_their_gpu(each: Object) -> None:
    """The profiles of a GPU tile it: whole = halves = quarters, in memory and in segments."""
    consumed: dict[tuple[str, str], dict[str, int]] = {}
    for device in parse_slice(each).devices:
        profile = str(device.attributes.get("gpu.example.com/profile", "whole"))
        for use in device.consumes_counters:
            total = consumed.setdefault((use.counter_set, profile), {})
            for counter, amount in use.counters.items():
                total[counter] = total.get(counter, 0) + amount.nano
    for gpu in {gpu for gpu, _ in consumed}:
        totals = [total for (of_gpu, _), total in consumed.items() if of_gpu == gpu]
        assert all(total == totals[0] for total in totals)


# --- what an API server would say, and where the pods go ------------------------------------------------------

PLACED: dict[str, tuple[str, tuple[str, ...]]] = {
    "demo/burn-in": ("gpu-west-1", ("gpu-0", "gpu-1", "gpu-2", "gpu-3")),
    "demo/training-1": ("gpu-east-1", ("gpu-0", "nic-0")),
    "demo/training-2": ("gpu-east-1", ("gpu-1", "nic-1")),
    "demo/qualification": ("gpu-east-2", ("gpu-1", "nic-1")),
    "demo/storage-gateway": ("gpu-west-1", ("nic-0", "nic-1")),
    "demo/inference": ("gpu-east-2", ("gpu-0-half-1",)),
    "demo/assistant-1": ("gpu-east-2", ("gpu-0-quarter-0",)),
    "demo/assistant-2": ("gpu-east-1", ("emulation",)),
    "demo/notebook": ("gpu-west-2", ("gpu-0",)),
    "demo/render-1": ("gpu-west-2", ("gpu-1",)),
    "demo/render-2": ("gpu-west-2", ("gpu-1",)),
    "demo/gpu-doctor": ("gpu-west-2", ("gpu-2",)),
    "ops/gpu-metrics": ("gpu-west-1", ("gpu-0", "gpu-1", "gpu-2", "gpu-3")),
    "demo/transcode-1": ("gpu-east-1", ("accelerator-0",)),
    "demo/stream-1": ("edge-east-1", ("uplink-0",)),
    "demo/stream-2": ("edge-west-1", ("uplink-0",)),
    "demo/chat": ("edge-east-1", ("uplink-0",)),
    "demo/web": ("gpu-east-1", ()),
    "demo/classic": ("cpu-west-1", ()),
    "demo/relay": ("gpu-west-2", ("nic-0", "nic-1")),
}
"""Pod to its node and the names of its devices."""

REJECTED = {
    "demo/training-3": "untolerated device taint for request nic",
    "demo/mismatch": "no devices for request nic satisfy constraint on resource.kubernetes.io/pcieRoot",
    "demo/five-quarters": "not enough shared counters for request gpus",
    "demo/eagle": "no device matches request gpu",
    "demo/newest-model": "no device matches request gpu",
    "demo/transcode-2": "not enough free devices for request accelerators",
    "demo/stream-3": "not enough device capacity for request uplink",
    "demo/no-such-class": "device class tensor.example.com does not exist",
    "demo/no-such-claim": "claim reserved-gpu does not exist",
    "demo/no-such-template": "claim template three-gpus does not exist",
    "demo/misspelt": "request gpu: selector 0: no such key: modle",
    "demo/deleted-claim": "claim retired-gpu is being deleted",
}
"""Pod to the reason that says most, among those of its nodes."""


@pytest.fixture(scope="module")
def placements() -> dict[str, Placement]:
    """What `dra-extender simulate` finds out."""
    return {each.pod: each for each in Cluster.from_manifests([EXAMPLE]).schedule()}


def test_an_api_server_would_take_everything() -> None:
    loaded = load([EXAMPLE], check_expression)
    assert loaded.problems == ()
    assert len(loaded.objects) == len(OBJECTS)
    assert unauthorized(loaded.objects) == ()


@pytest.mark.parametrize("pod", PLACED)
def test_each_pod_of_the_example_gets_its_node_and_devices(pod: str, placements: dict[str, Placement]) -> None:
    placement = placements[pod]
    assert (placement.node, tuple(d.result.device.device for d in placement.devices)) == PLACED[pod], placement.reason


@pytest.mark.parametrize("pod", REJECTED)
def test_does_not_fit(pod: str, placements: dict[str, Placement]) -> None:
    assert placements[pod].node == ""
    assert REJECTED[pod] in placements[pod].reason


def test_every_pending_pod_is_decided(placements: dict[str, Placement]) -> None:
    assert placements.keys() == PLACED.keys() | REJECTED.keys()
