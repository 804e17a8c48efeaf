"""Proposals that need a new node or moves: explain names the group of the node, and where each pod goes."""

import os
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml
from hypothesis import event, given, settings

from allocator.obstacles import RemedyKind
from extender import Cluster
from extender.answers.explain.explainer import Explainer
from extender.answers.explain.explanation import Explanation, Proposal, as_json
from extender.config.settings import Settings
from extender.faces.assembly import suggestions
from extender.faces.commands.template import describe
from extender.kube.api import ObjectKey
from extender.planning.templates import Catalog
from tests.extender.answers.defragmentation.scenes import moves, runs, waits
from tests.extender.answers.defragmentation.test_defragmentation_laws import World, carried_out, worlds
from tests.extender.autoscaler.scenes import GROUP, machine, node_template, templates_of
from tests.kit.clusters import GPU, Object, local_slice, node, snapshot_of, solver

EXAMPLES: Final = int(os.environ.get("PROPOSAL_EXAMPLES", "40"))
GROUPS: Final = (node_template("small", 1), node_template("large", 4), node_template("middle", 2))
TAINT: Final = {"key": "example.com/only", "value": "gpu", "effect": "NoSchedule"}


def explained(*objects: Object, groups: tuple[Object, ...] = (), learn: str = "", of: str = "p") -> Explanation:
    """The explanation of a pod, where an autoscaler has these groups."""
    snapshot, catalog = snapshot_of(*objects), Catalog(templates_of(*groups), learn)
    suggest = suggestions(catalog, Settings())
    return Explainer.alone(snapshot, solver(), suggest=suggest).explain(snapshot.pods[ObjectKey("ns", of)])


def of_kind(found: Explanation, kind: RemedyKind) -> list[Proposal]:
    return [each for each in found.proposals if {change.kind for change in each.changes} == {kind}]


def groups_of(found: Explanation) -> list[str]:
    """The groups whose nodes are proposed, in order."""
    return [each.changes[0].what.removeprefix("node group ") for each in of_kind(found, RemedyKind.ADD_NODE)]


def full(name: str = "a") -> list[Object]:
    """The class, and a node whose devices a pod without a controller holds."""
    return [GPU, node(name), local_slice(name, 1), *runs("x", f"{name}/gpu-0", on=name)]


# --- a new node ----------------------------------------------------------------------------------------------


def test_a_pod_that_needs_a_node_is_told_the_group_whose_nodes_have_enough_and_no_more() -> None:
    found = explained(*full(), *waits("p", 2), groups=GROUPS)
    assert groups_of(found) == ["middle", "large"]
    (first, _) = of_kind(found, RemedyKind.ADD_NODE)
    assert first.node == "new-middle-1"
    (change,) = first.changes
    assert change.text == "add a node of group middle (template middle)"
    assert change.how == (
        f"to the nodes with the labels {{{GROUP}: middle}}; dra-extender template middle prints such a node"
    )
    assert "Add a node of group middle (template middle)" in str(found)
    assert "Then it fits on new-middle-1." in str(found)


def test_no_node_is_proposed_that_kube_scheduler_would_not_take() -> None:
    waiting = waits("p")
    waiting[0]["spec"]["nodeSelector"] = {GROUP: "large"}
    assert groups_of(explained(*full(), *waiting, groups=GROUPS)) == ["large"]


def test_a_pod_for_which_kube_scheduler_rejects_all_nodes_may_need_a_node_of_another_group() -> None:
    waiting = waits("p")
    waiting[0]["spec"]["nodeSelector"] = {GROUP: "small"}
    found = explained(GPU, node("a"), local_slice("a", 4), *waiting, groups=GROUPS)
    assert found.requests == ()
    assert groups_of(found) == ["small"]


def learned(name: str, *taints: Object, devices: int = 2) -> list[Object]:
    raw = machine(name, "big")
    raw["spec"] = {"taints": list(taints)}
    return [raw, local_slice(name, devices), *runs(f"on-{name}", f"{name}/gpu-0", f"{name}/gpu-1", on=name)]


def test_a_group_is_learned_from_its_nodes() -> None:
    world = [GPU, *learned("a"), *learned("b"), *waits("p", 2)]
    found = explained(*world, learn=GROUP)
    assert groups_of(found) == ["big"]
    assert of_kind(found, RemedyKind.ADD_NODE)[0].changes[0].text == "add a node of group big (learned from node a)"
    assert groups_of(explained(*world)) == [], "nothing is learned without a label for groups"


@pytest.mark.parametrize(
    ("taints", "expected"),
    [
        ([TAINT], []),
        ([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}], ["big"]),
        ([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}], ["big"]),
    ],
    ids=["of the group", "a cordon of the node", "the condition of the node"],
)
def test_a_learned_group_has_the_taints_of_its_nodes_but_not_their_condition(
    taints: list[Object], expected: list[str]
) -> None:
    assert groups_of(explained(GPU, *learned("a", *taints), *waits("p", 2), learn=GROUP)) == expected


def test_a_template_goes_before_what_is_learned() -> None:
    world = [GPU, *learned("a"), *waits("p", 2)]
    found = explained(*world, groups=(node_template("big", 1),), learn=GROUP)
    assert groups_of(found) == []


def test_a_node_of_a_group_has_a_name_that_no_node_has() -> None:
    found = explained(*full("new-small-1"), *waits("p"), groups=GROUPS)
    assert of_kind(found, RemedyKind.ADD_NODE)[0].node == "new-small-2"


def test_nothing_is_proposed_for_some_nodes_only() -> None:
    snapshot = snapshot_of(*full(), *waits("p"))
    suggest = suggestions(Catalog(templates_of(*GROUPS)), Settings())
    explainer = Explainer.alone(snapshot, solver(), suggest=suggest)
    assert groups_of(explainer.explain(snapshot.pods[ObjectKey("ns", "p")], ["a"])) == []


def test_a_pod_over_its_quota_needs_no_node() -> None:
    quota = {"name": "gpu", "deviceClassName": "gpu", "devices": 0}
    raw: Object = {
        "apiVersion": "dra-extender.dev/v1alpha1",
        "kind": "DeviceQuota",
        "metadata": {"name": "q", "namespace": "ns", "uid": "uid-q"},
        "spec": {"limits": [quota]},
    }
    assert groups_of(explained(*full(), raw, *waits("p"), groups=GROUPS)) == []


def test_programs_read_the_kind_and_the_node() -> None:
    document: Any = as_json(explained(*full(), *waits("p"), groups=GROUPS))
    found = [each for each in document["proposals"] if each["changes"][0]["kind"] == "add-node"]
    assert [each["node"] for each in found] == ["new-small-1", "new-middle-1"]


@pytest.mark.parametrize("group", ["middle", "large"])
def test_the_pod_gets_its_devices_once_the_node_is_there(group: str) -> None:
    """The node is made as the proposal has it: `dra-extender template` prints it."""
    objects = [*full(), *waits("p", 2)]
    proposals = of_kind(explained(*objects, groups=GROUPS), RemedyKind.ADD_NODE)
    (found,) = [each for each in proposals if group in each.node]
    named = re.search(r"dra-extender template (\S+) prints such a node", found.changes[0].how)
    assert named
    described = describe(named[1], Catalog(templates_of(*GROUPS)), snapshot_of(*objects), (), ())
    cluster = Cluster.from_objects([*objects, *described.objects(found.node)["items"]])
    assert {each.pod: each.node for each in cluster.schedule()} == {"ns/p": found.node}


def test_the_library_and_manifests_know_the_node_templates_of_the_settings(tmp_path: Any) -> None:
    file = tmp_path / "templates.yaml"
    file.write_text(yaml.safe_dump({"nodeTemplates": list(GROUPS)}))
    by = Settings.model_validate({"autoscaler": {"nodeTemplates": str(file)}})
    cluster = Cluster.from_objects([*full(), *waits("p", 4)], settings=by)
    assert groups_of(cluster.explain("ns/p")) == ["large"]


# --- moves ---------------------------------------------------------------------------------------------------

HALF_FULL: Final = [
    *(GPU, node("a"), local_slice("a", 2), node("b"), local_slice("b", 2)),
    *moves("x", "a/gpu-0", on="a", priority=5),
    *moves("y", "b/gpu-0", on="b"),
]
"""Two devices are free, each on another node. Pods that make room have higher and equal priority."""


def test_a_pod_that_needs_a_move_is_told_who_moves_and_where_to() -> None:
    found = explained(*HALF_FULL, *waits("p", 2))
    texts = [change.text for each in of_kind(found, RemedyKind.MOVE) for change in each.changes]
    assert texts == ["move pod ns/x from node a to node b"]
    (proposal,) = of_kind(found, RemedyKind.MOVE)
    assert proposal.node == "a"
    assert proposal.changes[0].how == (
        "kubectl cordon a; kubectl delete pod -n ns x; "
        "once ReplicaSet web has made it again and it has its node, kubectl uncordon a"
    )


def test_several_pods_move_together() -> None:
    world = [
        *(GPU, node("a"), local_slice("a", 3), node("b"), local_slice("b", 3)),
        *moves("x", "a/gpu-0", on="a"),
        *moves("y", "a/gpu-1", on="a"),
        *runs("z", "b/gpu-0", on="b"),
    ]
    (proposal,) = of_kind(explained(*world, *waits("p", 3)), RemedyKind.MOVE)
    assert {change.text for change in proposal.changes} == {
        "move pod ns/x from node a to node b",
        "move pod ns/y from node a to node b",
    }


def test_no_move_is_proposed_where_the_pod_finds_no_other_place() -> None:
    full_elsewhere = [*HALF_FULL, *moves("z", "b/gpu-1", on="b")]
    assert of_kind(explained(*full_elsewhere, *waits("p", 2)), RemedyKind.MOVE) == []


def test_a_deletion_of_a_pod_that_can_move_is_not_proposed_as_well() -> None:
    """A move is the lesser change: the pod runs again."""
    found = explained(*HALF_FULL, *waits("p", 2))
    deleted = {str(key) for each in found.proposals for change in each.changes for key in change.deletes}
    assert "ns/x" not in deleted


MOVE: Final = re.compile(r"move pod ns/(\S+) from node (\S+) to node (\S+)")


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds())
def test_a_move_that_explain_proposes_gives_the_pod_its_devices_once_it_is_carried_out(world: World) -> None:
    cluster = world.cluster()
    for pod in [each for each in cluster.pods if not each.node_name]:
        for proposal in of_kind(cluster.explain(str(pod)), RemedyKind.MOVE):
            found: Mapping[str, str] = {
                match[1]: match[3] for change in proposal.changes if (match := MOVE.fullmatch(change.text))
            }
            event(f"{len(found)} moves")
            (room,) = {change.how.split(";")[0].removeprefix("kubectl cordon ") for change in proposal.changes}
            outcome = carried_out(world, room, list(found))
            assert outcome.moved == found
            assert proposal.node == room
            assert outcome.nodes[pod.name], "perhaps on another node that suits it better then"
