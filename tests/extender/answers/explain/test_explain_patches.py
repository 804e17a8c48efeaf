"""Patches of proposals: applied to the objects as they are written, they make the pod fit."""

import json
import shlex
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from allocator.obstacles import RemedyKind
from extender.answers.explain.explanation import Proposal, as_json
from extender.answers.explain.pod_claims import with_claims_made
from extender.framework.filter import filter_nodes
from extender.kube.api import ObjectKey
from tests.extender.answers.explain.scenes import SHARED_MEMORY, Case, gpu, gpus, pool, wants, with_fields
from tests.extender.answers.explain.test_explain_texts import CASES
from tests.kit.clusters import Object, claim_template, device_class, node, pod, request, snapshot_of

EDITS = frozenset(RemedyKind) - {
    RemedyKind.FREE,
    RemedyKind.CONFIGURE,
    RemedyKind.REPAIR,
    RemedyKind.MOVE,
    RemedyKind.ADD_NODE,
}
EDITED = [
    (name, number)
    for name, case in CASES.items()
    for number, each in enumerate(case.explained().proposals)
    if all(change.kind in EDITS for change in each.changes)
]


def applied(objects: list[Object], proposal: Proposal) -> list[Object]:
    """The objects after the patches of a proposal."""
    changed = deepcopy(objects)
    for patch in (each.as_json() for each in proposal.patches):
        (found,) = [each for each in changed if _is(each, patch)]
        if patch["type"] == "json":
            for operation in json.loads(json.dumps(patch["patch"])):
                apply(found, operation)
        else:
            merge(found, json.loads(json.dumps(patch["patch"])))
    if any(each.kind == "ResourceClaimTemplate" for each in proposal.patches):  # the pod is made anew, with its claims
        (pod_,) = [each for each in changed if each["kind"] == "Pod" and each["metadata"]["name"] == "p"]
        pod_.get("status", {}).pop("resourceClaimStatuses", None)
        changed = [each for each in changed if not each["metadata"].get("ownerReferences")]
    return changed


def _is(obj: Object, patch: Mapping[str, Any]) -> bool:
    meta = obj["metadata"]
    named = obj["kind"], meta["name"], meta.get("namespace")
    return named == (patch["kind"], patch["name"], patch["namespace"])


def apply(obj: Object, operation: Mapping[str, Any]) -> None:
    """One operation of a JSON Patch (RFC 6902)."""
    *path, last = operation["path"].removeprefix("/").split("/")
    at: Any = obj
    for part in path:
        at = at[int(part) if isinstance(at, list) else part]
    match operation["op"]:
        case "add":
            at[last] = operation["value"]
        case "replace":
            assert last in at
            at[last] = operation["value"]
        case "remove":
            del at[last]


def merge(obj: Any, patch: Mapping[str, Any]) -> None:
    """A strategic merge patch: containers are found by name."""
    for name, value in patch.items():
        if isinstance(value, list):
            for each in value:
                (found,) = [item for item in obj[name] if item["name"] == each["name"]]
                merge(found, each)
        elif isinstance(value, dict):
            merge(obj.setdefault(name, {}), value)
        else:
            obj[name] = value


@pytest.mark.parametrize(("name", "number"), EDITED)
def test_the_patched_objects_make_the_pod_fit(name: str, number: int) -> None:
    case, key = CASES[name], ObjectKey("ns", "p")
    proposal = case.explained().proposals[number]
    snapshot = case.change(snapshot_of(*applied(list(case.objects), proposal)))
    snapshot, _ = with_claims_made(snapshot.pods[key], snapshot)
    assert filter_nodes(snapshot.pods[key], [proposal.node], snapshot, case.solver).passed == (proposal.node,)


@pytest.mark.parametrize("name", CASES)
def test_commands_are_there_if_kubectl_can_make_all_changes(name: str) -> None:
    found = CASES[name].explained()
    for proposal, document in zip(found.proposals, as_json(found)["proposals"], strict=True):  # type: ignore[call-overload]
        can = all(change.kind in EDITS | {RemedyKind.FREE} for change in proposal.changes)
        assert bool(document["commands"]) is can
        for command in document["commands"]:
            assert shlex.split(command)[0] == "kubectl"
        gates = [change.gate for change in proposal.changes if change.gate]
        assert document["settings"] == ({"featureGates": dict.fromkeys(gates, True)} if gates else None)


def test_a_claim_is_made_anew_by_one_command() -> None:
    (proposal,) = CASES["another model"].explained().proposals
    body = (
        '[{"op":"replace","path":"/spec/devices/requests/0/exactly/selectors/0/cel/expression",'
        '"value":"device.attributes[\\"gpu.example.com\\"].model == \\"a100\\""}]'
    )
    patch = f"kubectl patch resourceclaims.v1.resource.k8s.io mine -n ns --type=json -p '{body}'"
    assert proposal.commands == (f"{patch} --dry-run=client -o json | kubectl replace --force -f -",)


def test_the_pod_of_a_template_is_made_anew_after_its_template() -> None:
    template = claim_template("gpu", request(count=2))
    waits = pod("p")
    waits["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    (proposal,) = Case((device_class(), template, waits, node("a"), pool("a", *gpus(1)))).explained().proposals
    assert [each.kind for each in proposal.patches] == ["ResourceClaimTemplate"]
    first, second = proposal.commands
    assert '"path":"/spec/spec/devices/requests/0/exactly/count","value":1' in first
    assert second == "kubectl get pod p -n ns -o json | kubectl replace --force -f -"


def test_two_changes_of_one_request_are_one_patch() -> None:
    wanted = with_fields(request(), capacity={"requests": {"bandwidth": "11G", "memory": "80Gi"}})
    case = Case((*wants(wanted), node("a"), pool("a", gpu("gpu-0") | SHARED_MEMORY)))
    (proposal,) = case.explained().proposals
    (patch,) = proposal.patches
    assert len(proposal.changes) == 2
    assert patch.body == [
        {
            "op": "add",
            "path": "/spec/devices/requests/0/exactly/capacity",
            "value": {"requests": {"bandwidth": "10G", "memory": "40Gi"}},
        }
    ]
