"""Optional requests: what is served, what is left out and why, and what they never change."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from allocator import (
    Allocation,
    AllocatorError,
    Claim,
    Limits,
    Request,
    allocation_to_json,
    parse_claim,
    parse_claim_template,
)
from allocator.audit import Evidence, audit
from allocator.equivalence import is_single
from allocator.model.optional import OPTIONAL_REQUESTS, required
from allocator.policies import POLICIES, Merit, Policy
from tests.allocator.strategies import Puzzle, puzzles
from tests.allocator.worlds import NODE, SELECTORS, World, alternative, claim, device, first_of, names, pool, same, want

NIC = f"device.attributes['{'gpu.example.com'}'].kind == 'nic'"
GPU = f"device.attributes['{'gpu.example.com'}'].kind == 'gpu'"


def optional(found: Claim, *names: str) -> Claim:
    """The claim with optional requests."""
    return replace(found, spec=replace(found.spec, optional=names))


def node(**kinds: int) -> World:
    """A node with some devices of each kind, on two roots in turn."""
    devices = [
        device(f"{kind}-{number}", {"kind": kind, "root": f"root-{number % 2}"})
        for kind, count in kinds.items()
        for number in range(count)
    ]
    return World(pool(*devices))


def served(world: World, *claims: Claim) -> list[str]:
    """The requests that are served, each with its devices."""
    found = world.allocated(*claims)
    return [f"{result.request}: {result.device.device}" for each in found.results for result in each.results]


def left_out(world: World, *claims: Claim) -> list[tuple[str, str]]:
    """The requests that are left out, each with the reason."""
    return [(each.request, each.reason) for each in world.allocated(*claims).left_out]


WITH_NIC = optional(claim(want("gpu", 1, GPU), want("nic", 1, NIC)), "nic")


@dataclass(frozen=True)
class Case:
    """A node, a claim, and what is served and left out."""

    world: World
    claim: Claim
    served: list[str]
    left_out: tuple[str, ...] = ()


CASES = {
    "served where it can be": Case(node(gpu=1, nic=1), WITH_NIC, ["gpu: gpu-0", "nic: nic-0"]),
    "left out where there is no device": Case(node(gpu=1), WITH_NIC, ["gpu: gpu-0"], ("nic",)),
    "a required request gets the one device that both want": Case(
        node(gpu=1), optional(claim(want("more", 1, GPU), want("gpu", 1, GPU)), "more"), ["gpu: gpu-0"], ("more",)
    ),
    "served whole or not at all": Case(
        node(gpu=2), optional(claim(want("gpu", 1, GPU), want("more", 2, GPU)), "more"), ["gpu: gpu-0"], ("more",)
    ),
    "the first in the annotation is the most wanted": Case(
        node(gpu=2),
        optional(claim(want("gpu", 1, GPU), want("a", 1, GPU), want("b", 1, GPU)), "b", "a"),
        ["gpu: gpu-0", "b: gpu-1"],
        ("a",),
    ),
    "a later one is served although an earlier one is left out": Case(
        node(gpu=1, nic=1),
        optional(claim(want("gpu", 1, GPU), want("more", 1, GPU), want("nic", 1, NIC)), "more", "nic"),
        ["gpu: gpu-0", "nic: nic-0"],
        ("more",),
    ),
    "required requests get other devices if that serves one more": Case(
        World(
            pool(
                device("gpu-0", {"kind": "gpu", "root": "far"}),
                device("gpu-1", {"kind": "gpu", "root": "near"}),
                device("nic-0", {"kind": "nic", "root": "near"}),
            )
        ),
        optional(claim(want("gpu", 1, GPU), want("nic", 1, NIC), same("root", "gpu", "nic")), "nic"),
        ["gpu: gpu-1", "nic: nic-0"],
    ),
    "a constraint holds over the requests that are left": Case(
        node(gpu=3),
        optional(claim(want("gpu", 2, GPU), want("nic", 1, NIC), same("root", "gpu", "nic")), "nic"),
        ["gpu: gpu-0", "gpu: gpu-2"],
        ("nic",),
    ),
    "a constraint over nothing but what is left out holds": Case(
        node(gpu=1),
        optional(claim(want("gpu", 1, GPU), want("nic", 2, NIC), same("root", "nic")), "nic"),
        ["gpu: gpu-0"],
        ("nic",),
    ),
    "all may be optional, and all be left out": Case(
        node(nic=1), optional(claim(want("gpu", 1, GPU)), "gpu"), [], ("gpu",)
    ),
    "an alternative of an optional request": Case(
        node(gpu=1, nic=1),
        optional(
            claim(want("gpu", 1, GPU), first_of("more", alternative("big", 9), alternative("small", 1, NIC))), "more"
        ),
        ["gpu: gpu-0", "more/small: nic-0"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_optional_requests_are_served_where_that_is_possible(case: Case, policy: Policy) -> None:
    if policy.name == "first-fit":
        assert served(case.world, case.claim) == case.served
    found = replace(case.world, policy=policy).allocated(case.claim)
    assert [result.request for each in found.results for result in each.results] == [
        name.partition(":")[0] for name in case.served
    ]
    assert tuple(each.request for each in found.left_out) == case.left_out
    assert found.merit.optional == len(case.claim.spec.optional) - len(case.left_out)


def test_an_optional_request_of_one_claim_takes_nothing_from_another_claim_of_the_pod() -> None:
    greedy = optional(claim(want("gpu", 1, GPU), name="greedy"), "gpu")
    needy = claim(want("gpu", 1, GPU), name="needy")
    assert served(node(gpu=1), greedy, needy) == ["gpu: gpu-0"]
    assert [len(each.results) for each in node(gpu=1).allocated(greedy, needy).results] == [0, 1]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (want("nic", 1, NIC), "no device matches request nic"),
        (
            replace(want("nic"), alternatives=(replace(alternative(""), device_class="nics"),)),
            "device class nics does not exist",
        ),
        (want("nic", 1, "device.attributes['x.example.com'].speed > 3"), "no such key"),
        (want("nic", 1, "this is no CEL"), "selector 0"),
        (want("nic", 40), "exceeds the claim limit of 32"),
    ],
)
def test_what_would_reject_the_pod_only_leaves_the_optional_request_out(request_: Request, reason: str) -> None:
    found = optional(claim(want("gpu", 1, GPU), request_), "nic")
    ((name, text),) = left_out(node(gpu=2), found)
    assert name == "nic"
    assert reason in text


def test_a_limit_on_the_search_leaves_the_rest_out_and_is_told() -> None:
    found = optional(claim(want("gpu", 1, GPU), want("nic", 2, NIC)), "nic")
    answer = replace(node(gpu=1, nic=2), limits=Limits(steps=2)).allocated(found)
    assert answer.stopped
    assert "search stopped by the limit on steps" in answer.left_out[0].reason


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (("nik",), 'annotation dra-extender.dev/optional-requests: there is no request "nik"; similar names: nic'),
        (("nic/small",), 'there is no request "nic/small"; an alternative has no name here, write nic'),
    ],
)
def test_an_unknown_name_is_an_error_of_the_claim(names: tuple[str, ...], error: str) -> None:
    with pytest.raises(AllocatorError, match="claim default/claim: annotation") as raised:
        node(gpu=1, nic=1).allocate(optional(WITH_NIC, *names))
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("annotation", "names"),
    [("nic", ("nic",)), (" nic , second-gpu,nic,", ("nic", "second-gpu")), ("", ()), (None, ())],
)
def test_the_annotation_names_optional_requests(annotation: str | None, names: tuple[str, ...]) -> None:
    metadata = {
        "name": "c",
        "namespace": "default",
        "annotations": {} if annotation is None else {OPTIONAL_REQUESTS: annotation},
    }
    version = {"apiVersion": "resource.k8s.io/v1"}
    assert parse_claim({**version, "kind": "ResourceClaim", "metadata": metadata}).spec.optional == names
    template = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"metadata": metadata}}
    assert parse_claim_template({**version, "kind": "ResourceClaimTemplate", **template}).spec.optional == names


def test_a_claim_with_an_optional_request_is_not_decided_without_a_search() -> None:
    assert is_single([claim(want())])
    assert not is_single([optional(claim(want()), "gpu")])


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_node_that_serves_more_optional_requests_scores_higher(policy: Policy) -> None:
    merits = {
        "both": Merit(optional=2, preference=1),
        "one": Merit(optional=1, preference=8, free=1.0),
        "none": Merit(preference=16, free=1.0),
    }
    scores = policy.scores(merits)
    assert scores["both"] > scores["one"] > scores["none"]


def test_the_audit_takes_an_optional_request_without_devices_and_no_other() -> None:
    world = node(gpu=1)
    found = world.allocated(WITH_NIC)
    allocated = replace(WITH_NIC, allocation=found.results[0])
    evidence = Evidence(world.slices, world.classes, [allocated], {NODE.name: NODE})
    assert audit(evidence, SELECTORS) == ()
    strict = replace(allocated, spec=replace(allocated.spec, optional=()))
    assert "request nic: 0 of its alternatives are served" in str(
        audit(replace(evidence, claims=[strict]), SELECTORS)[0]
    )


def test_an_allocation_without_results_is_usable_on_every_node() -> None:
    found = node(nic=1).allocated(optional(claim(want("gpu", 1, GPU)), "gpu"))
    assert allocation_to_json(found.results[0]) == {"devices": {}}


# --- laws ---------------------------------------------------------------------------------------------------


@st.composite
def optional_puzzles(draw: st.DrawFn) -> Puzzle:
    """A puzzle in which some requests are optional."""
    puzzle = draw(puzzles())
    claims = []
    for each in puzzle.claims:
        names = draw(st.permutations([request.name for request in each.spec.requests]))
        claims.append(optional(each, *names[: draw(st.integers(0, len(names)))]))
    assume(any(each.spec.optional for each in claims))
    return replace(puzzle, claims=tuple(claims))


def answer(world: World, claims: tuple[Claim, ...]) -> str:
    """Yes, no, or the error."""
    try:
        return "yes" if isinstance(world.allocate(*claims), Allocation) else "no"
    except AllocatorError as error:
        return repr(error)


def keeping(puzzle: Puzzle, keep: Callable[[Claim, str], bool]) -> tuple[Claim, ...]:
    """The claims with required requests and some optional ones, all of them required."""
    return tuple(
        replace(each, spec=required(each.spec, beside=[name for name in each.spec.optional if keep(each, name)]))
        for each in puzzle.claims
    )


def is_kept(out: Collection[tuple[str, str]], of: Claim, name: str) -> bool:
    return (str(of), name) not in out


policies = st.sampled_from(list(POLICIES.values()))


@given(optional_puzzles(), policies)
def test_optional_requests_never_change_whether_the_rest_can_be_allocated(puzzle: Puzzle, policy: Policy) -> None:
    world = replace(puzzle.world, policy=policy)
    assert answer(world, puzzle.claims) == answer(world, keeping(puzzle, lambda _, __: False))


@given(optional_puzzles(), policies)
def test_no_request_that_is_left_out_could_be_added_with_any_devices(puzzle: Puzzle, policy: Policy) -> None:
    world = replace(puzzle.world, policy=policy)
    assume(answer(world, puzzle.claims) == "yes")
    out = {(each.claim, each.request) for each in world.allocated(*puzzle.claims).left_out}
    for one in out:
        claims = keeping(puzzle, partial(is_kept, out - {one}))
        assert answer(world, claims) != "yes"


@given(optional_puzzles())
def test_the_requests_that_are_served_get_what_they_would_get_alone(puzzle: Puzzle) -> None:
    assume(answer(puzzle.world, puzzle.claims) == "yes")
    found = puzzle.world.allocated(*puzzle.claims)
    out = {(each.claim, each.request) for each in found.left_out}
    alone = keeping(puzzle, partial(is_kept, out))
    assert names(found.results) == names(puzzle.world.allocated(*alone).results)


@given(optional_puzzles())
def test_the_audit_finds_no_wrong_number_of_devices(puzzle: Puzzle) -> None:
    assume(answer(puzzle.world, puzzle.claims) == "yes")
    found = puzzle.world.allocated(*puzzle.claims)
    held = [replace(c, allocation=r) for c, r in zip(puzzle.claims, found.results, strict=True)]
    world = puzzle.world
    findings = audit(Evidence(world.slices, world.classes, held, {NODE.name: NODE}), SELECTORS)
    assert not [each for each in findings if each.rule.value == "wrong number of devices"]
