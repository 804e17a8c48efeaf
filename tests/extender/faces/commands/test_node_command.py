"""`dra-extender node` on a command line that cannot work: each mistake is named before anything is asked."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from extender.faces.commands.main import app
from tests.extender.faces.commands.scenes import RUNNER

FOUR = "cpus: [{id: 0, core: 0}, {id: 1, core: 0}, {id: 2, core: 1}, {id: 3, core: 1}]"


@pytest.mark.parametrize(
    ("topology", "options", "problem"),
    [
        (FOUR, ("--node-name", "N_1"), "--node-name N_1: is not a DNS subdomain"),
        (FOUR, ("--reserved-cpus", "a-b"), '--reserved-cpus: "a-b" is no list of CPUs such as 0-3,8'),
        (FOUR, ("--reserved-cpus", "0,9"), "--reserved-cpus: CPU 9 is not online: 0-3 are"),
        (FOUR, ("--reserved-cpus", ""), "--reserved-cpus: names no CPU: containers without claims need one"),
        (FOUR, ("--kubeconfig", "nowhere"), "nowhere: no such file"),
        ("cpus: []", (), "topology.yaml: cpus: is required: the CPUs of the machine"),
        ("cpus: [{id: 0, sockt: 1}]", (), "topology.yaml: cpus[0].sockt: unknown key"),
        ("cpus: [{id: 0}, {id: 0}]", (), "topology.yaml: cpus: a CPU is there twice"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, topology: str, options: Sequence[str], problem: str) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(topology)
    done = RUNNER.invoke(
        app, ["node", "--node-name", "node-1", "--topology", str(file), *options], env={"KUBECONFIG": ""}
    )
    assert done.exit_code == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_machine_without_an_api_server_is_told_where_one_was_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(FOUR)
    environment = {"KUBECONFIG": "", "HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": ""}
    done = RUNNER.invoke(app, ["node", "--node-name", "node-1", "--topology", str(file)], env=environment)
    assert (done.exit_code, "no API server to connect to" in done.stderr) == (2, True)
