"""docs/reference/proposals.md against the code: each row's links and names, what it denies, and what it has."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.kit.places import ROOT

PAGE = ROOT / "docs" / "reference" / "proposals.md"
METRICS = ROOT / "docs" / "reference" / "metrics.md"
ROWS = re.findall(r"^\| (here|differs|not) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
CODE = ("allocator", "extender", "config", "deploy")

OF_OTHERS = {"spec.nodeName", "example.com/gpu: 1", '"true"', "node.kubernetes.io/out-of-service"}
"""Names of Kubernetes and examples, which the code need not have as they stand."""

DENIED = {
    "prices: ": r"\bprices\b|price_per|price_of",
    "New machines": r"create_machine|scale_up_group",
    "A guarantee of isolation": r"isolation.?guarantee",
    "a limit on the number of claims of a class": r"\.deviceclass\.resource\.k8s\.io/resourceclaims",
    "a feature gate: the administrator installs": r"CCIGate|ContainerComputeInterface",
    "Hints for kubelet's topology manager": r"TopologyHint|GetTopologyHints",
    "Repair of drivers": r"repair_driver|restart_driver",
    "A time-out after which a pod without its driver fails for good": r"phase.{0,9}Failed.{0,40}cci",
    "Cores that are spun up and down": r"cpufreq|scaling_governor|/online\b.*write",
}
"""What the page says that there is not: a pattern that no line of the code may have."""

REFUSED = {
    "Kubelet's CPU manager or memory manager with a static policy": (
        "extender/node/compute_running.py", "memory_manager_state",
    ),
    "devices for extended resources of a pod with `spec.nodeName`": (
        "extender/plugins/pinned_claims.py", "Devices for extended resources are not allocated: kubelet does not wait",
    ),
    "a required place of shared cores": ("extender/cluster/compute_claims.py", "cores belong to no NUMA node"),
    "cores of more than two NUMA nodes in turns": ("extender/cluster/compute_claims.py", "_ZONES: Final = 2"),
    "more than 32 exclusive cores": ("extender/cluster/compute_claims.py", "MAX_RESULTS"),
    "what kubelet does by that entry": ("extender/cluster/writes/reservations.py", "extendedResourceClaimStatus"),
}  # fmt: skip
"""What the page says is refused, or is done by others: the place that shows it."""

THERE = {
    "`cci_manager_driver_up`": ("extender/node/cci/admissions.py", "cci_manager_driver_up"),
    "`coreType`": ("extender/node/compute.py", "coreType"),
    "`--cci-timeout`": ("extender/faces/commands/node.py", "cci_timeout"),
    "NodePrepareResources and NodeUnprepareResources": ("extender/node/plugin.py", '"NodeUnprepareResources"'),
    "`count/resourceclaims.resource.k8s.io`": ("extender/cluster/resource_quotas.py", "count/resourceclaims"),
    "`<class>.deviceclass.resource.k8s.io/devices`": ("extender/cluster/resource_quotas.py", ".deviceclass.resource."),
    "after a node's unexpected shutdown": ("tests/cluster/test_devices_elsewhere.py", "after_its_node_was_shut_down"),
    "`dra.memory`": ("extender/node/compute.py", "dra.memory"),
    "holds 32 devices at most": ("extender/framework/pods/extended_resources.py", "total > MAX_RESULTS"),
}
"""What the page says that there is: the place that has it."""


@cache
def code() -> str:
    paths = [path for folder in CODE for path in sorted((ROOT / folder).rglob("*")) if path.suffix in {".py", ".yaml"}]
    return "\n".join(path.read_text() for path in paths)


def test_the_page_has_rows() -> None:
    assert len(ROWS) == 15


@pytest.mark.parametrize("row", [text for _, text in ROWS])
def test_the_links_of_a_row_lead_to_what_there_is(row: str) -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)[^)]*\)", row) if not target.startswith("https:")]
    assert [target for target in targets if not (PAGE.parent / Path(target)).exists()] == []


@pytest.mark.parametrize("row", [text for _, text in ROWS])
def test_the_names_of_a_row_are_in_the_code(row: str) -> None:
    names = [name for name in re.findall(r"`([^`]+)`", row) if name not in OF_OTHERS]
    missing = [name for name in names if not _is_there(name)]
    assert missing == []


def _is_there(name: str) -> bool:
    if name.startswith("make "):
        return f"\n{name.removeprefix('make ')}:" in (ROOT / "Makefile").read_text()
    if name.startswith(("dra_extender_", "cci_manager_")):  # tests of the metrics compare their page with the code
        return f"`{name}`" in METRICS.read_text()
    parts = [part for part in re.split(r"<\w+>|^dra-extender |^status\.|^--", name) if part]
    return all(part in code() or part.replace("-", "_") in code() for part in parts)


@pytest.mark.parametrize("row", [text for kind, text in ROWS if kind == "not"])
def test_each_denial_is_checked(row: str) -> None:
    denials = [each for each in re.split(r"(?<=[^.\d])\. ", row) if each]
    known = {*DENIED, *REFUSED}
    assert [each for each in denials if not any(phrase in each for phrase in known)] == []


@pytest.mark.parametrize(("phrase", "pattern"), DENIED.items())
def test_what_is_denied_is_not_there(phrase: str, pattern: str) -> None:
    assert any(phrase in text for _, text in ROWS)
    assert re.findall(pattern, code()) == []


@pytest.mark.parametrize(("phrase", "where"), {**REFUSED, **THERE}.items())
def test_what_is_said_is_shown_by_a_place(phrase: str, where: tuple[str, str]) -> None:
    path, text = where
    assert any(phrase in row for _, row in ROWS)
    assert text in (ROOT / path).read_text()
