"""Controllers of negotiated claims in simulations: they say what they would allocate, and allocate nothing.

They are told what the simulation holds already. A controller of PodSchedulingContexts does not know simulations; the
reason says so.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from immutables import Map

from extender.autoscaler.scale_up.plan import NodeGroup, PendingPod
from extender.autoscaler.simulated_cluster import Holding, World
from extender.cluster.controller_marks import Mark
from extender.cluster.indexes import ControllerAnswer
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import Blocked, claims_of
from extender.framework.pods.negotiated_claims import NegotiatedClaim, unanswered
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError
from extender.kube.encoding import dumped
from extender.kube.resources import TEMPLATES
from extender.planning.planner import as_planned
from extender.plugins.negotiation.controller import ControllerAwayError, ControllerError
from extender.plugins.negotiation.known_controller import KnownController
from extender.plugins.negotiation.merging import is_for
from extender.plugins.negotiation.parameters import ParametersError
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    UNSUITABLE_NODES,
    ClaimAsk,
    NegotiatedAnswer,
    NegotiatedQuestion,
)
from extender.plugins.negotiation.questions import node_name, pod_name

_NAME_BYTES = 100
"""What the name of a node in an answer takes, with the reason and its place, about."""


class _NoAnswerError(Exception):
    """A controller has not answered; the text is a reason."""


@dataclass(frozen=True, slots=True)
class Negotiating:
    """Asks controllers about simulated worlds.

    Attributes:
        controllers: by name. Without any, nobody is asked.
        api: has the templates of claims that are not made yet.
    """

    controllers: Mapping[str, KnownController]
    api: Api

    async def about_nodes(self, world: World, pod: Pod, nodes: Sequence[NodeObject]) -> World:
        """The world with what controllers say about nodes for a pod."""
        answers: dict[str, ControllerAnswer] = {}
        for name, claims in (await self._claims(world, pod)).items():
            answers |= await self._unsuitable(name, claims, world, pod, nodes)
        return _with_answers(world, answers)

    async def about_booking(self, world: World, pod: Pod, node: NodeObject) -> World:
        """The world with what controllers would allocate for a pod on a node, or with why they would not."""
        answers: dict[str, ControllerAnswer] = {}
        granted: dict[str, Holding] = {}
        for name, claims in (await self._claims(world, pod)).items():
            try:
                found = await self._allocated(name, claims, world, pod, node)
            except _NoAnswerError as error:
                answers |= {each.uid: ControllerAnswer(unanswered(str(error))) for each in claims}
            else:
                granted |= found
                answers |= {each.uid: ControllerAnswer(asked=(node.name,)) for each in claims}
        return replace(_with_answers(world, answers), granted=Map(granted))

    async def about_groups(self, world: World, pods: Sequence[PendingPod], groups: Sequence[NodeGroup]) -> World:
        """The world with what controllers say about new nodes of groups, for one pod after the other.

        Each pod counts as held in the first group that its controllers accept, when they are asked for the next pods.
        """
        nodes = [_new_node(each, 0) for each in groups]
        with_held, answers = world, dict[str, ControllerAnswer]()
        for each in pods:
            for name, claims in (await self._claims(world, each.pod)).items():
                found = await self._unsuitable(name, claims, with_held, each.pod, nodes)
                answers |= {uid: _of_all_nodes(answer, groups, len(pods)) for uid, answer in found.items()}
                with_held = await self._held_in_first(name, claims, with_held, nodes, found)
        return _with_answers(world, answers)

    async def _held_in_first(
        self,
        name: str,
        claims: Sequence[NegotiatedClaim],
        world: World,
        nodes: Sequence[NodeObject],
        answers: Mapping[str, ControllerAnswer],
    ) -> World:
        """The world in which claims are held on the first node that their controller accepts for all of them."""
        known = self.controllers.get(name)
        refused = {node for each in answers.values() for node in each.unsuitable}
        node = next((each for each in nodes if each.name not in refused), None)
        if known is None or node is None or any(each.problem for each in answers.values()):
            return world
        there = node_name(node, known.labels)
        try:
            asks = {each.uid: await self._about(known, each) for each in claims}
        except _NoAnswerError:
            return world
        return replace(world, held=world.held.update({uid: Holding(name, ask, there) for uid, ask in asks.items()}))

    async def _claims(self, world: World, pod: Pod) -> Mapping[str, Sequence[NegotiatedClaim]]:
        """The negotiated claims of a pod, by controller; claims that are not made yet are as in their templates."""
        found: dict[str, list[NegotiatedClaim]] = defaultdict(list)
        if not (self.controllers and world.snapshot.controllers and pod.needs_devices):
            return found
        pod, snapshot = as_planned(pod, world.snapshot)
        claims = claims_of(pod, await self._written(pod, snapshot))
        for each in () if isinstance(claims, Blocked) else claims.negotiated:
            found[each.controller].append(each)
        return found

    async def _written(self, pod: Pod, snapshot: Snapshot) -> Snapshot:
        """The cluster with the claims of a pod as they are written in their templates, for controllers to read."""
        for reference in pod.claims:
            key = ObjectKey(pod.namespace, pod.claim_statuses.get(reference.name) or "")
            claim = snapshot.claims.get(key)
            if claim is None or claim.resource_version or reference.template_name is None:
                continue
            try:
                spec: dict[str, Any] = (
                    await self.api.get(TEMPLATES, ObjectKey(pod.namespace, reference.template_name))
                )["spec"]
            except (ApiError, OutcomeUnknownError):
                continue  # it is gone by now
            annotations = (spec.get("metadata") or {}).get("annotations") or {}
            value = replace(claim.claim, annotations=annotations)
            snapshot = snapshot.with_claim(replace(claim, claim=value, raw=dumped({"spec": spec["spec"]})))
        return snapshot

    async def _unsuitable(
        self, name: str, claims: Sequence[NegotiatedClaim], world: World, pod: Pod, nodes: Sequence[NodeObject]
    ) -> dict[str, ControllerAnswer]:
        """What a controller says about nodes, by uid of the claim."""
        suitable = [node for node in nodes if any(each.is_for(node) for each in claims)]
        names = frozenset(each.name for each in nodes)
        try:
            answer, _ = await self._answer(UNSUITABLE_NODES, name, claims, world, pod, suitable)
        except _NoAnswerError as error:
            return {each.uid: ControllerAnswer(unanswered(str(error))) for each in claims}
        return {each.uid: ControllerAnswer(None, answer.unsuitable.get(each.uid, {}), names) for each in claims}

    async def _allocated(
        self, name: str, claims: Sequence[NegotiatedClaim], world: World, pod: Pod, node: NodeObject
    ) -> dict[str, Holding]:
        """What a controller would allocate, by uid of the claim. Raises _NoAnswerError: it would not."""
        answer, asks = await self._answer(ALLOCATE, name, claims, world, pod, [node])
        if answer.refused:
            raise _NoAnswerError(f"controller {name}: {answer.refused}")
        there = node_name(node, self.controllers[name].labels)
        for each in asks:
            if not is_for(answer.allocations[each.uid], node.node):
                raise _NoAnswerError(f"controller {name} allocates claim {each} for other nodes than {node.name}")
        return {each.uid: Holding(name, each, there, answer.allocations[each.uid]) for each in asks}

    async def _answer(
        self,
        kind: str,
        name: str,
        claims: Sequence[NegotiatedClaim],
        world: World,
        pod: Pod,
        nodes: Sequence[NodeObject],
    ) -> tuple[NegotiatedAnswer, Sequence[ClaimAsk]]:
        """The answer of a controller, and what it was asked about. Raises _NoAnswerError."""
        known = self.controllers.get(name)
        if known is None:
            raise _NoAnswerError(f"controller {name} is not in the settings")
        if known.is_paused:
            raise _NoAnswerError(known.problem)
        asks = [await self._about(known, each, kind) for each in claims]
        if not nodes:
            return NegotiatedAnswer(), asks
        told = tuple(node_name(each, known.labels) for each in nodes)
        own = {each.uid for each in claims}
        held = tuple((each.ask, each.node) for each in world.holds(name) if each.ask.uid not in own)
        question = NegotiatedQuestion(kind, tuple(asks), pod_name(pod), told, simulation=True, held=held)
        try:
            return await known.ask(question), asks
        except ControllerAwayError as error:
            raise _NoAnswerError(known.problem) from error
        except ControllerError as error:
            raise _NoAnswerError(f"controller {name}: {error}") from error

    async def _about(self, known: KnownController, claim: NegotiatedClaim, kind: str = "") -> ClaimAsk:
        """A claim in a question. Raises _NoAnswerError: its parameters cannot be read."""
        mark = Mark.of(claim.claim.claim)
        attempt = 1 if mark is None else mark.attempt + 1
        try:
            return await known.about(claim, attempt if kind == ALLOCATE else 0)
        except ParametersError as error:
            raise _NoAnswerError(str(error)) from error


def _with_answers(world: World, answers: Mapping[str, ControllerAnswer]) -> World:
    if not answers:
        return world
    snapshot = world.snapshot
    new = [answer for uid, answer in answers.items() if uid not in snapshot.answers]
    weight = world.weight + _NAME_BYTES * sum(1 + len(each.asked or ()) + len(each.unsuitable) for each in new)
    return replace(world, snapshot=snapshot._replace(answers=snapshot.answers.update(answers)), weight=weight)


def _new_node(group: NodeGroup, number: int) -> NodeObject:
    """A new node of a group, named as in a plan."""
    of_group = group.room.node
    return replace(of_group, node=replace(of_group.node, name=f"{group.name}/{number}"))


def _of_all_nodes(answer: ControllerAnswer, groups: Sequence[NodeGroup], most: int) -> ControllerAnswer:
    """The answer about the first new node of each group, for all new nodes of the groups: one for each pod at most."""
    reasons = {
        f"{each.name}/{number}": answer.unsuitable[f"{each.name}/0"]
        for each in groups
        if f"{each.name}/0" in answer.unsuitable
        for number in range(min(each.limit, most) + 1)
    }
    return ControllerAnswer(answer.problem, reasons, None)
