"""What a new node of a group is like, on the command line: from templates of the settings, and learned from nodes."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from allocator import Features
from extender.faces.commands.main import app
from extender.faces.commands.output import OK, USAGE
from extender.planning.templates import Blueprint, learned, load_templates
from tests.kit.clusters import DRIVER, Object, local_slice, node, snapshot_of
from tests.kit.places import CONFIG

EXAMPLE = str(CONFIG / "example")
LABEL = "example.com/machine"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["template", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def written(tmp_path: Path) -> str:
    """Settings with the node templates of the example."""
    return settings(tmp_path, nodeTemplates=str(CONFIG / "node-templates.yaml"))


@pytest.fixture
def learning(tmp_path: Path) -> str:
    """Settings that learn from nodes."""
    return settings(tmp_path, learnFromLabel=LABEL)


def settings(folder: Path, **autoscaler: str) -> str:
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump({"autoscaler": autoscaler}))
    return str(path)


def manifests(folder: Path, *objects: Object) -> str:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def machine(name: str, *taints: Object, labels: dict[str, str] | None = None, **allocatable: str) -> Object:
    raw = node(name, labels={LABEL: "big", "kubernetes.io/hostname": name, **(labels or {})}, allocatable=allocatable)
    return {**raw, "spec": {"taints": list(taints)}}


def published(blueprint: Blueprint) -> list[Any]:
    """What a node would publish: pools and devices by everything but identity."""
    return [
        (each.pool, each.slice_count, [(d.id, d.attributes, d.quantities, d.consumes_counters) for d in each.devices])
        for each in blueprint.build("node-7")
    ]


def test_a_template_of_the_settings_is_printed_with_a_node_of_the_cluster(written: str) -> None:
    code, text, errors = run("falcon", "--config", written, "-m", EXAMPLE, "--node-name", "node-7", "-o", "json")
    assert (code, errors) == (OK, "note: devices: template falcon\n")
    node, *slices = orjson.loads(text)["items"]
    assert node == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "node-7",
            "labels": {LABEL: "falcon", "topology.kubernetes.io/zone": "east", "kubernetes.io/hostname": "node-7"},
        },
        "spec": {},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}},
    }
    assert [(each["spec"]["nodeName"], each["spec"]["pool"]) for each in slices] == [
        ("node-7", {"generation": 1, "resourceSliceCount": count, "name": "node-7"}) for count in (2, 2, 1)
    ]
    assert "$(NODE_NAME)" not in text


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_the_objects_are_valid_manifests(tmp_path: Path, written: str, form: str) -> None:
    _, text, _ = run("falcon", "--config", written, "-m", EXAMPLE, "-o", form)
    path = tmp_path / f"node.{form}"
    path.write_text(text)
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert (result.exit_code, result.stderr) == (OK, "")


def test_a_template_for_the_settings_is_the_one_that_was_read(written: str) -> None:
    _, text, _ = run("falcon", "--config", written, "-m", EXAMPLE, "-o", "settings")
    (found,) = load_templates(text, file="printed")
    (before,) = (
        each
        for each in load_templates((CONFIG / "node-templates.yaml").read_text(), file="read")
        if each.name == "falcon"
    )
    assert (found.labels, published(found.blueprint)) == (before.labels, published(before.blueprint))


def test_a_template_that_is_learned_brings_what_the_service_learns(tmp_path: Path, learning: str) -> None:
    raw = local_slice("a", 2, attributes={"host": {"string": "a"}, "hosts": {"strings": ["a", "b"]}})
    other = {**local_slice("a"), "metadata": {"name": "slice-nic"}}
    other["spec"] = {**other["spec"], "driver": "nic.example.com", "pool": {**other["spec"]["pool"], "name": "nics"}}
    objects = [machine("a"), raw, other]
    code, text, errors = run("big", "--config", learning, "-m", manifests(tmp_path, *objects), "-o", "settings")
    assert (code, errors) == (OK, "note: devices: learned from node a\n")
    snapshot = snapshot_of(*objects)
    expected = learned([snapshot.nodes["a"].node], snapshot, Features())
    (found,) = load_templates(text, file="printed")
    assert expected is not None
    assert found.labels == {LABEL: "big"}
    assert sorted(published(found.blueprint), key=str) == sorted(published(expected), key=str)


def test_the_node_has_what_all_nodes_of_its_group_have(tmp_path: Path, learning: str) -> None:
    dedicated = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    passing = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    own = {"key": "own", "effect": "NoSchedule"}
    objects = [
        machine("a", dedicated, passing, labels={"zone": "x", "disk": "ssd"}, cpu="8", memory="32Gi", pods="110"),
        machine("b", own, passing, dedicated, labels={"zone": "y", "disk": "ssd"}, cpu="7900m", memory="33Gi"),
    ]
    code, text, errors = run("big", "--config", learning, "-m", manifests(tmp_path, *objects), "-o", "json")
    assert code == OK
    assert errors.startswith("warning: nothing is known of the devices of group big")
    (found,) = orjson.loads(text)["items"]
    assert found["metadata"]["labels"] == {LABEL: "big", "disk": "ssd", "kubernetes.io/hostname": "new-node"}
    assert found["spec"] == {"taints": [dedicated]}
    assert found["status"]["allocatable"] == {"cpu": "7900m", "memory": "32Gi"}


def test_slices_of_an_old_version_become_a_template(tmp_path: Path, learning: str) -> None:
    raw = local_slice("a", attributes={"size": {"int": 7}})
    raw["apiVersion"] = "resource.k8s.io/v1beta1"
    raw["spec"]["devices"] = [{"name": "gpu-0", "basic": {"attributes": {"size": {"int": 7}}}}]
    code, text, _ = run("big", "--config", learning, "-m", manifests(tmp_path, machine("a"), raw), "-o", "settings")
    assert code == OK
    (slice_,) = yaml.safe_load(text)["nodeTemplates"][0]["slices"]
    assert slice_ == {"driver": DRIVER, "devices": [{"name": "gpu-0", "attributes": {"size": {"int": 7}}}]}


def test_a_template_of_the_settings_needs_no_cluster(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    code, text, errors = run("falcon", "--config", written)
    assert code == OK
    assert yaml.safe_load(text)["items"][0]["status"] == {}
    assert errors.startswith("note: there is no cluster, so the taints and the amounts of the Node are not known")
    code, _, errors = run("crow", "--config", written)
    assert (code, errors.split(":")[1]) == (USAGE, " no API server to connect to")


def test_mistakes_on_the_command_line(tmp_path: Path, learning: str) -> None:
    cluster = manifests(tmp_path, machine("a"))
    mistakes = {
        ("bigg", "-m", cluster, "-c", learning): (
            'no node template is called "bigg", and no node has the label example.com/machine with this value; '
            "did you mean big?"
        ),
        ("crow", "-m", cluster): (
            'no node template is called "crow", and nothing is learned from nodes: autoscaler.learnFromLabel is not set'
        ),
        ("big", "-m", cluster, "--node-name", "A"): "--node-name A: ",
        ("big", "-m", cluster, "--context", "c"): "manifests name a cluster in memory",
    }
    for arguments, text in mistakes.items():
        code, printed, errors = run(*arguments)
        assert (code, printed) == (USAGE, "")
        assert text in errors
