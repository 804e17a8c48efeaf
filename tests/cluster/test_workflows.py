"""The workflows of the forge, as its linter and the Makefile see them."""

import os
import re
import subprocess

import pytest
import yaml

from tests.kit.controlplane.binaries import BinariesError, find_actionlint
from tests.kit.places import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))


def test_the_linter_finds_nothing() -> None:
    try:
        linter = find_actionlint(os.environ)
    except BinariesError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [linter, "-shellcheck=", "-pyflakes=", *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_every_action_is_named_by_its_commit() -> None:
    actions = [each for path in WORKFLOWS for each in re.findall(r"uses: (\S+)", path.read_text())]
    assert actions
    assert [each for each in actions if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", each)] == []


def test_workflows_run_targets_that_there_are() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = {each for path in WORKFLOWS for each in re.findall(r"run: make ([a-z-]+)", path.read_text())}
    assert {"check", "test", "release"} <= used <= targets


def test_the_token_of_a_workflow_may_only_read_unless_a_job_says_so() -> None:
    assert {str(yaml.safe_load(path.read_text())["permissions"]) for path in WORKFLOWS} == {"{'contents': 'read'}"}


def test_the_forge_signs_where_each_file_of_a_release_comes_from_before_it_is_published() -> None:
    """SHA256SUMS names them all (tests/release)."""
    job = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())["jobs"]["files"]
    steps = [each.get("uses", "").partition("@")[0] or each["run"] for each in job["steps"]]
    (place,) = (index for index, step in enumerate(steps) if step == "actions/attest-build-provenance")
    assert job["steps"][place]["with"] == {"subject-checksums": "dist/SHA256SUMS"}
    assert any(step.startswith("gh release create") for step in steps[place:])
    assert (job["permissions"]["attestations"], job["permissions"]["id-token"]) == ("write", "write")
