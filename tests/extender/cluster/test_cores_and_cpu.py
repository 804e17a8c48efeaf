"""Compute claims and the CPU of their pods: where they disagree, `validate` and `explain` say so."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import Cluster
from extender.faces.commands.main import app
from tests.extender.faces.commands.scenes import RUNNER
from tests.kit.objects.parts import api_object
from tests.kit.places import CONFIG

STORY = CONFIG / "compute"
LITTLE = (
    "its claims take 5 CPUs, and its containers request cpu 3: the scheduler gives the others to other pods, too; "
    "write cpu 5"
)


def documents() -> list[Any]:
    """A node with CPUs, and claims for them."""
    files = [each for file in sorted(STORY.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]
    return [each for each in files if each["kind"] != "Pod"]


def a_pod(*cpus: str, name: str = "packet-core", limits: str = "") -> dict[str, Any]:
    """A pod with the claim of its first container; each container has a CPU. The claim takes 5 cores."""
    containers: list[dict[str, Any]] = [
        {"name": f"c{number}", "image": "i", "resources": {"requests": {"cpu": cpu}}} for number, cpu in enumerate(cpus)
    ]
    if limits:
        containers[0]["resources"] = {"limits": {"cpu": limits}}
    containers[0]["resources"]["claims"] = [{"name": "compute"}]
    entry = {"name": "compute", "resourceClaimTemplateName": name}
    return {"containers": containers, "resourceClaims": [entry]}


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "as many": (a_pod("5", "20"), ""),
    "a limit counts where there is no request": (a_pod("5", limits="5"), ""),
    "too little": (a_pod("2", "1"), f"containers: {LITTLE}"),
    "too much beside the claim": (
        a_pod("9"),
        "containers[0].resources: cpu 9 is requested, and the container runs on the 5 CPUs of its claims alone",
    ),
    "much for a container without the claim": (a_pod("5", "90"), ""),
    "cores that keep their siblings free": (a_pod("2", name="quiet-cores"), ""),
    "a claim that is not among the manifests": (a_pod("1", name="elsewhere"), ""),
}


def wrapped(kind: str, spec: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """An object whose pods have this spec, and where it has it."""
    if kind == "Pod":
        return api_object("Pod", "p", namespace="telco", apiVersion="v1", spec=spec), "spec"
    labels = {"app": "p"}
    inner = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    return api_object("Deployment", "p", namespace="telco", apiVersion="apps/v1", spec=inner), "spec.template.spec"


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
@pytest.mark.parametrize(("spec", "problem"), CASES.values(), ids=CASES)
def test_validate_names_the_field(tmp_path: Path, spec: dict[str, Any], problem: str, kind: str) -> None:
    made, place = wrapped(kind, spec)
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([*documents(), made]))
    found = RUNNER.invoke(app, ["validate", str(file)])
    expected = f"{kind} telco/p: {place}.{problem}" if problem else ""
    assert (found.exit_code, expected in " ".join(found.stderr.split()), "cpu" in found.stderr) == (
        0,
        True,
        bool(problem),
    )


MUCH = "container c0: cpu 9 is requested, and the container runs on the 5 CPUs of its claims alone"


def test_explain_says_so_too() -> None:
    notes = {}
    for cpus in (("2", "1"), ("5", "1"), ("9", "90")):
        made, _ = wrapped("Pod", {**a_pod(*cpus), "schedulerName": "dra-scheduler"})
        notes[cpus] = Cluster.from_objects([*documents(), made]).explain("telco/p").notes
    assert LITTLE in notes["2", "1"]
    assert [each for each in notes["9", "90"] if "CPUs" in each] == [MUCH]
    assert not any("CPUs" in note for note in notes["5", "1"])


@pytest.mark.parametrize(("status", "is_told"), [({}, False), ({"startTime": "2026-01-01T00:00:00Z"}, True)])
def test_explain_names_the_drivers_that_a_pod_needs_to_start(status: dict[str, str], is_told: bool) -> None:
    parameters = {"opaque": {"driver": "dra.cpu", "parameters": {"cci driver": "packing.example.com"}}}
    requests = [{"name": "cpus", "exactly": {"deviceClassName": "dra.cpu"}}]
    results = [{"request": "cpus", "driver": "dra.cpu", "pool": "telco-1", "device": "cpu-1"}]
    claim = api_object(
        "ResourceClaim",
        "two",
        namespace="telco",
        spec={"devices": {"requests": requests, "config": [parameters]}},
        status={
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
        },
    )
    spec = {
        "nodeName": "telco-1",
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "cpus"}]}}],
        "resourceClaims": [{"name": "cpus", "resourceClaimName": "two"}],
    }
    made, _ = wrapped("Pod", spec)
    pod = {**made, "status": {"phase": "Pending", **status}, "metadata": {**made["metadata"], "uid": "uid-p"}}
    notes = Cluster.from_objects([*documents(), claim, pod]).explain("telco/p").notes
    told = [each for each in notes if "on the node, it needs driver dra.cpu, CCI driver packing.example.com" in each]
    assert bool(told) is is_told


def test_devices_that_take_their_cpu_of_the_node_themselves_are_no_conflict(tmp_path: Path) -> None:
    objects = documents()
    for each in objects:
        if each["kind"] == "ResourceSlice" and each["spec"]["driver"] == "dra.cpu":
            mapping = {"cpu": {"mapping": {"deviceMultiplier": "1"}}}
            each["spec"]["devices"][0]["nodeAllocatableResources"] = mapping
    made, _ = wrapped("Pod", a_pod("1"))
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([*objects, made]))
    found = RUNNER.invoke(app, ["validate", str(file)])
    assert (found.exit_code, "CPUs" in found.stderr) == (0, False)
    assert LITTLE not in Cluster.from_objects([*objects, made]).explain("telco/p").notes
