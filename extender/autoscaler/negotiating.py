"""Controllers of negotiated claims in simulations: they say what they would allocate, and allocate nothing.

They are told what the simulation holds already. A controller of PodSchedulingContexts does not know simulations; the
reason says so.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

from immutables import Map

from allocator.tools import Printable
from extender.autoscaler.scale_up.plan import NodeGroup, PendingPod, ScaleUpPlan
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
from extender.plugins.negotiation.allocating import is_for
from extender.plugins.negotiation.known_controller import KnownController
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    UNSUITABLE_NODES,
    ClaimAsk,
    ControllerAwayError,
    ControllerError,
    NegotiatedAnswer,
    NegotiatedQuestion,
)
from extender.plugins.negotiation.questions import ParametersError, node_name, pod_name

_NAME_BYTES = 100
"""What the name of a node in an answer takes, with the reason and its place, about."""


_Claims: TypeAlias = Mapping[str, Sequence[NegotiatedClaim]]
"""The negotiated claims of a pod, by controller."""

_Plan: TypeAlias = Callable[[World, Sequence[PendingPod]], Awaitable[ScaleUpPlan]]


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
        """The world with what controllers say about new nodes of groups, where one of the groups takes all the pods.

        In each group, pods that their controllers accept count as held when they are asked for the next pods.
        """
        asked = await self._negotiated(world, pods)
        answers: dict[str, ControllerAnswer] = {}
        for group in groups if asked else ():
            with_held, node = world, _new_node(group, 0)
            for each, claims in asked:
                if each.groups is None or group.name in each.groups:
                    with_held, found = await self._tried(claims, with_held, each.pod, node)
                    _add(answers, found, [group], len(pods))
        return _with_answers(world, answers)

    async def agreed(
        self, world: World, pods: Sequence[PendingPod], groups: Sequence[NodeGroup], plan: _Plan
    ) -> tuple[World, Sequence[PendingPod]]:
        """What controllers say about new nodes of groups, where each pod may be in another group.

        First they are asked for each pod alone. Once a plan has a place for the pods, they are asked for one pod after
        the other, with what the pods before it hold in their places. A pod that they refuse then is planned again, for
        other groups.

        Args:
            world: the cluster.
            pods: to be planned.
            groups: of new nodes.
            plan: makes a plan with what is known by then.

        Returns:
            The world with the answers, and the pods. A pod with negotiated claims that has a place may be in the group
            of that place alone.
        """
        asked = await self._negotiated(world, pods)
        if not asked:
            return world, pods
        answers: dict[str, ControllerAnswer] = {}
        for each, claims in asked:
            for name, of_controller in claims.items():
                nodes = [_new_node(group, 0) for group in groups]
                _add(answers, await self._unsuitable(name, of_controller, world, each.pod, nodes), groups, len(pods))
        waiting, with_held = {each.pod.uid: claims for each, claims in asked}, world
        while True:
            found = await plan(_with_answers(world, answers), pods)
            places, is_agreed = {}, True
            for group, node, pod in _places(found, groups):
                if pod.uid in waiting:
                    with_held, refused = await self._tried(waiting[pod.uid], with_held, pod, node)
                    if refuses(refused, node):
                        _add(answers, refused, [group], len(pods))
                        is_agreed = False
                    else:
                        places[pod.uid] = group.name
                        del waiting[pod.uid]
            pods = [
                replace(each, groups=frozenset({places[each.pod.uid]})) if each.pod.uid in places else each
                for each in pods
            ]
            if is_agreed:
                return _with_answers(world, answers), pods

    async def _negotiated(self, world: World, pods: Sequence[PendingPod]) -> list[tuple[PendingPod, _Claims]]:
        """The pods with negotiated claims."""
        found = [(each, await self._claims(world, each.pod)) for each in pods]
        return [(each, claims) for each, claims in found if claims]

    async def _tried(
        self, claims: _Claims, world: World, pod: Pod, node: NodeObject
    ) -> tuple[World, Mapping[str, ControllerAnswer]]:
        """What controllers say about a pod on a node; and the world, where it holds its claims there if all accept."""
        answers: dict[str, ControllerAnswer] = {}
        for name, of_controller in claims.items():
            answers |= await self._unsuitable(name, of_controller, world, pod, [node])
        if refuses(answers, node) or not all(each.is_for(node) for each in chain.from_iterable(claims.values())):
            return world, answers
        held: dict[str, Holding] = {}
        for name, of_controller in claims.items():
            known = self.controllers[name]
            for each in of_controller:
                try:
                    held[each.uid] = Holding(name, await self._about(known, each), node_name(node, known.labels))
                except _NoAnswerError as error:
                    return world, {each.uid: ControllerAnswer(unanswered(str(error)))}
        return replace(world, held=world.held.update(held)), answers

    async def _claims(self, world: World, pod: Pod) -> _Claims:
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


def _places(plan: ScaleUpPlan, groups: Sequence[NodeGroup]) -> Iterator[tuple[NodeGroup, NodeObject, Pod]]:
    """The pods of a plan, each with its group and its new node."""
    by_name = {each.name: each for each in groups}
    for of_group in plan.groups:
        for number, pods in enumerate(of_group.nodes):
            node = _new_node(by_name[of_group.name], number)
            for pod in pods:
                yield by_name[of_group.name], node, pod


def refuses(answers: Mapping[str, ControllerAnswer], node: NodeObject) -> bool:
    """Whether an answer about a claim is against the node, or missing."""
    return any(each.problem is not None or node.name in each.unsuitable for each in answers.values())


def _add(
    known: dict[str, ControllerAnswer], new: Mapping[str, ControllerAnswer], groups: Collection[NodeGroup], most: int
) -> None:
    """Add answers about new nodes of groups; each is for all new nodes of its group: one for each pod at most."""
    for uid, answer in new.items():
        refused: dict[str, Printable] = {}
        for group in groups:
            reasons = [reason for name, reason in answer.unsuitable.items() if name.rpartition("/")[0] == group.name]
            names = (f"{group.name}/{number}" for number in range(min(group.limit, most) + 1))
            refused |= dict.fromkeys(names, reasons[0]) if reasons else {}
        before = known.get(uid, ControllerAnswer())
        known[uid] = ControllerAnswer(before.problem or answer.problem, {**before.unsuitable, **refused}, None)
