"""Claims with optional requests: which node a pod gets, what people are told, and what else counts them."""

import json
from pathlib import Path

import pytest

from extender import Cluster
from extender.answers.explain.explanation import Explanation, as_json
from extender.faces.commands.main import app
from extender.planning.node_room import least_devices
from tests.extender.faces.commands.scenes import RUNNER, written
from tests.kit.clusters import Cluster as Scene
from tests.kit.clusters import Object, claim, claim_template, device_class, local_slice, node, pod, request
from tests.kit.objects.quotas import limited, quota

ANNOTATION = "dra-extender.dev/optional-requests"
NIC = device_class("nic", selectors=["device.attributes['gpu.example.com'].kind == 'nic'"])
ACCELERATOR = device_class("gpu", selectors=["device.attributes['gpu.example.com'].kind == 'gpu'"])
KINDS = (ACCELERATOR, NIC)


def wishing(name: str = "c", optional: str = "nic", *requests: Object) -> Object:
    """A claim for a GPU, and for a NIC if there is one."""
    asked = requests or (request(), request("nic", device_class="nic"))
    return claim(name, *asked, metadata={"annotations": {ANNOTATION: optional}})


def gpus(name: str, count: int = 1) -> Object:
    return local_slice(name, count, attributes={"kind": {"string": "gpu"}})


def with_nic(name: str) -> Object:
    """A node's pool of a GPU and a NIC."""
    found = local_slice(name, 2)
    for device, kind in zip(found["spec"]["devices"], ("gpu", "nic"), strict=True):
        device["attributes"] = {"kind": {"string": kind}}
    return found


def explained(*objects: Object) -> Explanation:
    return Cluster.from_objects([*KINDS, *objects]).explain("ns/p")


def test_pod_goes_where_more_optional_requests_are_served() -> None:
    world = (node("a"), node("b"), gpus("a"), with_nic("b"))
    first, second = Cluster.from_objects(
        [*KINDS, *world, wishing("c"), wishing("d"), pod("p", "c"), pod("q", "d")]
    ).schedule()
    assert (first.node, [each.asked for each in first.devices], first.left_out) == ("b", ["gpu", "nic"], ())
    assert (second.node, [each.asked for each in second.devices]) == ("a", ["gpu"])
    assert [(each.claim, each.request) for each in second.left_out] == [("d", "nic")]
    assert second.as_json()["leftOut"] == [{"claim": "d", "request": "nic"}]


def test_claim_from_a_template_has_the_annotation_of_the_template() -> None:
    template = claim_template("t", request(), request("nic", device_class="nic"))
    template["spec"]["metadata"] = {"annotations": {ANNOTATION: "nic"}}
    asking = pod("p")
    asking["spec"]["resourceClaims"] = [{"name": "x", "resourceClaimTemplateName": "t"}]
    cluster = Cluster.from_objects([*KINDS, node("a"), gpus("a"), template, asking])
    assert cluster.explain("ns/p").verdict.value == "fits"
    (placed,) = cluster.schedule()
    assert (placed.node, [each.request for each in placed.left_out]) == ("a", ["nic"])


def test_explanation_names_what_is_left_out_and_why() -> None:
    found = explained(node("a"), gpus("a"), wishing(), pod("p", "c"))
    line = "claim ns/c, optional request nic is left out on node a: no device matches request nic"
    assert line in str(found)
    left_out = {"claim": "ns/c", "request": "nic", "reason": "no device matches request nic"}
    assert json.dumps([left_out]) in json.dumps(as_json(found))


def test_explanation_of_a_bound_pod_names_what_was_left_out() -> None:
    cluster = Cluster.from_objects([*KINDS, node("a"), gpus("a"), wishing(), pod("p", "c")])
    cluster.schedule()
    assert "claim ns/c, optional request nic is left out on node a\n" in str(cluster.explain("ns/p"))


def test_explanation_says_why_a_node_with_more_is_better() -> None:
    found = explained(node("a"), node("b"), gpus("a"), with_nic("b"), wishing(), pod("p", "c"))
    assert [(each.node, each.why.partition(";")[0]) for each in found.places] == [
        ("b", "the most optional requests"),
        ("a", "fewer optional requests"),
    ]


def test_explanation_of_a_pod_that_fits_nowhere_is_about_required_requests() -> None:
    found = explained(node("a"), wishing(), pod("p", "c"))
    assert [each.request for each in found.requests] == ["gpu"]


@pytest.mark.parametrize(
    ("objects", "served"),
    [
        pytest.param((), ["gpu", "nic"], id="no quota"),
        pytest.param((quota(limited("nic", devices=1)),), ["gpu", "nic"], id="within quota"),
        pytest.param((quota(limited("nic", devices=0)),), ["gpu"], id="an optional request over quota is left out"),
    ],
)
def test_quota_leaves_an_optional_request_out(objects: tuple[Object, ...], served: list[str]) -> None:
    cluster = Cluster.from_objects([*KINDS, node("a"), with_nic("a"), wishing(), pod("p", "c"), *objects])
    told = str(cluster.explain("ns/p"))
    assert ("left out on node a: it might exceed a DeviceQuota of the namespace" in told) == (len(served) == 1)
    (placed,) = cluster.schedule()
    assert [each.asked for each in placed.devices] == served


def test_quota_of_a_required_request_still_holds() -> None:
    cluster = Cluster.from_objects(
        [*KINDS, node("a"), with_nic("a"), wishing(), pod("p", "c"), quota(limited("gpu", devices=0))]
    )
    assert "quota" in cluster.schedule()[0].reason


def test_device_class_of_an_optional_request_need_not_exist() -> None:
    cluster = Cluster.from_objects([ACCELERATOR, node("a"), gpus("a"), wishing(), pod("p", "c")])
    assert "device class nic does not exist" in str(cluster.explain("ns/p"))
    assert cluster.schedule()[0].node == "a"


def test_pod_with_only_optional_requests_runs_without_devices() -> None:
    cluster = Cluster.from_objects([*KINDS, node("a"), wishing("c", "gpu,nic"), pod("p", "c")])
    (placed,) = cluster.schedule()
    assert (placed.node, placed.devices, len(placed.left_out)) == ("a", (), 2)


def test_unknown_name_keeps_the_pod_off_all_nodes_with_claim_and_annotation() -> None:
    cluster = Cluster.from_objects([*KINDS, node("a"), with_nic("a"), wishing("c", "nik"), pod("p", "c")])
    error = f'claim ns/c: annotation {ANNOTATION}: there is no request "nik"; similar names: nic'
    assert error in str(cluster.explain("ns/p"))
    assert error in cluster.schedule()[0].reason


def test_least_devices_are_those_of_required_requests() -> None:
    state = Scene.of(wishing()).state.snapshot
    (found,) = state.claims.values()
    assert least_devices(found.claim.spec) == 1


def test_simulate_shows_what_is_left_out(tmp_path: Path) -> None:
    file = written(tmp_path / "c.yaml", *KINDS, node("a"), gpus("a"), wishing(), pod("p", "c"))
    assert "gpu.example.com/a/gpu-0, without optional nic" in RUNNER.invoke(app, ["simulate", str(file)]).stdout
    assert "optional: left out" in RUNNER.invoke(app, ["simulate", str(file), "-o", "wide"]).stdout


def test_validate_warns_of_a_request_that_does_not_exist(tmp_path: Path) -> None:
    file = written(tmp_path / "c.yaml", wishing("c", "nik"), wishing("d"))
    told = RUNNER.invoke(app, ["validate", str(file)]).stderr
    assert f'ResourceClaim ns/c: annotation {ANNOTATION}: there is no request "nik"; similar names: nic' in told
    assert "ns/d" not in told
