"""Explanations of claims: what they hold, what they wait for, and by which ways people ask."""

import json
from pathlib import Path

import pytest

from extender import Cluster, UnknownClaimError
from extender.answers.explain.explanation import as_json
from extender.cluster.objects.claims import ALLOCATION_MODE, POD_CLAIM_NAME, PRIORITY
from extender.config.settings import Settings
from extender.faces.commands.main import app
from extender.faces.commands.options import spread
from tests.extender.faces.commands.scenes import RUNNER, written
from tests.kit.clusters import GPU, Object, claim, client_of, local_slice, node, pod, request
from tests.kit.clusters import Cluster as Scene

ROOM = (GPU, node("n"), local_slice("n", 2))
IMMEDIATE = {ALLOCATION_MODE: "Immediate"}


def annotated(annotations: dict[str, str], name: str = "c", count: int = 1) -> Object:
    return claim(name, request(count=count), metadata={"annotations": annotations})


def immediate(name: str = "c", count: int = 1, priority: str = "0") -> Object:
    return annotated({**IMMEDIATE, PRIORITY: priority}, name, count)


def told(*objects: Object, nodes: tuple[str, ...] | None = None) -> list[str]:
    """The lines about claim c."""
    return str(Cluster.from_objects(objects).explain_claim("ns/c", nodes)).splitlines()


def cordoned(name: str) -> Object:
    return {**node(name), "spec": {"unschedulable": True}}


def test_claim_that_fits_has_its_node_and_when_it_is_allocated() -> None:
    lines = told(*ROOM, immediate(priority="7"))
    assert lines == [
        "claim ns/c fits on 1 of 1 node: n",
        "Note: the claim is allocated as soon as there are devices, with priority 7.",
        "  n, score 10",
        "    claim ns/c, request gpu: gpu.example.com/n/gpu-0",
    ]


def test_claim_without_the_annotation_waits_for_a_pod() -> None:
    assert (
        told(*ROOM, claim("c"))[1]
        == "Note: the claim is allocated with its first pod, which decides about the node, too."
    )


def test_claim_that_fits_nowhere_has_the_reason_and_what_would_help() -> None:
    lines = told(*ROOM, immediate(count=3))
    assert lines[0] == "claim ns/c does not fit on node n: no node has 3 free devices: at most 2 (n), 2 in all"
    assert "Changes that make the claim fit, the smallest first (each was tried out):" in lines


def test_cordoned_nodes_are_passed_over_and_taints_do_not_matter() -> None:
    tainted = {**node("t"), "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
    lines = told(GPU, cordoned("n"), local_slice("n"), tainted, local_slice("t"), immediate())
    assert lines[0] == "claim ns/c fits on 1 of 1 node: t"
    assert "Note: cordoned nodes are passed over: 1." in lines
    assert told(GPU, cordoned("n"), immediate()) == ["claim ns/c is not allocated: every node is cordoned"]


def test_claim_with_wrong_annotations_has_the_problem() -> None:
    problem = "annotation dra-extender.dev/priority: needs annotation dra-extender.dev/allocation-mode: Immediate"
    assert told(*ROOM, annotated({PRIORITY: "7"})) == [f"claim ns/c is not allocated: {problem}"]


def test_allocated_claim_has_its_devices_and_its_users() -> None:
    assert told(*ROOM, claim("c", allocated=["n/gpu-1"], at="n", users=["p"]), pod("p", "c", on="n")) == [
        "claim ns/c is allocated for node n, and reserved for pods p",
        "  n",
        "    claim ns/c, request gpu: gpu.example.com/n/gpu-1",
    ]
    assert told(*ROOM, claim("c", allocated=["n/gpu-1"]))[0] == (
        "claim ns/c is allocated for every node, and reserved for nobody"
    )


def test_a_pod_with_the_name_of_the_claim_is_another_object() -> None:
    assert told(*ROOM, immediate(), pod("c", "c"))[0] == "claim ns/c fits on 1 of 1 node: n"


@pytest.mark.parametrize(
    ("annotations", "advice"),
    [
        (IMMEDIATE, "To do: see what the claim waits for: dra-extender explain claim ns/c."),
        ({PRIORITY: "7"}, "To do: correct the annotations of ResourceClaim ns/c."),
    ],
)
def test_pod_that_waits_for_the_claim_is_told_what_to_do(annotations: dict[str, str], advice: str) -> None:
    cluster = Cluster.from_objects([*ROOM, annotated(annotations), pod("p", "c")])
    assert advice in str(cluster.explain("ns/p")).splitlines()


def test_only_the_nodes_that_are_asked_about_count() -> None:
    world = (*ROOM, node("m"), immediate())
    assert told(*world, nodes=("m",))[0] == "claim ns/c does not fit on node m: the nodes have no devices for class gpu"
    assert "node x is not known" in told(*world, nodes=("x",))[0]


def test_document_names_the_claim() -> None:
    found = as_json(Cluster.from_objects([*ROOM, immediate()]).explain_claim("ns/c"))
    assert (found["claim"], found["verdict"], "pod" in found) == ("ns/c", "fits", False)


@pytest.mark.parametrize(
    ("asked", "meant"),
    {
        "a letter is wrong": ("ns/trainning", "; did you mean ns/training?"),
        "another namespace": ("default/training", "; did you mean ns/training?"),
        "nothing is alike": ("ns/fpga", ""),
        "the entry of a pod": ("ns/job-3-gpu", "; did you mean ns/job-3-gpu-x7k2p?"),
        "a claim that was made again": ("ns/job-3-gpu-9q4zt", "; did you mean ns/job-3-gpu-x7k2p?"),
        "a misspelled pod": ("ns/jbo-3-gpu", "; did you mean ns/job-3-gpu-x7k2p?"),
        "the claim of another pod": ("ns/job-4-gpu-x7k2p", ""),
        "another claim with an end of five letters": ("ns/plain-dddd0", ""),
    }.values(),
)
def test_unknown_claim_is_told_with_the_name_that_was_meant(asked: str, meant: str) -> None:
    made = claim("job-3-gpu-x7k2p", metadata={"annotations": {POD_CLAIM_NAME: "gpu"}})
    cluster = Cluster.from_objects([*ROOM, claim("training"), made, claim("plain-aaaa0")])
    with pytest.raises(UnknownClaimError) as error:
        cluster.explain_claim(asked)
    assert str(error.value) == f"claim {asked} does not exist{meant}"


async def test_service_explains_a_claim_as_text_and_as_json() -> None:
    async with client_of(Scene.of(*ROOM, immediate()).app(Settings())) as client:
        text = await client.get("/explain/ns/claims/c")
        assert text.text.startswith("claim ns/c fits on 1 of 1 node: n\n")
        document = await client.get("/explain/ns/claims/c?node=n", headers={"accept": "application/json"})
        assert document.json()["claim"] == "ns/c"
        missing = await client.get("/explain/other/claims/c")
        assert (missing.status_code, "did you mean ns/c?" in missing.text) == (404, True)


@pytest.mark.parametrize("name", [["claim", "ns/c"], ["claim/ns/c"], ["ResourceClaims/ns/c"]], ids=" ".join)
def test_command_explains_a_claim_in_both_forms_before_and_after_the_manifests(tmp_path: Path, name: list[str]) -> None:
    file = written(tmp_path / "c.yaml", *ROOM, immediate())
    for arguments in ([*name, "-m", str(file)], ["-m", str(file), *name]):
        result = RUNNER.invoke(app, spread(["explain", *arguments], "-m"))
        assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "claim ns/c fits on 1 of 1 node: n")


def test_command_ends_with_1_for_a_claim_that_fits_nowhere(tmp_path: Path) -> None:
    file = written(tmp_path / "c.yaml", *ROOM, immediate("big", 3))
    lacks = RUNNER.invoke(app, ["explain", "claim", "ns/big", "-m", str(file), "-o", "json"])
    assert (lacks.exit_code, json.loads(lacks.stdout)["verdict"]) == (1, "fits nowhere")


def test_command_finds_a_pod_in_a_namespace_that_is_called_claim(tmp_path: Path) -> None:
    waiting = pod("p", "c")
    waiting["metadata"]["namespace"] = "claim"
    file = written(tmp_path / "c.yaml", *ROOM, waiting)
    for name in (["pod/claim/p"], ["pod", "claim/p"]):
        result = RUNNER.invoke(app, ["explain", *name, "-m", str(file)])
        assert result.stdout.startswith("pod claim/p ")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["claim", "ns/none"], "claim ns/none does not exist"),
        (["claim/none"], "claim default/none does not exist"),
        (["claim/"], "claim/: expected POD or NAMESPACE/POD"),
        (["node", "ns/c"], "explain node ns/c: write explain claim ns/c, or name one pod"),
    ],
)
def test_command_says_what_is_wrong(tmp_path: Path, arguments: list[str], error: str) -> None:
    file = written(tmp_path / "c.yaml", *ROOM, immediate())
    result = RUNNER.invoke(app, ["explain", *arguments, "-m", str(file)])
    assert result.exit_code == 2
    assert error in result.stderr
