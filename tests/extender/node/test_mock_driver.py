"""`dra-extender mock-driver`: what it cannot do, it says before it publishes anything."""

from pathlib import Path

import pytest

from allocator import parse_node
from extender.faces.commands.main import app
from extender.faces.commands.output import USAGE
from extender.node.mock import no_template
from extender.planning.templates import load_templates
from tests.extender.faces.commands.scenes import RUNNER
from tests.kit.clusters import node

TEMPLATES = """
nodeTemplates:
- {name: gpus, labels: {machine: gpu, zone: a}, slices: [{driver: gpu.example.com, devices: [{name: gpu-0}]}]}
- {name: none, labels: {machine: cpu}, slices: []}
"""


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({}, "template gpus is for machine=gpu, zone=a; template none is for machine=cpu"),
        ({"machine": "gpu"}, "template gpus is for zone=a; template none is for machine=cpu"),
        ({"machine": "cpu"}, "template gpus is for machine=gpu, zone=a; template none has no slices"),
    ],
)
def test_a_node_without_devices_is_told_which_labels_it_lacks(labels: dict[str, str], why: str) -> None:
    found = no_template(parse_node(node("n", labels=labels)), load_templates(TEMPLATES, file="t.yaml"))
    assert found == f"node n: its labels match no template with slices: {why}"


@pytest.mark.parametrize(
    ("text", "arguments", "problem"),
    [
        ("nodeTemplates: [{name: x}]", ("--node-name", "n"), "nodeTemplates[0].labels: is required"),
        (TEMPLATES, ("--node-name", "N!"), "--node-name N!: "),
        (TEMPLATES, ("--node-name", "n", "--kubeconfig", "/nowhere"), "/nowhere: no such file"),
        (TEMPLATES, (), "Missing option '--node-name' (env var: 'NODE_NAME')"),
        (TEMPLATES, ("--node-name", "n", "--cdi-dir", ""), "a path is empty"),
    ],
)
def test_what_cannot_be_used_is_told_with_status_2(
    tmp_path: Path, text: str, arguments: tuple[str, ...], problem: str
) -> None:
    path = tmp_path / "templates.yaml"
    path.write_text(text)
    result = RUNNER.invoke(app, ["mock-driver", str(path), *arguments], env={"NODE_NAME": None})
    assert result.exit_code == USAGE
    assert problem in result.stderr
