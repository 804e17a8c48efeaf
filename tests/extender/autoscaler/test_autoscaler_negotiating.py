"""Negotiated claims in sessions of autoscalers and in plans: controllers say what they would do, and do nothing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from allocator.tools import printable
from extender.autoscaler.autoscaler import Autoscaler, InSession
from extender.autoscaler.negotiating import Negotiating
from extender.autoscaler.scale_up.estimate import Estimate
from extender.autoscaler.verbs import (
    EstimateArgs,
    SelectedArgs,
    SimulatedArgs,
    estimate_nodes,
    filter_simulated,
    select_node,
    start_session,
)
from extender.framework.wire import FilterArgs
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    DEALLOCATE,
    UNSUITABLE_NODES,
    NegotiatedAnswer,
    NegotiatedQuestion,
)
from extender.tools.faults import RefusedError
from extender.tools.offload import at_once
from tests.extender.autoscaler.scenes import autoscaler_over, group_of, machine, made_up, pending, pod_of
from tests.extender.plugins.negotiation.scenes import LICENSE, NAME, WORLD, Scene, negotiated_class
from tests.kit.clusters import GPU, Object, claim_template, parsed, request
from tests.kit.controllers import NO_LICENSE, Fault, Licenses
from tests.kit.virtualtime import in_virtual_time

TEMPLATES = (claim_template("license", LICENSE), claim_template("both", LICENSE, request("gpu")))


def autoscaler_of(scene: Scene) -> Autoscaler:
    negotiating = Negotiating(scene.extender.negotiation.controllers, scene.transport)
    return replace(autoscaler_over(scene.cluster.state), negotiating=negotiating, off_loop=at_once)


def started(autoscaler: Autoscaler) -> InSession:
    return InSession(autoscaler, start_session(InSession(autoscaler)))


def simulated_args(name: str, *nodes: str, template: str = "license", sent: Sequence[Object] = ()) -> SimulatedArgs:
    asked = FilterArgs(parsed(pod_of(name, template)), list(nodes))
    return SimulatedArgs(asked, made_up(*sent))


def selecting(name: str, on: str, template: str = "license") -> SelectedArgs:
    return SelectedArgs(parsed(pod_of(name, template)), made_up(machine(on))[0])


def check_nothing_was_done(scene: Scene) -> None:
    assert all(each.simulation for each in scene.licenses.questions)
    assert scene.licenses.asked(DEALLOCATE) == []
    assert scene.licenses.held == {}


@pytest.mark.parametrize("template", ["license", "both"])
@in_virtual_time
async def test_session_asks_controllers_and_they_allocate_nothing(template: str) -> None:
    scene = Scene(*TEMPLATES, licenses=Licenses(refuses={"m": "no server"}))
    autoscaler = autoscaler_of(scene)
    session = started(autoscaler)
    found = await filter_simulated(session, simulated_args("p", "n", "m", template=template))
    assert list(found.passed) == ["n"]
    assert found.unresolvable.in_words() == {"m": f"controller {NAME}: no server"}
    await select_node(session, selecting("p", "n", template))
    check_nothing_was_done(scene)


@in_virtual_time
async def test_controller_gets_the_requests_of_a_template_as_they_are_written() -> None:
    scene = Scene(*TEMPLATES)
    await filter_simulated(InSession(autoscaler_of(scene)), simulated_args("p", "n"))
    (asked,) = scene.licenses.asked(UNSUITABLE_NODES)
    (of_claim,) = asked.claims
    assert of_claim.requests == ({"name": "license", **LICENSE["exactly"]},)


@in_virtual_time
async def test_session_counts_what_it_has_booked_and_what_was_moved() -> None:
    scene = Scene(*TEMPLATES, licenses=Licenses(left=1))
    autoscaler = autoscaler_of(scene)
    session = started(autoscaler)
    await select_node(session, selecting("p", "n"))
    found = await filter_simulated(session, simulated_args("q", "n", "m"))
    assert set(found.unresolvable.in_words().values()) == {f"controller {NAME}: {NO_LICENSE}"}
    with pytest.raises(RefusedError, match=NO_LICENSE):
        await select_node(session, selecting("q", "m"))
    await select_node(session, selecting("p", "m"))
    (last,) = scene.licenses.asked(ALLOCATE)[-1:]
    assert (last.nodes[0].name, last.held) == ("m", ())
    other = started(autoscaler)
    assert (await filter_simulated(other, simulated_args("q", "n"))).passed
    check_nothing_was_done(scene)


@in_virtual_time
async def test_what_a_controller_has_granted_is_not_kept_if_the_pod_cannot_be_booked() -> None:
    scene = Scene(*TEMPLATES, licenses=Licenses(left=2))
    autoscaler = autoscaler_of(scene)
    session = started(autoscaler)
    await select_node(session, selecting("p", "n", "both"))
    held = autoscaler.sessions.find(session.session or "").world.held
    with pytest.raises(RefusedError, match="no free device"):
        await select_node(session, selecting("q", "n", "both"))
    world = autoscaler.sessions.find(session.session or "").world
    assert (dict(world.granted), dict(world.held)) == ({}, dict(held))


@in_virtual_time
async def test_nodes_that_are_made_up_are_asked_about_with_their_labels() -> None:
    scene = Scene(*TEMPLATES)
    scene.extender = scene.another(controllers=[{"name": NAME, "url": "http://localhost:1", "nodeLabels": ["site"]}])
    new = machine("new")
    new["metadata"]["labels"] = {"site": "a"}
    found = await filter_simulated(InSession(autoscaler_of(scene)), simulated_args("p", "new", sent=[new]))
    assert list(found.passed) == ["new"]
    (asked,) = scene.licenses.asked(UNSUITABLE_NODES)
    assert [(each.name, each.labels) for each in asked.nodes] == [("new", {"site": "a"})]


@in_virtual_time
async def test_plan_has_no_node_for_a_pod_that_its_controller_refuses_there() -> None:
    scene = Scene(*TEMPLATES, licenses=Licenses(left=9, refuses={"a/0": "no server"}))
    plan = await planned(scene, [pod_of("p", "license")], [group_of("a"), group_of("b")])
    assert [(each.name, len(each.nodes)) for each in plan.groups] == [("a", 0), ("b", 1)]
    refused = await planned(scene, [pod_of("p", "license")], [group_of("a")])
    assert [reason for _, reason in refused.failed] == [f"1 controller {NAME}: no server"]
    check_nothing_was_done(scene)


@in_virtual_time
async def test_plan_has_nodes_for_as_many_pods_as_there_are_licenses() -> None:
    scene = Scene(*TEMPLATES, licenses=Licenses(left=2))
    pods = [pod_of(name, "license") for name in ("p", "q", "r")]
    plan = await planned(scene, pods, [group_of("a")])
    assert [str(each) for each, _ in plan.failed] == ["ns/r"]
    assert [reason for _, reason in plan.failed] == [f"1 controller {NAME}: {NO_LICENSE}"]
    check_nothing_was_done(scene)


class OnePerSite:
    """A controller with one device at each site. A site is a node group: the part of a node's name before the slash."""

    def __init__(self) -> None:
        self.questions: list[NegotiatedQuestion] = []

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        self.questions.append(question)
        taken = {node.name.partition("/")[0] for _, node in question.held}
        reasons = {
            node.name: printable("the site is taken") for node in question.nodes if node.name.partition("/")[0] in taken
        }
        return NegotiatedAnswer(unsuitable={each.uid: reasons for each in question.claims})

    async def close(self) -> None:
        """There is nothing to close."""


SITES: dict[str, tuple[list[str], list[Any], list[str], dict[str, int]]] = {
    "two pods, two sites": (["p", "q"], [group_of("a"), group_of("b")], [], {"a": 1, "b": 1}),
    "the second site is better": (["p", "q"], [group_of("a"), group_of("b", priority=1)], [], {"a": 1, "b": 1}),
    "three pods, two sites": (["p", "q", "r"], [group_of("a"), group_of("b", priority=1)], ["r"], {"a": 1, "b": 1}),
    "two pods, one site": (["p", "q"], [group_of("a")], ["q"], {"a": 1}),
    "one pod may be at one site only": (["p", "q"], [group_of("a", limit=0), group_of("b")], ["q"], {"a": 0, "b": 1}),
}


@pytest.mark.parametrize(("names", "groups", "failed", "nodes"), SITES.values(), ids=SITES)
@in_virtual_time
async def test_plan_books_no_site_twice(
    names: list[str], groups: list[Any], failed: list[str], nodes: dict[str, int]
) -> None:
    scene = Scene(*TEMPLATES, others={NAME: OnePerSite()})  # type: ignore[dict-item]
    args = EstimateArgs(pending(*(pod_of(name, "license") for name in names)), tuple(groups), "priority")
    plan = await estimate_nodes(InSession(autoscaler_of(scene)), args)
    assert {each.name: sum(map(len, each.nodes)) for each in plan.groups} == nodes
    assert [each.name for each, _ in plan.failed] == failed
    assert all("the site is taken" in reason for _, reason in plan.failed)


@in_virtual_time
async def test_an_offer_of_a_group_books_no_site_twice() -> None:
    """As an expander asks: each group is offered for itself."""
    scene = Scene(*TEMPLATES, others={NAME: OnePerSite()})  # type: ignore[dict-item]
    autoscaler, groups = autoscaler_of(scene), [group_of("a"), group_of("b")]
    pods = pending(*(pod_of(name, "license") for name in ("p", "q")))
    world = await autoscaler.negotiating.about_groups(autoscaler.latest(), pods, groups)
    offers = Estimate(world, pods, groups, autoscaler.for_call()).offers()
    assert [(each.group, each.pods) for each in offers] == [(0, 1), (1, 1)]


async def planned(scene: Scene, pods: Sequence[Object], groups: Sequence[Any]) -> Any:
    return await estimate_nodes(InSession(autoscaler_of(scene)), EstimateArgs(pending(*pods), tuple(groups)))


def by_contexts(**annotations: str) -> Scene:
    """The controller answers by PodSchedulingContexts."""
    world = (GPU, negotiated_class(**annotations), *WORLD[2:])
    scene = Scene(*TEMPLATES, world=world)
    scene.controllers = {}
    scene.extender = scene.another(controllers=[{"name": NAME, "transport": "PodSchedulingContext"}])
    return scene


@in_virtual_time
async def test_controller_of_contexts_is_not_known_in_a_session() -> None:
    found = await filter_simulated(InSession(autoscaler_of(by_contexts())), simulated_args("p", "n"))
    text = "it answers by PodSchedulingContexts, so its answer is not known in a simulation (class license has no "
    annotation = 'annotation dra-extender.dev/in-simulations: "available")'
    assert found.unresolvable.in_words() == {"n": f"controller {NAME}: {text}{annotation}"}


@in_virtual_time
async def test_what_a_class_says_to_assume_of_such_a_controller_counts_in_sessions_and_plans() -> None:
    selector = '{"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}'
    scene = by_contexts(in_simulations="available", suitable_nodes=selector)
    session = started(autoscaler_of(scene))
    found = await filter_simulated(session, simulated_args("p", "n", "m"))
    assert list(found.passed) == ["n"]
    await select_node(session, selecting("p", "n"))
    everywhere = by_contexts(in_simulations="available")
    plan = await planned(everywhere, [pod_of("p", "license")], [group_of("a")])
    assert ([len(each.nodes) for each in plan.groups], plan.failed) == ([1], ())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(error="no connection"), "waiting for controller .* since .*: no connection"),
        (Fault(fault="HTTP 500"), f"controller {NAME}: HTTP 500"),
        (Fault(answer={"claims": []}), f"controller {NAME}: wrong answer: claims: has no entry for claim"),
    ],
)
@in_virtual_time
async def test_controller_without_an_answer_is_the_reason_and_nothing_is_booked(fault: Fault, reason: str) -> None:
    scene = Scene(*TEMPLATES)
    autoscaler = autoscaler_of(scene)
    session = started(autoscaler)
    scene.licenses.faults = {ALLOCATE: [fault]}
    with pytest.raises(RefusedError, match=reason):
        await select_node(session, selecting("p", "n"))
    scene.seconds += 60
    await select_node(session, selecting("p", "n"))
    check_nothing_was_done(scene)
