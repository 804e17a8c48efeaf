"""deploy/, as Helm, kustomize and pip make it into what runs: objects that an API server takes, a service."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import SLICES, Resource
from tests.cluster.rendering import CHART, Values, chart, deployment_of, kustomization
from tests.kit.controlplane.client import Client, connect
from tests.kit.controlplane.components import ControlPlane
from tests.kit.objects.manifests import resource_slice
from tests.kit.places import ROOT
from tests.kit.waiting import wait_for_answer

DEPLOY = ROOT / "deploy"
BASE = DEPLOY
WITH_API, WITH_EXPANDER, WITH_GATES, WITH_KUEUE, ONLY_SCHEDULER = (
    Path(__file__).parent / name
    for name in ("with_api", "with_expander", "with_scheduling_gates", "with_kueue", "as_only_scheduler")
)
COMPONENTS = {
    "api": (WITH_API, ("ClusterRole", "dra-extender-viewer")),
    "expander": (WITH_EXPANDER, ("Service", "dra-extender-grpc")),
    "schedulingGates": (WITH_GATES, ("MutatingAdmissionPolicy", "dra-extender-gate")),
    "admissionChecks": (WITH_KUEUE, ("ClusterRole", "dra-extender-kueue")),
    "onlyScheduler": (ONLY_SCHEDULER, ("MutatingAdmissionPolicy", "dra-extender-marker")),
}
"""A component of kustomize by the chart's name for it, and one of its objects."""

NODE_PART, MOCK_DRIVER, CRDS = (DEPLOY / name for name in ("node", "mock-driver", "crds"))
WITHOUT = Path(__file__).parent / "without_features"

RBAC, ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
OF_CLUSTER = {"DeviceClass", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy"}
OF_CLUSTER |= {"ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
RESOURCES: Mapping[str, Resource] = {
    kind: Resource(kind, plural, group, ("v1",), namespaced=kind not in OF_CLUSTER)
    for kind, plural, group in (
        ("ConfigMap", "configmaps", ""),
        ("Service", "services", ""),
        ("ServiceAccount", "serviceaccounts", ""),
        ("Deployment", "deployments", "apps"),
        ("NetworkPolicy", "networkpolicies", "networking.k8s.io"),
        ("Role", "roles", RBAC),
        ("RoleBinding", "rolebindings", RBAC),
        ("ClusterRole", "clusterroles", RBAC),
        ("ClusterRoleBinding", "clusterrolebindings", RBAC),
        ("DaemonSet", "daemonsets", "apps"),
        ("PodDisruptionBudget", "poddisruptionbudgets", "policy"),
        ("DeviceClass", "deviceclasses", "resource.k8s.io"),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", ADMISSION),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", ADMISSION),
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", ADMISSION),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", ADMISSION),
    )
}
OF_NODE_PART = {"DaemonSet", "DeviceClass", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
OF_NODE_PART |= {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
POLICIES = {kind for kind in RESOURCES if "AdmissionPolicy" in kind}
OF_BASE = {kind for kind in RESOURCES if kind not in OF_NODE_PART | POLICIES} | {
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
}


WITH_POLICIES = ("schedulingGates", "onlyScheduler")
"""Values of the chart that need MutatingAdmissionPolicy, so Kubernetes 1.36."""

ALL: Values = {
    "api": {"enabled": True},
    "expander": {"enabled": True, "anonymous": True},
    "node": {"enabled": True},
    **{name: {"enabled": True} for name in WITH_POLICIES},
}
"""But for what makes objects of kinds that are defined in the cluster."""


def has_mutating_policies(kubernetes: str) -> bool:
    return kubernetes not in {"1.34", "1.35"}


@pytest.mark.parametrize(
    ("what", "kinds"),
    [
        *((each, OF_BASE) for each in (CHART, BASE, WITH_API, WITH_EXPANDER, WITHOUT)),
        *((each, OF_BASE | POLICIES) for each in (WITH_GATES, ONLY_SCHEDULER)),
        (NODE_PART, OF_NODE_PART),
        (MOCK_DRIVER, OF_NODE_PART - {"DeviceClass"} | {"ConfigMap"}),
    ],
    ids=[
        *("chart", "kustomization", "api", "expander", "without features", "gates", "only scheduler"),
        *("node part", "mock driver"),
    ],
)
@pytest.mark.every_version
async def test_an_api_server_takes_every_object(
    client: Client, kubernetes: str, renderer: Path, helm: Path, what: Path, kinds: set[str]
) -> None:
    if what in {WITH_GATES, ONLY_SCHEDULER} and not has_mutating_policies(kubernetes):
        pytest.skip("it needs Kubernetes 1.36")
    version = (await client.read("/version"))["gitVersion"]
    objects = chart(helm, version=version) if what == CHART else kustomization(renderer, what)
    assert {each["kind"] for each in objects} == kinds
    await check_taken(client, objects)


@pytest.mark.every_version
async def test_an_api_server_takes_the_chart_with_all_features(client: Client, kubernetes: str, helm: Path) -> None:
    none = {} if has_mutating_policies(kubernetes) else {name: {"enabled": False} for name in WITH_POLICIES}
    version = (await client.read("/version"))["gitVersion"]
    await check_taken(client, chart(helm, {**ALL, **none}, version=version))


async def check_taken(client: Client, objects: list[RawObject]) -> None:
    """An API server takes each object in a dry run, with fields that it knows."""
    for each in objects:
        taken = await client.try_out(RESOURCES[each["kind"]], each)
        assert taken["metadata"]["name"] == each["metadata"]["name"]


async def test_it_would_not_take_just_anything(client: Client, renderer: Path) -> None:
    (deployment,) = (each for each in kustomization(renderer, BASE) if each["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["prots"] = []
    with pytest.raises(Exception, match="prots"):
        await client.try_out(RESOURCES["Deployment"], deployment)


def test_chart_and_kustomization_make_the_same_objects(renderer: Path, helm: Path) -> None:
    assert named(chart(helm)) == named(kustomization(renderer, BASE))


def test_a_feature_that_is_off_takes_its_rights_with_it(renderer: Path, helm: Path) -> None:
    by_chart = named(chart(helm, {"preemption": False, "extendedResources": False}))
    by_component, with_all = (named(kustomization(renderer, what)) for what in (WITHOUT, BASE))
    assert in_order(by_chart) == in_order(by_component)
    assert {name for kind, name in with_all.keys() - by_chart.keys() if kind == "ClusterRole"} == {
        "dra-extender-preemption",
        "dra-extender-extended-resources",
    }


@pytest.mark.parametrize("name", COMPONENTS)
def test_chart_and_component_make_the_same_objects(renderer: Path, helm: Path, name: str) -> None:
    component, one = COMPONENTS[name]
    values: Values = {name: {"enabled": True, **({"anonymous": True} if name == "expander" else {})}}
    by_chart, by_component = named(chart(helm, values)), named(kustomization(renderer, component))
    assert one in by_chart
    assert in_order(by_chart) == in_order(by_component)


KINDS: Values = {"deviceQuotas": True, "resourceClasses": True, "podSchedulingContexts": True}


@pytest.mark.parametrize(
    ("values", "what"), [({"node": {"enabled": True}}, NODE_PART), (KINDS, CRDS)], ids=["node part", "kinds"]
)
def test_chart_and_kustomization_add_the_same_objects(renderer: Path, helm: Path, values: Values, what: Path) -> None:
    with_it, without, added = named(chart(helm, values)), named(chart(helm)), named(kustomization(renderer, what))
    assert {key: each for key, each in with_it.items() if key not in without} == added
    assert {key: each for key, each in with_it.items() if key in without} == without


def in_order(found: dict[tuple[str, str], RawObject]) -> dict[tuple[str, str], RawObject]:
    """The objects with the lists of their pods in order: a patch of kustomize puts its entries first."""
    pod = found["Deployment", "dra-extender"]["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        for field in ("env", "ports", "volumeMounts"):
            container.get(field, []).sort(key=lambda each: each["name"])
    pod["volumes"].sort(key=lambda each: each["name"])
    return found


NODE_ACCOUNT = "system:serviceaccount:kube-system:dra-extender-node"
SLICE_CASES = {
    "its own": ("node-1", "node-1", "dra.cpu", ""),
    "of another node": (
        "node-1",
        "node-2",
        "dra.cpu",
        "spec.nodeName is not the node of the pod that writes the slice",
    ),
    "of another driver": ("node-1", "node-1", "gpu.example.com", "spec.driver is not a driver of dra-extender node"),
    "with a token that names no node": ("", "node-1", "dra.cpu", "spec.nodeName is not the node of the pod"),
}


async def test_the_node_part_writes_slices_of_its_own_node_and_its_own_drivers_only(
    client: Client, plane: ControlPlane, renderer: Path
) -> None:
    async def refusal(node: str, of: str, driver: str) -> str:
        obj = resource_slice("try", of, [{"name": "cpu-1"}], driver=driver)
        async with connect(plane.access(), user=NODE_ACCOUNT, node=node) as account:
            try:
                await account.try_to_create(SLICES, obj)
            except ApiError as error:
                return error.message
        return ""

    async def refusals() -> list[str]:
        return [await refusal(*case) for *case, _ in SLICE_CASES.values()]

    def are_right(found: list[str]) -> bool:
        expected = [words for *_, words in SLICE_CASES.values()]
        return all((words in told) if words else not told for words, told in zip(expected, found, strict=True))

    async with AsyncExitStack() as stack:
        for each in kustomization(renderer, NODE_PART):
            if each["kind"] in OF_CLUSTER - {"DeviceClass"}:
                await client.create(RESOURCES[each["kind"]], each)
                key = ObjectKey("", each["metadata"]["name"])
                stack.push_async_callback(client.delete, RESOURCES[each["kind"]], key)
        # A policy counts some time after it was made.
        found = await wait_for_answer(refusals, are_right, f"the API server judges {list(SLICE_CASES)}", within=30)
        assert are_right(found)


def named(objects: list[RawObject]) -> dict[tuple[str, str], RawObject]:
    """By kind and name, without what the two do in their own ways so that another configuration rolls the pods."""
    found = {}
    for each in objects:
        # kustomize's hashes have these characters only, so no name of ours looks like one.
        text = re.sub(r"dra-extender-[2456789bcdfghkmt]{10}\b", "dra-extender", json.dumps(each))
        obj: Any = json.loads(text)
        if obj["kind"] == "Deployment":
            obj["spec"]["template"]["metadata"].pop("annotations", None)
        found[obj["kind"], obj["metadata"]["name"]] = obj
    return found


VALUES: Mapping[str, Any] = {
    "replicas": 3,
    "images": {"extender": {"name": "example.com/dra-extender", "digest": f"sha256:{'0' * 64}"}},
    "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.10/32"}}]}]},
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
    "config": {"extender": "log: {level: debug}\n"},
    "imagePullSecrets": [{"name": "registry"}],
    "priorityClassName": "system-node-critical",
    "extraEnv": {"extender": [{"name": "DRA_EXTENDER__LOG__LEVEL", "value": "debug"}]},
    "extraArgs": {"scheduler": ["-v=2"]},
    "labels": {"team": "infra"},
    "annotations": {"reloader": "no"},
    "podLabels": {"mesh": "no"},
    "podAnnotations": {"sidecar": "no"},
    "affinity": {"podAntiAffinity": {}},
    "topologySpreadConstraints": [],
}


async def test_the_charts_values_reach_the_objects(client: Client, helm: Path) -> None:
    objects = chart(helm, VALUES)
    taken = await client.try_out(RESOURCES["Deployment"], deployment_of(objects))
    pod, metadata = taken["spec"]["template"]["spec"], taken["spec"]["template"]["metadata"]
    assert taken["spec"]["replicas"] == 3
    check, extender = pod["initContainers"]
    assert check["image"] == extender["image"] == f"example.com/dra-extender@sha256:{'0' * 64}"
    for name in ("nodeSelector", "tolerations", "imagePullSecrets", "priorityClassName", "affinity"):
        assert pod[name] == VALUES[name], name
    assert "topologySpreadConstraints" not in pod
    assert check["env"] == VALUES["extraEnv"]["extender"] == extender["env"][-1:]
    assert pod["containers"][0]["args"][-1:] == ["-v=2"]
    assert (metadata["labels"]["mesh"], metadata["annotations"]["sidecar"]) == ("no", "no")
    assert taken["metadata"]["annotations"]["reloader"] == "no"
    assert [each["metadata"]["name"] for each in objects if each["metadata"]["labels"]["team"] != "infra"] == []
    (policy,) = (each for each in objects if each["kind"] == "NetworkPolicy")
    taken_policy = await client.try_out(RESOURCES["NetworkPolicy"], policy)
    assert taken_policy["spec"]["egress"] == VALUES["networkPolicy"]["egress"]
    (config,) = (each for each in objects if each["kind"] == "ConfigMap")
    assert config["data"]["extender.yaml"].strip() == "log: {level: debug}"


# --- the image -----------------------------------------------------------------------------------------------


async def test_what_the_image_installs_serves(tmp_path: Path) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    home = tmp_path / "opt"
    install(text, tmp_path / "source", home)
    (entry,) = json.loads(re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[0])
    assert await ready_answer_and_status(home / "bin" / entry, tmp_path) == ("ok\n", 0)


def install(dockerfile: str, source: Path, home: Path) -> None:
    """The steps of the Dockerfile's first stage, in folders of a test; its base image and its user are not here."""
    dockerfile = dockerfile[: dockerfile.rindex("FROM ")]
    source.mkdir()
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE):
        *names, target = line.split()
        for name in names:
            copy(ROOT / name, source / (name if target == "./" else target))
    (run,) = re.findall(r"^RUN ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE)
    # All that is not done as in the image: pip's cache is used, because this is done again and again.
    script = run.replace("\\\n", "").replace("/opt/dra-extender", str(home)).replace("--no-cache-dir ", "")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": ""}
    done = subprocess.run(
        ["/bin/sh", "-ec", script], cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


async def ready_answer_and_status(program: Path, folder: Path) -> tuple[str, int | None]:
    """Serve the example until a SIGTERM: what ``/readyz`` answers, and the exit status."""
    arguments = ("serve", "--port", "0", "--manifests", str(ROOT / "config" / "example"))
    environment = {"PATH": str(program.parent), "PYTHONDONTWRITEBYTECODE": "1", "DRA_EXTENDER__LOG__FORMAT": "json"}
    process = await asyncio.create_subprocess_exec(
        program, *arguments, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE
    )
    assert process.stderr is not None
    try:
        said: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while "url" not in said:
                line = await process.stderr.readline()
                assert line, "it ended before it served"
                said = json.loads(line)
        async with httpx.AsyncClient(base_url=said["url"]) as client:
            answer = (await client.get("/readyz")).text
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.communicate()
        return answer, process.returncode
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
