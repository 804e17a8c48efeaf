"""`dra-extender convert`: what proposals and earlier APIs write becomes objects of today, which schedule."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocator.tools import JSON
from extender import Cluster
from extender.config.settings import Settings
from extender.controllers import ClaimAsk, Held, NodeName, Responder, Store
from extender.faces.commands.main import app
from extender.lab.manifests import load_objects
from extender.lab.old_forms import changes_of, rewritten
from tests.extender.faces.commands.scenes import RUNNER, written
from tests.extender.plugins.negotiation.transport_scenes import Licenses
from tests.kit.clusters import Object, node, pod
from tests.kit.driver import answering
from tests.kit.objects.parts import api_object, exactly, of_driver, slice_spec

DRIVER = "gpu.example.com"
PARAMETERS = {"apiGroup": DRIVER, "kind": "GPURequirements", "name": "small"}
OF_CLAIM: Object = {
    "apiVersion": f"{DRIVER}/v1",
    "kind": "GPURequirements",
    "metadata": {"name": "small", "namespace": "ns"},
    "memory": "2Gi",
}
OF_CLASS: Object = {
    "apiVersion": f"{DRIVER}/v1",
    "kind": "GPUInit",
    "metadata": {"name": "init"},
    "initCommand": ["/usr/local/bin/acme-gpu-init", "--cluster", "my-cluster"],
}
CONTROLLED: dict[str, Any] = {
    "scheduling": {"deadlineSeconds": 60, "maxSeconds": 60},
    "controllers": [
        {
            "name": DRIVER,
            "timeoutSeconds": 30,
            "waitingShare": 1,
            "parameters": [
                {"apiVersion": f"{DRIVER}/v1", "kind": "GPURequirements", "resource": "gpurequirements"},
                {"apiVersion": f"{DRIVER}/v1", "kind": "GPUInit", "resource": "gpuinits", "namespaced": False},
            ],
        }
    ],
}


def old(kind: str, name: str, version: str = "v1alpha2", group: str = "resource.k8s.io", **fields: Any) -> Object:
    metadata: Object = {"name": name} if kind == "ResourceClass" else {"name": name, "namespace": "ns"}
    return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": metadata, **fields}


def converted(folder: Path, *objects: Object) -> tuple[list[Object], str, int]:
    """What convert prints, its messages, and its exit code."""
    result = RUNNER.invoke(app, ["convert", str(written(folder / "old.yaml", *objects))])
    return list(yaml.safe_load_all(result.stdout)), result.stderr, result.exit_code


def refusals(folder: Path, *objects: Object) -> list[str]:
    """What validate says of the objects."""
    path = written(folder / "old.yaml", *objects)
    result = RUNNER.invoke(app, ["validate", str(path)])
    assert result.exit_code == 1
    return [line.removeprefix(f"error: {path}: ") for line in result.stderr.splitlines()]


def placed(objects: list[Object], settings: Settings | None = None) -> dict[str, list[str]]:
    """The devices of each pod that has a node."""
    placements = Cluster.from_objects(objects, settings=settings).schedule()
    return {
        each.pod.rpartition("/")[2]: sorted(str(one.result.device.device) for one in each.devices)
        for each in placements
        if each.node
    }


def devices(driver: str, *named: Object) -> Object:
    return api_object("ResourceSlice", driver, spec=slice_spec("n", list(named), driver=driver, nodeName="n"))


# --- KEP-3063: devices that a controller allocates ----------------------------------------------------------

ACME = old(
    "ResourceClass",
    "acme-gpu",
    "v1alpha1",
    "core.k8s.io",
    driverName=DRIVER,
    parametersRef={"apiGroup": DRIVER, "kind": "GPUInit", "name": "init"},
    suitableNodes={"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]},
)
TEMPLATE = old(
    "ResourceClaimTemplate",
    "consumer",
    "v1alpha1",
    spec={"metadata": None, "spec": {"resourceClassName": "acme-gpu", "parametersRef": PARAMETERS}},
)


def consumer(**source: object) -> Object:
    """A pod as the text writes it: its containers name their claims by a text, and the claim has a source."""
    containers = [{"name": name, "image": "my-app", "resources": {"claims": ["gpu"]}} for name in ("work", "monitor")]
    spec = {"resourceClaims": [{"name": "gpu", **source}], "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "consumer", "namespace": "ns"}, "spec": spec}


FROM_TEMPLATE = {"resourceClaimTemplateName": "consumer"}


class Gpus(Licenses):
    """A controller that tells its driver nothing."""

    def allocate(
        self, claim: ClaimAsk, node: NodeName, held: Sequence[Held], *, simulation: bool
    ) -> Mapping[str, JSON]:
        super().allocate(claim, node, held, simulation=simulation)
        return {"devices": {}}


@pytest.fixture(name="gpus")
def _gpus() -> Gpus:
    return Gpus()


@pytest.fixture(name="settings")
def _settings(tmp_path: Path, gpus: Gpus) -> Iterator[Settings]:
    with answering(Responder(gpus, Store.open(tmp_path / "store.json"))) as url:
        (controller,) = CONTROLLED["controllers"]
        yield Settings.model_validate({**CONTROLLED, "controllers": [{**controller, "url": url}]})


@pytest.mark.parametrize("source", ["source", "template"])
def test_pod_of_the_proposal_gets_what_its_controller_allocates(
    tmp_path: Path, settings: Settings, gpus: Gpus, source: str
) -> None:
    made, told, code = converted(tmp_path, OF_CLASS, ACME, OF_CLAIM, TEMPLATE, consumer(**{source: FROM_TEMPLATE}))
    assert told == "note: not printed, for nothing in it is old: GPUInit init, GPURequirements ns/small\n"
    assert [each["kind"] for each in made] == ["DeviceClass", "ResourceClaimTemplate", "Pod"]
    assert code == 0
    with_gpus = node("n", labels={"gpu": "acme"})
    assert placed([with_gpus, node("without"), OF_CLASS, OF_CLAIM, *made], settings) == {"consumer": []}
    assert [each["object"] for each in gpus.parameters] == [OF_CLASS, OF_CLAIM]


def test_claim_that_names_its_controller_gets_a_class_that_names_it(tmp_path: Path, settings: Settings) -> None:
    devices = {"requests": [{"name": "gpu", "deviceClassName": "acme"}]}
    claim = old("ResourceClaim", "c", "v1alpha3", spec={"controllerName": DRIVER, "devices": devices})
    made, told, code = converted(tmp_path, claim, api_object("DeviceClass", "acme", spec={}))
    assert (told, code) == ("", 0)
    assert made[0] == {**claim, "apiVersion": "resource.k8s.io/v1beta1", "spec": {"devices": devices}}
    assert made[1]["metadata"]["annotations"] == {"dra-extender.dev/controller": DRIVER}
    assert placed([node("n"), *made, pod("p", "c")], settings) == {"p": []}


def test_immediate_claim_stays_one(tmp_path: Path) -> None:
    spec = {"resourceClassName": "acme-gpu", "allocationMode": "Immediate"}
    (made,), told, code = converted(tmp_path, old("ResourceClaim", "c", spec=spec))
    assert (told, code) == ("", 0)
    assert made["metadata"]["annotations"] == {"dra-extender.dev/allocation-mode": "Immediate"}
    assert made["spec"] == {
        "devices": {"requests": [{"name": "request-0", "exactly": {"deviceClassName": "acme-gpu"}}]}
    }


@pytest.mark.parametrize(
    ("kind", "version"),
    [("PodScheduling", "v1alpha1"), ("PodSchedulingContext", "v1alpha2"), ("PodSchedulingContext", "v1alpha3")],
)
def test_scheduling_context_becomes_ours(tmp_path: Path, kind: str, version: str) -> None:
    spec = {"selectedNode": "n", "potentialNodes": ["n", "m"]}
    status = {"resourceClaims": [{"name": "gpu", "unsuitableNodes": ["m"]}]}
    (made,), told, code = converted(tmp_path, old(kind, "consumer", version, spec=spec, status=status))
    assert (told, code) == ("", 0)
    assert (made["apiVersion"], made["kind"]) == ("dra-extender.dev/v1alpha1", "PodSchedulingContext")
    (read,) = load_objects([made], "made").objects
    assert (read.value.selected, read.value.unsuitable) == ("n", {"gpu": frozenset({"m"})})  # type: ignore[attr-defined]


# --- structured parameters of v1alpha2 ----------------------------------------------------------------------

STRUCTURED = old(
    "ResourceClass",
    "gpu",
    driverName=DRIVER,
    structuredParameters=True,
    parametersRef={"apiGroup": DRIVER, "kind": "GPUInit", "name": "init", "namespace": "ns"},
)
FILTER = old(
    "ResourceClassParameters",
    "generated-1",
    generatedFrom={"apiGroup": DRIVER, "kind": "GPUInit", "name": "init"},
    filters=[{"driverName": DRIVER, "namedResources": {"selector": 'attributes.bool["ecc"]'}}],
    vendorParameters=[{"driverName": DRIVER, "parameters": {"init": True}}],
)
WANTED = old(
    "ResourceClaimParameters",
    "generated-2",
    generatedFrom=PARAMETERS,
    shareable=True,
    driverRequests=[
        {
            "driverName": DRIVER,
            "vendorParameters": {"mode": "fast"},
            "requests": [
                {"namedResources": {"selector": 'attributes.quantity["memory"].isGreaterThan(quantity("2Gi"))'}},
                {"namedResources": {"selector": 'attributes.string["model"] == "small"'}, "vendorParameters": {"n": 1}},
            ],
        }
    ],
)
CLAIM = old("ResourceClaim", "c", spec={"resourceClassName": "gpu", "parametersRef": PARAMETERS})


def gpu(name: str, memory: str, model: str, *, ecc: bool = True) -> Object:
    attributes: Object = {"model": {"string": model}, "ecc": {"bool": ecc}}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}}


@pytest.mark.parametrize(
    "ref", [PARAMETERS, {"apiGroup": "resource.k8s.io", "kind": WANTED["kind"], "name": "generated-2"}]
)
def test_structured_parameters_become_selectors_and_configuration(tmp_path: Path, ref: Object) -> None:
    claim = {**CLAIM, "spec": {**CLAIM["spec"], "parametersRef": ref}}
    made, told, code = converted(tmp_path, STRUCTURED, FILTER, claim, WANTED)
    assert (told, code) == ("", 0)
    device_class, wanted = made
    assert device_class["spec"]["config"] == [{"opaque": {"driver": DRIVER, "parameters": {"init": True}}}]
    assert wanted["spec"]["devices"]["config"] == [
        {"requests": ["request-1"], "opaque": {"driver": DRIVER, "parameters": {"n": 1}}},
        {"requests": ["request-0", "request-1"], "opaque": {"driver": DRIVER, "parameters": {"mode": "fast"}}},
    ]
    there = devices(
        DRIVER,
        gpu("little", "1Gi", "large"),
        gpu("faulty", "4Gi", "large", ecc=False),
        gpu("large", "4Gi", "large"),
        gpu("small", "1Gi", "small"),
    )
    assert placed([node("n"), there, *made, pod("p", "c")]) == {"p": ["large", "small"]}


# --- KEP-3675 and KEP-14 ------------------------------------------------------------------------------------

CORES = """
    {
      "cores": ["1", "20"],
      "cpu attributes": [["EXCLUSIVE"], ["SHARED"]]
    }
"""
CONFIG_MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cores", "namespace": "ns"}}
COMPUTE = old(
    "ResourceClaimTemplate",
    "compute",
    "v1alpha1",
    spec={
        "metadata": {"labels": {"app": "inline-resource"}},
        "spec": {"resourceClassName": "CPUressources", "parametersRef": {"kind": "ConfigMap", "name": "cores"}},
    },
)


@pytest.mark.parametrize("file", [{"data": {"config.json": CORES}}, {"data": None, "config.json": CORES}])
def test_template_with_a_config_map_of_cores_gets_cores(tmp_path: Path, file: Object) -> None:
    made, told, code = converted(tmp_path, {**CONFIG_MAP, **file}, COMPUTE)
    assert (told, code) == ("", 0)
    assert [each["metadata"]["name"] for each in made] == ["compute"]
    assert made[0]["spec"]["metadata"] == {"labels": {"app": "inline-resource"}}
    cpus = api_object("DeviceClass", "dra.cpu", spec={"selectors": of_driver("dra.cpu")})
    asking = pod("p")
    asking["spec"]["resourceClaims"] = [{"name": "cores", "resourceClaimTemplateName": "compute"}]
    assert placed([node("n"), cpus, devices("dra.cpu", {"name": "cpu-0"}), *made, asking]) == {"p": ["cpu-0"]}


HIGH_MEMORY: Object = {
    "kind": "ResourceClass",
    "metadata": {"name": "nvidia.high.mem"},
    "spec": {
        "resourceName": "nvidia.com/gpu",
        "resourceSelector": [{"matchExpressions": [{"key": "memory", "operator": "Gt", "values": ["15G"]}]}],
    },
}
LIMITED: Object = {
    "kind": "Pod",
    "metadata": {"name": "example-pod"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.high.mem": 2}}}]},
}


def test_limit_on_a_class_names_the_resource_that_stands_for_it(tmp_path: Path) -> None:
    made, told, code = converted(tmp_path, HIGH_MEMORY, LIMITED)
    assert (told, code) == ("", 0)
    assert made[1]["spec"]["containers"][0]["resources"]["limits"] == {"dra-extender.dev/nvidia.high.mem": 2}
    there = devices("gpu.nvidia.com", gpu("a", "16G", "x"), gpu("b", "8G", "x"), gpu("c", "80G", "x"))
    assert placed([node("n"), there, *made]) == {"example-pod": ["a", "c"]}


def test_validate_names_the_resource_that_stands_for_a_class(tmp_path: Path) -> None:
    assert refusals(tmp_path, {"apiVersion": "v1", **LIMITED}) == [
        (
            "Pod example-pod: spec.containers[0].resources.limits[nvidia.high.mem]: unknown resource; extended "
            "resources "
            "have a domain: the devices of a ResourceClass of this name are dra-extender.dev/nvidia.high.mem"
        )
    ]


# --- what validate says -------------------------------------------------------------------------------------


def test_validate_names_the_counterpart_of_each_old_field(tmp_path: Path) -> None:
    spec = {"resourceClassName": "gpu", "allocationMode": "Immediate", "parametersRef": PARAMETERS}
    cores = old("ResourceClaim", "cores", "v1", spec={"parametersRef": {"kind": "ConfigMap", "name": "cores"}})
    claim = old("ResourceClaim", "c", "v1", spec={**spec, "controller": "x"}, status={"deallocationRequested": True})
    suitable = api_object("DeviceClass", "d", spec={"suitableNodes": {}})
    found = refusals(
        tmp_path, ACME, claim, suitable, consumer(source=FROM_TEMPLATE), old("PodScheduling", "c"), WANTED, cores
    )
    assert [each.removesuffix(" today; dra-extender convert writes it") for each in found] == [
        "ResourceClass acme-gpu: kind: is DeviceClass of resource.k8s.io/v1",
        "ResourceClass acme-gpu: driverName: is metadata.annotations[dra-extender.dev/controller]",
        "ResourceClass acme-gpu: parametersRef: is metadata.annotations[dra-extender.dev/parameters-ref]",
        "ResourceClass acme-gpu: suitableNodes: is metadata.annotations[dra-extender.dev/suitable-nodes]",
        "ResourceClaim c: spec.allocationMode: is the annotation dra-extender.dev/allocation-mode of the claim",
        "ResourceClaim c: spec.controller: has no counterpart: the claim has no device class",
        "ResourceClaim c: spec.resourceClassName: is spec.devices.requests[].exactly.deviceClassName",
        "ResourceClaim c: spec.parametersRef: is the annotation dra-extender.dev/parameters-ref of the claim",
        (
            "ResourceClaim c: status.deallocationRequested: has no counterpart: dra-extender asks for it by an "
            "annotation, "
            "once the claim is allocated"
        ),
        "DeviceClass d: spec.suitableNodes: is metadata.annotations[dra-extender.dev/suitable-nodes]",
        (
            "Pod consumer: spec.resourceClaims[0].source.resourceClaimTemplateName: is "
            "spec.resourceClaims[0].resourceClaimTemplateName"
        ),
        "Pod consumer: spec.containers[0].resources.claims[0]: is an object with a name: {name: gpu}",
        "Pod consumer: spec.containers[1].resources.claims[0]: is an object with a name: {name: gpu}",
        "PodScheduling c: apiVersion: is dra-extender.dev/v1alpha1",
        "PodScheduling c: kind: is PodSchedulingContext",
        "ResourceClaimParameters generated-2: kind: is a part of the claims that name it",
        (
            "ResourceClaim cores: spec.parametersRef: is the requests for the cores of ConfigMap cores, or the "
            "annotation dra-extender.dev/parameters-ref of the claim"
        ),
    ]


@pytest.mark.parametrize("name", ["v1", "v1beta2", "v1beta1"])
def test_objects_of_today_are_left_alone(tmp_path: Path, name: str) -> None:
    status = {"allocation": {"devices": {}}, "reservedFor": []}
    claim = old("ResourceClaim", "c", name, spec={"devices": {}}, status=status)
    made, told, code = converted(tmp_path, claim, api_object("DeviceClass", "d", spec={}), pod("p", "c"))
    assert (made, code) == ([], 0)
    assert told == "note: there is no ResourceClass, no compute claim and no object of an earlier API\n"


# --- what has no counterpart is told ------------------------------------------------------------------------

NOT_SHARED = {**WANTED, "shareable": False}
LISTS = {
    **WANTED,
    "driverRequests": [
        {"driverName": DRIVER, "requests": [{"namedResources": {"selector": '"a" in attributes.stringslice["x"]'}}]}
    ],
}
ALLOCATED = {"driverName": DRIVER, "allocation": {"resourceHandles": []}, "reservedFor": [{"name": "p"}]}


@pytest.mark.parametrize(
    ("objects", "lost"),
    [
        pytest.param(
            [{**CLAIM, "status": ALLOCATED}, WANTED],
            [
                "ResourceClaim ns/c: status.allocation: has no counterpart: the claim is allocated again",
                (
                    "ResourceClaim ns/c: status.driverName: has no counterpart: the annotation of the device "
                    "class names "
                    "the controller"
                ),
                "ResourceClaim ns/c: status.reservedFor: has no counterpart: the claim is reserved again",
            ],
            id="an allocation",
        ),
        pytest.param(
            [CLAIM, NOT_SHARED],
            [
                (
                    "ResourceClaim ns/c: spec.parametersRef (ResourceClaimParameters generated-2).shareable: has no "
                    "counterpart: any number of pods can use a claim; write a claim template for one claim each"
                )
            ],
            id="a claim for one pod",
        ),
        pytest.param(
            [CLAIM, LISTS],
            [
                (
                    "ResourceClaim ns/c: spec.parametersRef (ResourceClaimParameters generated-2).driverRequests[0]"
                    ".requests[0].namedResources.selector: has no counterpart: attributes.stringslice: write "
                    "the condition "
                    "with attributes that devices have today"
                )
            ],
            id="a list of texts",
        ),
        pytest.param(
            [{**STRUCTURED, "suitableNodes": {"nodeSelectorTerms": []}}],
            [
                (
                    "ResourceClass gpu: suitableNodes: has no counterpart: devices say on which nodes they are; "
                    "give the "
                    "pods a node selector otherwise"
                ),
                (
                    "ResourceClass gpu: parametersRef: has no counterpart: GPUInit init is not among the files, "
                    "nor are "
                    "ResourceClassParameters made of it"
                ),
            ],
            id="nodes and parameters of a class",
        ),
        pytest.param(
            [WANTED],
            [
                (
                    "ResourceClaimParameters ns/generated-2: kind: has no counterpart: it becomes a part of the "
                    "claims that "
                    "name it, and none among the files does"
                )
            ],
            id="parameters that nobody names",
        ),
        pytest.param(
            [{**CONFIG_MAP, "metadata": {"name": "core", "namespace": "ns"}, "data": {"config.json": CORES}}, COMPUTE],
            [
                (
                    "ResourceClaimTemplate ns/compute: spec.spec.parametersRef: has no counterpart: ConfigMap "
                    "cores is not "
                    "among the files; did you mean core?"
                ),
                (
                    "ResourceClaimTemplate compute: spec.spec.devices.requests[0].exactly.deviceClassName: "
                    '"CPUressources" is not a DNS subdomain: lower case letters, digits, - and .'
                ),
            ],
            id="another name of a ConfigMap",
        ),
        pytest.param(
            [
                old(
                    "ResourceClaim",
                    "c",
                    "v1",
                    spec={"controllerName": "x", "devices": {"requests": [exactly("r", "gpu")]}},
                )
            ],
            [
                (
                    "ResourceClaim ns/c: spec.controllerName: has no counterpart: annotate a device class of "
                    "the claim such "
                    "as gpu with dra-extender.dev/controller: x"
                )
            ],
            id="a controller whose class is not there",
        ),
        pytest.param(
            [old("ResourceClass", "gpu", driverName=DRIVER, zebra=1)],
            ["ResourceClass gpu: zebra: has no counterpart: the old API had no such field, or it is read no more"],
            id="a field that nobody knows",
        ),
        pytest.param(
            [old("ResourceClaim", "c", spec={"resourceClassName": "gpu", "allocationMode": "Later"})],
            [
                (
                    "ResourceClaim ns/c: spec.allocationMode: has no counterpart: there are Immediate and "
                    "WaitForFirstConsumer"
                )
            ],
            id="a mode that nobody knows",
        ),
    ],
)
def test_what_is_lost_is_told_with_object_and_field(tmp_path: Path, objects: list[Object], lost: list[str]) -> None:
    _, told, code = converted(tmp_path, *objects)
    assert told.splitlines() == [f"error: {tmp_path / 'old.yaml'}: {each}" for each in lost]
    assert code == 1


WRONG: tuple[object, ...] = (None, 5, "x", [], {}, [None], [5], {"a": 1}, {"spec": 5}, [{"requests": 7}])
FIELDS = ("spec", "status", "parametersRef", "driverRequests", "filters", "metadata", "apiVersion")


@pytest.mark.parametrize("kind", ["ResourceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceClaimParameters"])
def test_nothing_that_somebody_writes_is_a_fault(kind: str) -> None:
    for field in FIELDS:
        for wrong in WRONG:
            obj = {**old(kind, "generated-2"), "structuredParameters": True, field: wrong}
            changes_of(obj)
            found = list(rewritten([obj, CLAIM, STRUCTURED], [consumer(source=wrong)], {}))
            load_objects([each.made for each in found], "made")
            assert STRUCTURED in [each.before for each in found]
