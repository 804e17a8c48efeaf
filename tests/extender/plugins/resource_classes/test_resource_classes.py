"""ResourceClasses: the device class that is made of each, what its status says, and the form of KEP-14's text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocator import InvalidObjectError
from allocator.model.json import CONTROLLER
from extender.cluster.objects.resource_classes import parse_resource_class
from extender.cluster.writes.lease import SharedLease
from extender.faces.commands.main import app
from extender.kube.api import ApiError, ObjectKey
from extender.kube.resources import CLASSES, RESOURCE_CLASSES
from extender.lab.manifests import load, load_objects
from extender.plugins.resource_classes.device_class import judge
from extender.plugins.resource_classes.task import (
    LEASE,
    PAUSE_SECONDS,
    RETRY_SECONDS,
    ResourceClasses,
    keep_device_classes,
)
from tests.extender.faces.commands.scenes import RUNNER, written
from tests.kit import virtualtime
from tests.kit.clusters import NOW, Cluster, Object, node
from tests.kit.objects.parts import api_object, selectors, slice_spec
from tests.kit.servers.memory import Fault, Transport
from tests.kit.virtualtime import in_virtual_time

VERSION = "resource.k8s.io/v1"
GOLD = ObjectKey("", "gold")


def needs(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def resource_class(name: str, *requirements: Object, resource: str = "nvidia.com/gpu") -> Object:
    """A ResourceClass with one selector, or without any."""
    spec: Object = {"resourceName": resource}
    if requirements:
        spec["resourceSelector"] = [{"matchExpressions": list(requirements)}]
    return api_object("ResourceClass", name, metadata={"uid": f"uid-{name}"}, spec=spec)


def device_class(name: str, **spec: Any) -> Object:
    return api_object("DeviceClass", name, spec=spec)


LARGE = resource_class("gold", needs("memory", "Gt", "15G"))


# --- the device class ---------------------------------------------------------------------------------------


def judged(*classes: Object, existing: Sequence[Object] = ()) -> dict[str, tuple[str, str]]:
    """By class: the reason and the message."""
    found = judge(map(parse_resource_class, classes), existing, VERSION)
    return {each.resource_class.name: (each.reason, each.message) for each in found}


def spec_of(*classes: Object, existing: Sequence[Object] = ()) -> Any:
    found = judge(map(parse_resource_class, classes), existing, VERSION)[0].device_class
    assert found is not None
    return found["spec"]


def test_containers_ask_for_a_class_in_our_domain_and_for_the_raw_resource_without_selectors() -> None:
    assert spec_of(LARGE)["extendedResourceName"] == "dra-extender.dev/gold"
    assert spec_of(resource_class("gold"))["extendedResourceName"] == "nvidia.com/gpu"


def test_device_class_belongs_to_its_resource_class() -> None:
    found = judge([parse_resource_class(LARGE)], (), VERSION)[0].device_class
    assert found is not None
    (owner,) = found["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "dra-extender.dev/v1alpha1",
        "kind": "ResourceClass",
        "name": "gold",
        "uid": "uid-gold",
        "controller": True,
    }


def test_resource_without_a_device_class_means_the_driver_of_its_name() -> None:
    expressions = [each["cel"]["expression"] for each in spec_of(LARGE)["selectors"]]
    assert expressions[0] == 'device.driver == "gpu.nvidia.com"'
    assert 'device.capacity["gpu.nvidia.com"]["memory"].isGreaterThan(quantity("15G"))' in expressions[1]
    assert judged(LARGE)["gold"][1].endswith("its devices are among those of driver gpu.nvidia.com")


def test_resource_with_a_device_class_means_the_devices_of_that_class_with_its_configuration() -> None:
    config = [{"opaque": {"driver": "g.example.com", "parameters": {"mode": "fast"}}}]
    base = device_class(
        "gpu",
        extendedResourceName="nvidia.com/gpu",
        selectors=selectors("device.driver == 'g.example.com' && true"),
        config=config,
    )
    spec = spec_of(LARGE, existing=[base])
    assert spec["selectors"][0] == base["spec"]["selectors"][0]
    assert "device.capacity['g.example.com'][\"memory\"]" in spec["selectors"][1]["cel"]["expression"]
    assert spec["config"] == config
    assert judged(LARGE, existing=[base])["gold"][1].endswith("among those of device class gpu")


WRONG: Mapping[str, tuple[Object, str]] = {
    "a name that no property can have": (
        needs("gpu-type", "In", "k80"),
        'spec.resourceSelector[0].matchExpressions[0].key: "gpu-type" is not a C identifier',
    ),
    "a value without order": (
        needs("speed", "Gt", "fast"),
        'spec.resourceSelector[0].matchExpressions[0].values[0]: "fast" is neither an amount such as 15G',
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_requirement_that_no_expression_can_say_is_named(case: str) -> None:
    requirement, message = WRONG[case]
    reason, told = judged(resource_class("gold", requirement))["gold"]
    assert reason == "InvalidExpression"
    assert told.startswith(message)


def test_name_that_is_too_long_for_an_extended_resource_is_refused() -> None:
    name = "a" * 70
    reason, told = judged(resource_class(name, needs("ecc", "Exists")))[name]
    assert reason == "InvalidExpression"
    assert "the device class would be refused: spec.extendedResourceName" in told


def test_device_classes_of_others_are_never_changed() -> None:
    there = device_class("gold", selectors=[])
    assert judged(LARGE, existing=[there])["gold"] == (
        "NameTaken",
        "device class gold has the name already; rename or delete one of the two",
    )
    serves = device_class("gpu", extendedResourceName="nvidia.com/gpu")
    assert judged(resource_class("all"), existing=[serves])["all"] == (
        "NameTaken",
        "device class gpu serves nvidia.com/gpu already; rename or delete one of the two",
    )


def test_requests_that_a_controller_decides_are_not_taken_over() -> None:
    base = device_class("license", extendedResourceName="nvidia.com/gpu")
    base["metadata"]["annotations"] = {CONTROLLER: "site"}
    assert judged(LARGE, existing=[base])["gold"] == (
        "Negotiated",
        f"device class license has the annotation {CONTROLLER}: its requests are negotiated",
    )


def test_of_two_classes_without_selectors_the_first_by_name_is_the_resource() -> None:
    found = judged(resource_class("b"), resource_class("a"))
    assert [found[name][0] for name in "ab"] == ["Accepted", "NameTaken"]
    assert found["b"][1].startswith("device class a serves nvidia.com/gpu already")


# --- reading ------------------------------------------------------------------------------------------------

UNREADABLE: Mapping[str, tuple[Object, str]] = {
    "unknown operator": (needs("ecc", "Is", "true"), '.operator: "Is" is not one of In, NotIn, Exists'),
    "no value": (needs("ecc", "In"), ".values: In takes 1 to 64 values, and there are 0"),
    "two limits": (needs("memory", "Gt", "1", "2"), ".values: Gt takes one value, and there are 2"),
    "values of Exists": (needs("ecc", "Exists", "true"), ".values: Exists takes no values, and there are 1"),
    "a resource without a domain": (needs("ecc", "Exists"), 'spec.resourceName: "gpu" is not a domain and a name'),
    "no key": (needs("", "Exists"), ".key: is required"),
    "a long value": (needs("ecc", "In", "x" * 129), ".values[0]: is longer than 128 characters"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_mistakes_are_named_with_their_place(case: str) -> None:
    requirement, message = UNREADABLE[case]
    resource = "gpu" if "resource" in case else "nvidia.com/gpu"
    with pytest.raises(InvalidObjectError) as caught:
        parse_resource_class(resource_class("gold", requirement, resource=resource))
    assert [str(each) for each in caught.value.problems] == [
        next(each for each in map(str, caught.value.problems) if message in each)
    ]


@pytest.mark.parametrize("field", ["resourceSelector", "labelSelector", "resourceSelectorRequirements"])
def test_text_form_of_the_proposal_is_read_with_each_of_its_three_names(tmp_path: Path, field: str) -> None:
    (tmp_path / "kep.yaml").write_text(
        f"""
kind: ResourceClass
metadata: {{name: fast.nic}}
spec:
  resourceName: sfc.com/smartNIC
  {field}:
  - matchExpressions:
    - {{key: speed, operator: Gt, values: [40GBPS]}}
"""
    )
    loaded = load([tmp_path])
    assert loaded.problems == ()
    (found,) = loaded.objects
    (expression,) = [each["cel"]["expression"] for each in spec_of(dict(found.data))["selectors"][1:]]
    assert 'device.capacity["smartnic.sfc.com"]["speed"].isGreaterThan(quantity("40G"))' in expression


def test_our_own_form_has_one_name_for_the_selector() -> None:
    wrong = resource_class("gold")
    wrong["spec"]["labelSelector"] = []
    assert load_objects([wrong], "objects").problems == (
        "objects: ResourceClass gold: spec.labelSelector: unknown field; similar names: resourceSelector",
    )


# --- keeping ------------------------------------------------------------------------------------------------


class Scene:
    """A cluster with ResourceClasses, and the task that keeps their device classes; time passes when the test says."""

    def __init__(self, *objects: Object) -> None:
        self.cluster = Cluster.of(*objects)
        self.transport = Transport(self.cluster.api)
        self.now = 100.0
        lease = SharedLease(self.transport, LEASE, "mine", lambda: NOW, lambda: self.now)
        self.task = ResourceClasses(self.cluster.state, self.transport, lease, lambda: self.now, lambda: NOW)

    async def after(self, seconds: float = 10 * PAUSE_SECONDS) -> Any:
        """What the class gold says of itself, when the task has had its turns for some time."""
        until = self.now + seconds
        while self.now <= until:
            await self.task.tick()
            self.now += 1
        status = (await self.cluster.api.get(RESOURCE_CLASSES, GOLD)).get("status") or {}
        conditions = [(each["status"], each["reason"]) for each in status.get("conditions") or ()]
        return status.get("extendedResourceName"), *conditions

    async def edit(self, **spec: Any) -> None:
        await self.cluster.api.patch(RESOURCE_CLASSES, GOLD, {"spec": spec})

    def class_of(self, name: str = "gold") -> Any:
        return self.cluster.state.snapshot.classes.get(name)

    def writes(self) -> list[str]:
        return [each for each in self.transport.calls if each.endswith(("deviceclasses", "resourceclasses"))]


ACCEPTED = ("dra-extender.dev/gold", ("True", "Accepted"))


@in_virtual_time
async def test_class_gets_its_device_class_and_its_status_and_is_left_alone_then() -> None:
    scene = Scene(LARGE)
    status = await scene.after()
    written = scene.writes()
    await scene.after(60)
    assert scene.writes() == written
    assert status == ACCEPTED
    assert scene.class_of().extended_resource_name == "dra-extender.dev/gold"
    assert written.count("create deviceclasses") == 1
    assert written.count("patch_status resourceclasses") == 1


@in_virtual_time
async def test_class_that_changes_changes_its_device_class() -> None:
    scene = Scene(LARGE)
    await scene.after()
    await scene.edit(resourceSelector=[{"matchExpressions": [needs("memory", "Gt", "40G")]}])
    assert await scene.after() == ACCEPTED
    assert '"40G"' in scene.class_of().selectors[1]


@in_virtual_time
async def test_class_that_becomes_wrong_keeps_its_device_class_and_says_what_is_wrong() -> None:
    scene = Scene(LARGE)
    await scene.after()
    before = scene.class_of()
    await scene.edit(resourceSelector=[{"matchExpressions": [needs("memory", "Gt", "much")]}])
    status = await scene.after()
    assert status == (None, ("False", "InvalidExpression"))
    assert scene.class_of() is before


@in_virtual_time
async def test_device_class_that_somebody_edits_is_mended() -> None:
    scene = Scene(LARGE)
    await scene.after()
    found = await scene.cluster.api.get(CLASSES, GOLD)
    await scene.cluster.api.update(CLASSES, {**found, "spec": {"selectors": []}})
    await scene.after()
    assert len(scene.class_of().selectors) == 2


def test_device_class_that_the_api_server_refuses_is_told() -> None:
    refusal = ApiError(422, "Invalid", "DeviceClass gold is invalid")
    scene = Scene(LARGE)
    scene.transport.script("create deviceclasses", *[Fault(refused=refusal)] * 10)
    assert virtualtime.run(scene.after(PAUSE_SECONDS * 2)) == (None, ("False", "Refused"))


def test_name_for_containers_that_the_api_server_drops_is_told() -> None:
    def without_name(made: Object) -> Object:
        return {**made, "spec": {name: each for name, each in made["spec"].items() if name != "extendedResourceName"}}

    scene = Scene(LARGE)
    scene.transport.script("create deviceclasses", Fault(reply=without_name))
    virtualtime.run(keep_device_classes(scene.transport, lambda: NOW))
    (condition,) = virtualtime.run(scene.cluster.api.get(RESOURCE_CLASSES, GOLD))["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Refused")
    assert "feature gate DRAExtendedResource" in condition["message"]


def test_write_that_fails_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(LARGE)
    scene.transport.script("create deviceclasses", Fault(refused=ApiError(403, "Forbidden", "not allowed")))
    assert virtualtime.run(scene.after(PAUSE_SECONDS * 2)) == (None,)
    assert "resource class not kept" in capsys.readouterr().out
    assert virtualtime.run(scene.after(2 * RETRY_SECONDS)) == ACCEPTED


@in_virtual_time
async def test_no_request_is_sent_without_a_class() -> None:
    scene = Scene(api_object("DeviceClass", "gpu", spec={}))
    for _ in range(10):
        await scene.task.tick()
        scene.now += 1
    assert scene.transport.calls == []


@in_virtual_time
async def test_keeping_goes_on_after_a_class_that_cannot_be_read() -> None:
    unreadable = resource_class("broken", needs("ecc", "Is"))
    scene = Scene(LARGE, unreadable)
    await keep_device_classes(scene.transport, lambda: NOW)
    assert await scene.after() == ACCEPTED


# --- commands -----------------------------------------------------------------------------------------------

WRONG_CLASS = resource_class("gold", needs("memory", "Gt", "much"))


def pod_for(name: str, resource: str) -> Object:
    """A pod whose container has one device of an extended resource in its limits."""
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: "1"}}}
    return api_object("Pod", name, namespace="ns", metadata={"uid": name}, spec={"containers": [container]})


def gpu(**published: Any) -> Object:
    """A slice with a GPU of NVIDIA's driver."""
    spec = slice_spec("a", [{"name": "gpu-0", **published}], driver="gpu.nvidia.com", nodeName="a")
    return api_object("ResourceSlice", "a", spec=spec)


def test_simulate_gives_a_pod_the_device_that_its_class_selects(tmp_path: Path) -> None:
    large = gpu(capacity={"memory": {"value": "16Gi"}})
    found = written(tmp_path / "c.yaml", LARGE, node("a"), large, pod_for("p", "dra-extender.dev/gold"))
    result = RUNNER.invoke(app, ["simulate", str(found)])
    assert "gpu.nvidia.com/a/gpu-0" in result.stdout


def test_convert_prints_device_classes_without_owner(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["convert", str(written(tmp_path / "c.yaml", LARGE, resource_class("all")))])
    assert result.exit_code == 0
    first, second = yaml.safe_load_all(result.stdout)
    assert [first["metadata"], second["metadata"]] == [{"name": "all"}, {"name": "gold"}]
    assert first["spec"]["extendedResourceName"] == "nvidia.com/gpu"
    assert len(second["spec"]["selectors"]) == 2


def test_convert_names_what_is_wrong_and_prints_the_rest(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["convert", str(written(tmp_path / "c.yaml", WRONG_CLASS, resource_class("all")))])
    assert result.exit_code == 1
    assert yaml.safe_load(result.stdout)["metadata"]["name"] == "all"
    assert "ResourceClass gold is not accepted: spec.resourceSelector[0].matchExpressions[0].values[0]" in result.stderr


def test_validate_warns_of_a_class_that_will_not_be_accepted(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["validate", str(written(tmp_path / "c.yaml", WRONG_CLASS))])
    assert result.exit_code == 0
    assert "warning: ResourceClass gold is not accepted: spec.resourceSelector[0]" in result.stderr


def test_explain_names_the_class_that_is_not_accepted(tmp_path: Path) -> None:
    found = written(tmp_path / "c.yaml", WRONG_CLASS, node("a"), gpu(), pod_for("p", "dra-extender.dev/gold"))
    result = RUNNER.invoke(app, ["explain", "-m", str(found), "ns/p"])
    assert "correct ResourceClass gold, which is not accepted: spec.resourceSelector[0]" in result.stdout
