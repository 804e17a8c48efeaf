"""Every proposal does what it says, applied as a person would: the edit is written into the manifests, and simulated.

`PROPOSAL_EXAMPLES` sets the number of random clusters.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings

from allocator import GATES
from extender.answers.explain.explanation import Explanation
from tests.extender.answers.explain.cases import EXPLAINED
from tests.extender.answers.explain.manifests import Manifests
from tests.extender.answers.explain.scenes import BROKEN, Case, consuming, pool, wants, with_fields
from tests.extender.answers.explain.upkeep_cases import UPKEEP
from tests.extender.answers.explain.worlds import World, worlds
from tests.kit.clusters import node, request

CASES: Mapping[str, Case] = {**EXPLAINED, **UPKEEP}
EXAMPLES: Final = int(os.environ.get("PROPOSAL_EXAMPLES", "40"))


def broken_proposals(explanation: Explanation, before: Manifests, folder: Path) -> Iterator[str]:
    """Apply each proposal. Yields the proposals that do not give the pod their devices on their node."""
    for proposal in explanation.proposals:
        manifests = Manifests(before.objects, before.gates)
        manifests.apply(proposal.changes)
        placed = manifests.simulated(folder)["ns/p"]
        if placed.node != proposal.node:
            manifests.cordon_all_but(proposal.node)
            placed = manifests.simulated(folder)["ns/p"]
        if placed.reason.startswith("waiting for "):
            # A device that only the proposal brings is not among its devices.
            holds = not proposal.devices or any(str(device) in placed.reason for device in proposal.devices)
        else:
            devices = {each.result.device for each in placed.devices}
            holds = placed.node == proposal.node and set(proposal.devices) <= devices
        if not holds:
            yield f"{[change.text for change in proposal.changes]}: {placed.reason}\n{explanation!s}"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.explained().proposals])
def test_the_pod_gets_its_devices_once_a_proposal_is_applied(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    gates = {gate: getattr(case.solver.features, feature) for gate, feature in GATES.items()}
    assert list(broken_proposals(case.explained(), Manifests(case.objects, gates), tmp_path)) == []


def test_no_pod_is_deleted_for_a_large_edit_if_a_smaller_edit_does_without_that() -> None:
    """Who does not ask for an amount gets 5G, and two of these need a device for themselves. Who asks gets 3G."""
    policy = {"default": "5G", "validRange": {"min": "1G"}}
    shared = {"allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G", "requestPolicy": policy}}}
    worn = {"capacity": {"bandwidth": {"value": "10G"}}, **BROKEN}
    wanted = [with_fields(request(name), capacity={"requests": {"bandwidth": "10G"}}) for name in ("one", "two")]
    devices = ({"name": "gpu-0", **shared}, {"name": "gpu-1", **shared}, {"name": "gpu-2", **worn})
    users = (("w", "4G", "a/gpu-0"), ("x", "3G", "a/gpu-0"), ("y", "4G", "a/gpu-1"), ("z", "3G", "a/gpu-1"))
    others = (each for user in users for each in consuming(*user))
    found = Case((*wants(*wanted), node("a"), pool("a", *devices), *others)).explained()
    assert [change.text for change in found.proposals[0].changes] == [
        f"ask for 3G of bandwidth instead of 10G in request {name}" for name in ("one", "two")
    ]


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(worlds())
def test_a_proposal_of_any_cluster_holds_once_it_is_applied(tmp_path: Path, world: World) -> None:
    manifests = Manifests(world.objects, world.gates)
    explanation = manifests.cluster(tmp_path).explain("ns/p")
    assert list(broken_proposals(explanation, manifests, tmp_path)) == []
