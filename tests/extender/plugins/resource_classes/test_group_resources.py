"""Group resources: devices of several classes under one name (KEP-14), asked for in limits or by a claim template."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from allocator import GroupResource, InvalidObjectError, parse_device_class
from allocator.model.json import MATCH_ATTRIBUTE, MEMBERS
from extender import Cluster
from extender.cluster.objects.claims import SPECIAL, parse_claim_object
from extender.cluster.objects.resource_classes import parse_resource_class
from extender.faces.commands.main import app
from extender.framework.pods.extended_resources import demand, in_words, request_words, special_claim
from extender.kube.api import ObjectKey
from extender.kube.resources import CLASSES, RESOURCE_CLASSES
from extender.plugins.resource_classes.device_class import judge
from extender.plugins.resource_classes.task import keep_device_classes
from tests.extender.faces.commands.scenes import RUNNER, written
from tests.kit.clusters import NOW, Object, claim, node, parsed, pod, request
from tests.kit.clusters import Cluster as Scene
from tests.kit.objects.parts import api_object, of_driver, slice_spec
from tests.kit.virtualtime import in_virtual_time

PAIR = "dra-extender.dev/pair"
ROOT = "resource.kubernetes.io/pcieRoot"
GPU_CLASS = api_object("DeviceClass", "gpu", spec={"selectors": of_driver(), "extendedResourceName": "example.com/gpu"})
NIC_CLASS = api_object("DeviceClass", "nic.fast", spec={"selectors": of_driver("nic.example.com")})


def group(name: str = "pair", members: Object | None = None, match: str | None = ROOT) -> Object:
    """A ResourceClass with members; without any, a GPU and a NIC."""
    spec: Object = {"members": members or {"gpu": 1, "nic.fast": 1}}
    if match is not None:
        spec["matchAttribute"] = match
    return api_object("ResourceClass", name, metadata={"uid": f"uid-{name}"}, spec=spec)


def devices(driver: str, *roots: str) -> Object:
    """Devices of node n; each is below a root of its bus."""
    named = [
        {"name": f"{driver[:3]}-{number}", "attributes": {ROOT: {"string": root}}} for number, root in enumerate(roots)
    ]
    return api_object("ResourceSlice", driver, spec=slice_spec("n", named, driver=driver, nodeName="n"))


GPUS, NICS = devices("gpu.example.com", "a", "b", "b"), devices("nic.example.com", "b", "a")
SITE = (node("n"), GPU_CLASS, NIC_CLASS, GPUS, NICS, group())


def paired(count: int, name: str = "p") -> Object:
    return pod(name, resources={PAIR: str(count)})


def device_names(*objects: Object) -> list[list[str]]:
    """The devices of each pod that is placed, and the reason of each that is not."""
    return [
        sorted(each.result.device.device for each in one.devices) if one.node else [one.reason]
        for one in Cluster.from_objects(objects).schedule()
    ]


# --- allocation ---------------------------------------------------------------------------------------------


def test_devices_of_a_group_match_and_each_group_matches_by_itself() -> None:
    assert device_names(*SITE, paired(1)) == [["gpu-0", "nic-1"]]
    assert device_names(*SITE, paired(2)) == [["gpu-0", "gpu-1", "nic-0", "nic-1"]]


def test_group_without_an_attribute_takes_any_devices() -> None:
    far = devices("nic.example.com", "c")
    assert device_names(*SITE[:4], far, group(match=None), paired(1)) == [["gpu-0", "nic-0"]]
    (reason,) = device_names(*SITE[:4], far, group(), paired(1))[0]
    assert reason == f"1 no devices for nic-fast of {PAIR} of container c satisfy constraint on {ROOT}"


def test_reason_names_the_member_that_is_missing() -> None:
    found = device_names(*SITE, paired(2), paired(1, "q"))
    assert found[1] == [f"1 no free device for nic-fast of {PAIR} of container c"]


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (0, f"neither a device plugin nor a device class offers extended resource {PAIR}"),
        (1, "device class pair: its member gpu does not exist"),
    ],
)
def test_member_that_does_not_exist_is_named(left_out: int, reason: str) -> None:
    made = judge([parse_resource_class(group())], [GPU_CLASS, NIC_CLASS], "resource.k8s.io/v1")[0].device_class
    classes = [group()] if left_out == 0 else [made]
    found = device_names(node("n"), NIC_CLASS, GPUS, NICS, *filter(None, classes), paired(1))
    assert found == [[f"1 {reason}"]]


def test_claim_that_asks_for_the_class_is_told_to_ask_in_limits() -> None:
    wanted = claim("c", request(device_class="pair"))
    cluster = Cluster.from_objects([*SITE, wanted, pod("p", "c")])
    text = str(cluster.explain("ns/p"))
    assert f"write {PAIR} in the limits of a container: no claim can ask for class pair, which has members" in text


# --- the special claim --------------------------------------------------------------------------------------

GROUP = GroupResource((("gpu", 2), ("nic.fast", 1)), ROOT)


def test_special_claim_has_a_request_for_each_member_and_a_constraint_for_each_group() -> None:
    found = demand(parsed(paired(2)), {PAIR: "pair"}, {"pair": GROUP})
    asked = {each.name: (each.alternatives[0].device_class, each.alternatives[0].count) for each in found.spec.requests}
    assert asked == {
        "container-0-request-0-0-gpu": ("gpu", 2),
        "container-0-request-0-0-nic-fast": ("nic.fast", 1),
        "container-0-request-0-1-gpu": ("gpu", 2),
        "container-0-request-0-1-nic-fast": ("nic.fast", 1),
    }
    assert [(each.attribute, each.requests) for each in found.spec.constraints] == [
        (ROOT, ("container-0-request-0-0-gpu", "container-0-request-0-0-nic-fast")),
        (ROOT, ("container-0-request-0-1-gpu", "container-0-request-0-1-nic-fast")),
    ]
    assert {(each.container, each.resource) for each in found.mappings} == {("c", PAIR)}
    assert sorted(each.request for each in found.mappings) == sorted(asked)


def test_special_claim_that_the_api_server_returns_is_the_one_that_was_made() -> None:
    wanted = special_claim(parsed(paired(2)), demand(parsed(paired(2)), {PAIR: "pair"}, {"pair": GROUP}).spec)
    body = json.loads(wanted.raw)
    made = parse_claim_object(
        {
            **api_object("ResourceClaim", body["metadata"]["name"], namespace="ns", spec=body["spec"]),
            "metadata": {**body["metadata"], "uid": "u", "annotations": {SPECIAL: "true"}},
        }
    )
    assert made.claim.spec == wanted.claim.spec


def test_members_with_one_label_have_requests_of_their_own() -> None:
    found = demand(parsed(paired(1)), {PAIR: "pair"}, {"pair": GroupResource((("a-b", 1), ("a.b", 1)))})
    assert [each.name for each in found.spec.requests] == [
        "container-0-request-0-0-a-b",
        "container-0-request-0-0-a-b-1",
    ]


def test_request_of_a_member_is_told_in_words() -> None:
    words = request_words(parsed(paired(1)))
    assert in_words("no device for request container-0-request-0-3-nic-fast, 2 nodes", words) == (
        f"no device for nic-fast of {PAIR} of container c, 2 nodes"
    )
    assert in_words("no device for request container-0-request-0", words) == f"no device for {PAIR} of container c"
    assert in_words("container-0-request-0x", words) == "container-0-request-0x"


# --- the class ----------------------------------------------------------------------------------------------


def judged(*classes: Object, existing: tuple[Object, ...] = (GPU_CLASS, NIC_CLASS)) -> dict[str, tuple[str, str]]:
    found = judge(map(parse_resource_class, classes), existing, "resource.k8s.io/v1")
    return {each.resource_class.name: (each.reason, each.message) for each in found}


def test_device_class_of_a_group_says_what_containers_get() -> None:
    made = judge([parse_resource_class(group())], [GPU_CLASS, NIC_CLASS], "resource.k8s.io/v1")[0]
    assert made.device_class is not None
    read = parse_device_class(made.device_class)
    assert read.group == GroupResource((("gpu", 1), ("nic.fast", 1)), ROOT)
    assert read.extended_resource_name == PAIR
    assert made.message == f"containers ask for {PAIR} and get 1 of gpu and 1 of nic.fast"


def test_member_may_be_a_resource_class_that_is_made_in_the_same_turn() -> None:
    large = api_object("ResourceClass", "z-large", spec={"resourceName": "example.com/fpga"})
    assert judged(group(members={"z-large": 1}), large)["pair"][0] == "Accepted"


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        ("fpga", "spec.members[fpga]: there is no device class of this name"),
        ("other", "spec.members[other]: this class has members, and a member can have none"),
    ],
)
def test_members_that_can_not_be_served_are_named(member: str, problem: str) -> None:
    assert judged(group("other"), group(members={member: 1}))["pair"] == ("InvalidMembers", problem)


MISTAKES: Mapping[str, tuple[Object, str]] = {
    "no member": ({"members": {}}, "spec.members: needs at least one device class"),
    "half a device": ({"members": {"gpu": 0.5}}, "spec.members[gpu]: 0.5 is not a number of devices"),
    "no device": ({"members": {"gpu": 0}}, "spec.members[gpu]: 0 is not a number of devices"),
    "too many": ({"members": {"gpu": 30, "nic": 3}}, "spec.members: has 33 devices, a claim can hold 32"),
    "no class": ({"members": {"GPU": 1}}, 'spec.members[GPU]: "GPU" '),
    "a resource, too": (
        {"members": {"gpu": 1}, "resourceName": "a.b/c"},
        "spec.resourceName: a class with members has none",
    ),
    "an attribute without a domain": (
        {"members": {"gpu": 1}, "matchAttribute": "root"},
        'spec.matchAttribute: "root" is not a domain and a name',
    ),
    "an attribute without members": (
        {"resourceName": "a.b/c", "matchAttribute": ROOT},
        "spec.matchAttribute: needs members",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named_with_their_place(case: str) -> None:
    spec, problem = MISTAKES[case]
    with pytest.raises(InvalidObjectError) as caught:
        parse_resource_class(api_object("ResourceClass", "pair", spec=spec))
    assert [str(each)[: len(problem)] for each in caught.value.problems] == [problem]


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({MEMBERS: "gpu"}, f'metadata.annotations[{MEMBERS}]: "gpu" is not a JSON object with a number'),
        ({MEMBERS: '{"gpu": "1"}'}, f'metadata.annotations[{MEMBERS}][gpu]: "1" is not a number of devices'),
        ({MATCH_ATTRIBUTE: ROOT}, f"metadata.annotations[{MATCH_ATTRIBUTE}]: needs the annotation {MEMBERS}"),
        (
            {MEMBERS: '{"gpu": 1}', MATCH_ATTRIBUTE: "x"},
            f'metadata.annotations[{MATCH_ATTRIBUTE}]: "x" is not a domain',
        ),
    ],
)
def test_mistakes_in_annotations_are_named(annotations: Mapping[str, str], problem: str) -> None:
    with pytest.raises(InvalidObjectError) as caught:
        parse_device_class(api_object("DeviceClass", "pair", metadata={"annotations": annotations}, spec={}))
    assert [str(each)[: len(problem)] for each in caught.value.problems] == [problem]


@in_virtual_time
async def test_device_class_follows_when_members_change_and_keeps_annotations_of_others() -> None:
    scene = Scene.of(GPU_CLASS, NIC_CLASS, group())
    key = ObjectKey("", "pair")
    await keep_device_classes(scene.api, lambda: NOW)
    await scene.api.patch(CLASSES, key, {"metadata": {"annotations": {"team": "a"}}})
    await scene.api.patch(RESOURCE_CLASSES, key, {"spec": {"members": {"gpu": 2}, "matchAttribute": None}})
    done = await keep_device_classes(scene.api, lambda: NOW)
    first = await scene.api.get(CLASSES, key)
    await keep_device_classes(scene.api, lambda: NOW)
    annotations, is_left_alone = first["metadata"]["annotations"], await scene.api.get(CLASSES, key) == first
    assert (done, is_left_alone) == (True, True)
    assert annotations == {"team": "a", MEMBERS: '{"gpu": 2, "nic.fast": 1}'}


def test_convert_prints_a_claim_template_by_which_every_scheduler_gives_the_devices(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["convert", str(written(tmp_path / "classes.yaml", GPU_CLASS, NIC_CLASS, group()))])
    assert result.exit_code == 0
    device_class, template = yaml.safe_load_all(result.stdout)
    assert (device_class["kind"], template["kind"]) == ("DeviceClass", "ResourceClaimTemplate")
    asks: Object = pod("p")
    asks["spec"]["resourceClaims"] = [{"name": "pair", "resourceClaimTemplateName": "pair"}]
    asks["spec"]["containers"][0]["resources"] = {"claims": [{"name": "pair"}]}
    template["metadata"]["namespace"] = "ns"
    assert device_names(*SITE[:5], device_class, template, asks) == [["gpu-0", "nic-1"]]


def test_quota_of_a_member_counts_groups() -> None:
    quota = api_object(
        "ResourceQuota", "q", namespace="ns", spec={"hard": {"gpu.deviceclass.resource.k8s.io/devices": "1"}}
    )
    assert device_names(*SITE, quota, paired(1)) == [["gpu-0", "nic-1"]]
    (reason,) = device_names(*SITE, quota, paired(2))[0]
    assert "exceeded quota: q, requested: gpu.deviceclass.resource.k8s.io/devices=2" in reason
    assert (
        Cluster.from_objects([*SITE, quota, paired(2)]).schedule().summary == "0 of 1 pod placed, 1 waits: 1 for quota"
    )
