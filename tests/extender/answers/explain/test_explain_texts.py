"""Every cause in words: what `explain` prints, word for word, is in explanations.txt beside this file.

A section of that file is the explanation of the pod ns/p in the cluster of the same name here.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from allocator import Limits
from allocator.checks.table import CAUSES
from allocator.reason import Cause
from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import as_json
from extender.answers.explain.pod_claims import with_claims_made
from extender.cluster.snapshot import Unreadable
from extender.framework.filter import filter_nodes
from extender.kube.api import ObjectKey
from extender.planning.changes import combined, configured
from tests.extender.answers.explain.cases import EXPLAINED
from tests.extender.answers.explain.eviction_cases import EVICTIONS
from tests.extender.answers.explain.scenes import Case
from tests.extender.answers.explain.upkeep_cases import UPKEEP
from tests.kit.clusters import DRIVER, claim, node, pod, snapshot_of

GOLDEN = (Path(__file__).parent / "explanations.txt").read_text()
CASES: Mapping[str, Case] = {**EXPLAINED, **UPKEEP, **EVICTIONS}
NOT_OF_DEVICES = {"constraint", "count", "pool", "results"}
"""What is told of requests and pools."""


def sections() -> dict[str, str]:
    parts = re.split(r"^=== (.*)\n", GOLDEN, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (text.strip("\n") + "\n" for text in parts[2::2]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_text(name: str) -> None:
    assert str(CASES[name].explained()) == sections()[name]


@pytest.mark.parametrize("name", CASES)
def test_each_proposal_makes_the_pod_fit(name: str) -> None:
    case, key = CASES[name], ObjectKey("ns", "p")
    snapshot = case.change(snapshot_of(*case.objects))
    snapshot, _ = with_claims_made(snapshot.pods[key], snapshot)
    for proposal in case.explained().proposals:
        after = combined(proposal.changes)(snapshot)
        after, _ = with_claims_made(after.pods[key], after)
        features = configured(proposal.changes, case.solver.features)
        enough = replace(case.solver, limits=Limits(), features=features)
        assert filter_nodes(after.pods[key], [proposal.node], after, enough).passed == (proposal.node,)


def test_every_text_has_its_cluster() -> None:
    assert list(sections()) == list(CASES)


@pytest.mark.parametrize("cause", [each for each in CAUSES if each.name not in NOT_OF_DEVICES], ids=lambda c: c.name)
def test_every_cause_has_a_text(cause: Cause) -> None:
    reports = [report for case in CASES.values() for report in case.explained().requests]
    assert any(fallout.obstacle.cause is cause for report in reports for fallout in report.fallouts)


@pytest.mark.parametrize("name", CASES)
def test_json_says_what_the_text_says(name: str) -> None:
    found = CASES[name].explained()
    document = orjson.loads(orjson.dumps(as_json(found)))
    text = str(found)
    said = [document["summary"].partition(": ")[0], *document["notes"]]
    said += [fallout["text"] for report in document["requests"] for fallout in report["fallouts"]]
    said += [change["how"] for proposal in document["proposals"] for change in proposal["changes"] if change["how"]]
    assert [each for each in said if each not in text] == []


def test_json_has_shares_by_capacity() -> None:
    (report,) = orjson.loads(orjson.dumps(as_json(CASES["too little left of shared devices"].explained())))["requests"]
    shared, _ = report["fallouts"]
    assert shared["need"] == "6G"
    shares = [(each["device"]["device"], each["claim"], each["consumedCapacity"]) for each in shared["holders"]]
    assert [claim for _, claim, _ in shares] == [*(f"ns/x{n}-gpu" for n in range(7, 0, -1)), "ns/y0-gpu", "ns/y1-gpu"]
    assert shares[0] == ("gpu-0", "ns/x7-gpu", {"bandwidth": "1750M", "memory": "1Gi"})
    (report,) = orjson.loads(orjson.dumps(as_json(CASES["in use"].explained())))["requests"]
    assert [each["consumedCapacity"] for each in report["fallouts"][0]["holders"]] == [None, None]


def test_json_has_who_is_evicted_and_who_is_not() -> None:
    document = orjson.loads(orjson.dumps(as_json(CASES["an eviction that a budget moves elsewhere"].explained())))
    assert document["preemption"] == {
        "node": "a",
        "victims": [{"pod": "ns/y", "priority": 1, "node": "a", "borrowed": False}],
        "budgetViolations": 0,
        "spared": [
            {"reason": "PodDisruptionBudget ns/db allows no eviction, and others suffice", "names": ["pod ns/x"]}
        ],
    }
    assert as_json(CASES["in use"].explained())["preemption"] is None


def test_nothing_is_said_of_evictions_if_preemption_is_off() -> None:
    case = CASES["an eviction of the pod that matters least"]
    snapshot = snapshot_of(*case.objects)
    explainer = Explainer.alone(snapshot, case.solver, preempts=False)
    assert explainer.explain(snapshot.pods[ObjectKey("ns", "p")]).preemption is None


@pytest.mark.parametrize("name", CASES)
def test_names_are_those_of_what_exists(name: str) -> None:
    """Every device, claim and pod that a text names is in the cluster; what is to be added has no name."""
    snapshot = CASES[name].change(snapshot_of(*CASES[name].objects))
    text = str(CASES[name].explained())
    devices = {str(d.id) for s in snapshot.inventory.slices.values() for d in s.devices} | {f"{DRIVER}/a/gpu-0"}
    named = set(re.findall(rf"\b{DRIVER}/[a-z0-9-]+/[a-z0-9-]+", text))
    assert named <= devices
    assert set(re.findall(r"\bpod (ns/[a-z0-9-]+)", text)) <= {str(key) for key in snapshot.pods}


@pytest.mark.parametrize(
    ("kind", "key", "advice"),
    [
        ("ResourceClaim", ObjectKey("ns", "gpu"), "correct ResourceClaim ns/gpu"),
        ("DeviceClass", ObjectKey("", "gpu"), "correct DeviceClass gpu"),
    ],
)
def test_what_can_not_be_read_is_to_be_corrected_not_made(kind: str, key: ObjectKey, advice: str) -> None:
    objects = (node("n"), pod("p", "gpu"), *([claim("gpu")] if kind == "DeviceClass" else []))
    case = Case(
        objects, change=lambda snapshot: snapshot.with_problem(kind, key, Unreadable("spec: 1 is not an object"))
    )
    explanation = case.explained()
    assert explanation.advice == advice
    assert "gpu can't be read: spec: 1 is not an object" in str(explanation)
