"""`dra-extender audit`: what is in order, and planted faults."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from extender.answers.audit import audit_snapshot
from extender.faces.commands.audit import listed, second_lines, second_opinion
from extender.faces.commands.main import app
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import load
from tests.kit.places import EXAMPLE


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["audit", *arguments])
    return result.exit_code, result.stdout


def claim(name: str, device: str, count: int = 1) -> dict[str, object]:
    """An allocated claim for a device of the example's gpu-west-1."""
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-west-1"]}]}
    wanted = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": count}
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "gpu-west-1", "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": wanted}]}},
        "status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [here]}}},
    }


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Two claims that hold one device, and one that got fewer devices than it asks for."""
    claims = [claim("one", "gpu-0"), claim("two", "gpu-0"), claim("few", "gpu-1", count=2)]
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump_all(claims))
    return path


def test_the_example_is_in_order() -> None:
    judged = "judged: 1 allocated of 4 claims, 1 pod with claims on nodes"
    second = "devices checked by a second engine (cel-python): 1 agree, 0 differ, 0 not checked"
    assert run(str(EXAMPLE)) == (0, f"every rule holds; {judged}\n{second}\n")
    assert run(str(EXAMPLE), "--output", "json") == (0, "[]\n")


def test_faults_are_named_and_end_in_1(planted: Path) -> None:
    code, text = run("--manifests", str(EXAMPLE), "--manifests", str(planted))
    assert code == 1
    assert "device held twice" in text
    assert "demo/one, demo/two" in text
    assert "wrong number of devices" in text
    assert "request gpu: 1 devices instead of 2" in text


def pod(name: str, claim_name: str, **status: object) -> dict[str, object]:
    """A pod on the example's gpu-west-1."""
    claims = [{"name": "gpu", "resourceClaimName": claim_name}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "demo", "uid": name},
        "spec": {"nodeName": "gpu-west-1", "containers": [{"name": "c", "image": "i"}], "resourceClaims": claims},
        "status": {"phase": "Running", **status},
    }


def test_pods_on_nodes_without_their_claims_are_named(tmp_path: Path) -> None:
    spec: Any = claim("free", "gpu-3")
    free = {**spec, "status": {}}
    pods = [pod("forgotten", "held"), pod("early", "free"), pod("lost", "gone"), pod("done", "gone", phase="Failed")]
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all([claim("held", "gpu-2"), free, *pods]))
    code, text = run(str(EXAMPLE), str(path), "--output", "json")
    assert code == 1
    assert [(each["rule"], each["message"]) for each in orjson.loads(text)] == [
        ("bound pod without allocation", "pod demo/early on node gpu-west-1: claim demo/free is not allocated"),
        (
            "bound pod without reservation",
            "pod demo/forgotten on node gpu-west-1: claim demo/held is not reserved for the pod",
        ),
        ("bound pod without allocation", "pod demo/lost on node gpu-west-1: claim demo/gone does not exist"),
    ]
    _, table = run(str(EXAMPLE), str(path))
    assert table.splitlines()[-2] == "judged: 2 allocated of 6 claims, 4 pods with claims on nodes"


def test_findings_are_printed_as_json_if_asked(planted: Path) -> None:
    code, text = run(str(EXAMPLE), str(planted), "--output", "json")
    assert code == 1
    twice = next(f for f in orjson.loads(text) if f["rule"] == "device held twice")
    assert twice["claims"] == ["demo/one", "demo/two"]
    assert twice["device"] == {"driver": "gpu.example.com", "pool": "gpu-west-1", "device": "gpu-0"}


def selecting(name: str, selector: str) -> dict[str, Any]:
    """An allocated claim whose request has a selector."""
    found: Any = claim(name, "gpu-0")
    found["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [{"cel": {"expression": selector}}]
    return dict(found)


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("sets.contains([1], [1])", "the selector uses sets"),
        ("[1, 2][-1] == 2 || true", "it counts a negative index from the end of a list"),
        (" || ".join(["true"] * 600), "the selector is too long"),
    ],
)
def test_what_the_second_engine_does_not_check_is_said(selector: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(selecting("one", selector)))
    code, text = run(str(EXAMPLE), str(path))
    assert code == 0
    assert text.splitlines()[-2:] == [
        "devices checked by a second engine (cel-python): 1 agree, 0 differ, 1 not checked",
        f"not checked by the second engine: {why} (1)",
    ]


def test_devices_that_the_second_engine_does_not_get_to_are_counted() -> None:
    second = second_opinion(EmbeddedCluster(load([EXAMPLE]).objects).state.snapshot, seconds=-1.0)
    assert list(second_lines(second)) == [
        "devices checked by a second engine (cel-python): 0 agree, 0 differ, 1 not checked",
        "not checked by the second engine: -1 s were up (1)",
    ]


async def test_an_api_server_is_read_once() -> None:
    cluster = EmbeddedCluster(load([EXAMPLE]).objects)
    snapshot = await listed(cluster.api)
    assert len(snapshot.inventory.slices) == len(cluster.state.snapshot.inventory.slices)
    assert set(snapshot.claims) == set(cluster.state.snapshot.claims)
    assert audit_snapshot(snapshot) == ()


def test_nothing_to_audit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    assert run()[0] == 2


def test_manifests_or_a_live_cluster() -> None:
    assert run(str(EXAMPLE), "--context", "test")[0] == 2
