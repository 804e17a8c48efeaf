"""A controller that is written with the kit, and asked by questions or by PodSchedulingContexts."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allocator.tools import JSON
from extender.cluster.writes.claims import ClaimWrites
from extender.cluster.writes.other_kinds import ContextWrites
from extender.config.settings import ParameterKind
from extender.controllers import ClaimAsk, Held, NodeName, RefusedError, Responder, Store
from extender.controllers.contexts import ContextResponder
from extender.controllers.store import Entry
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.resources import CONTEXTS, Resource
from extender.lab.api import MemoryApi
from extender.plugins.negotiation.protocol import (
    ControllerAwayError,
    NegotiatedAnswer,
    NegotiatedQuestion,
    answer_of,
    question_of,
    question_to_json,
)
from extender.plugins.negotiation.questions import ParameterReader
from extender.tools.offload import at_once
from tests.extender.plugins.negotiation.scenes import NAME, WORLD, Scene
from tests.kit import virtualtime
from tests.kit.clusters import Object
from tests.kit.servers.memory import Transport

NONE_LEFT = "no license is left"


class Licenses:
    """Some licenses, for all nodes but some.

    Attributes:
        left: how many there are.
        refuses: the nodes without a server.
        fails: how many of the next allocations are refused, whatever was said of the nodes.
        is_local: whether an allocation is for its node only.
        outside: by uid of the claim, the node: what is allocated outside.
        parameters: that it was told when it was asked to allocate.
    """

    def __init__(self, left: int = 1, refuses: Sequence[str] = (), fails: int = 0, *, is_local: bool = False) -> None:
        self.left = left
        self.refuses = list(refuses)
        self.fails = fails
        self.is_local = is_local
        self.outside: dict[str, str] = {}
        self.events: list[str] = []
        self.parameters: list[Mapping[str, JSON]] = []

    def unsuitable_nodes(self, claim: ClaimAsk, nodes: Sequence[NodeName], held: Sequence[Held]) -> Mapping[str, str]:
        self.events.append("judge")
        others = [each for each in held if each.claim.uid != claim.uid]
        return {each.name: NONE_LEFT for each in nodes if len(others) >= self.left or each.name in self.refuses}

    def allocate(
        self, claim: ClaimAsk, node: NodeName, held: Sequence[Held], *, simulation: bool
    ) -> Mapping[str, JSON]:
        assert self.outside.get(claim.uid, node.name) == node.name, f"claim {claim} is allocated twice"
        self.events.append(f"allocate {claim.name} {node.name}")
        self.parameters += claim.parameters
        if self.fails or len(held) >= self.left or node.name in self.refuses:
            self.fails -= bool(self.fails)
            raise RefusedError(NONE_LEFT)
        if not simulation:
            self.outside[claim.uid] = node.name
        opaque = {"driver": NAME, "parameters": {"node": node.name}}
        here = [{"key": "metadata.name", "operator": "In", "values": [node.name]}]
        found: dict[str, Any] = {
            "devices": {"config": [{"source": "FromClaim", "requests": ["license"], "opaque": opaque}]}
        }
        if self.is_local:
            found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": here}]}
        return found

    def deallocate(self, held: Held) -> None:
        self.events.append(f"deallocate {held.claim.name}")
        self.outside.pop(held.claim.uid, None)


class Ending(Store):
    """The store of a process that ends as soon as it has allocated something."""

    def allocate(self, uid: str, entry: Entry) -> None:
        super().allocate(uid, entry)
        if entry.allocation is not None:
            raise ConnectionResetError("the process has ended")


class ByQuestions:
    """Reaches a responder as HTTP does, without sockets; implements `Controller` of negotiation."""

    def __init__(self, responder: Responder) -> None:
        self.responder = responder

    async def ask(self, question: NegotiatedQuestion) -> NegotiatedAnswer:
        read = question_of(question.kind, question_to_json(question))
        try:
            return answer_of(question, self.responder.answer(read))
        except ConnectionResetError as error:
            raise ControllerAwayError(str(error)) from error

    async def close(self) -> None:
        """There is no connection."""


class Foreign(Transport):
    """An API server that also has objects of kinds that we do not know: by plural, one for each."""

    def __init__(self, api: MemoryApi) -> None:
        super().__init__(api)
        self.objects: dict[str, RawObject] = {}

    async def get(self, resource: Resource, key: ObjectKey) -> RawObject:
        found = self.objects.get(resource.plural)
        if resource.is_foreign and found is None:
            raise ApiError(404, "NotFound", f"{resource} not found")
        return found or await super().get(resource, key)


class KitScene(Scene):
    """A cluster with controllers of the kit.

    Args:
        folder: for the store.
        contexts: whether the controllers answer by PodSchedulingContexts.
        controllers: by name.
        parameters: the kinds that the controllers read.
    """

    def __init__(
        self,
        folder: Path,
        *objects: Object,
        contexts: bool,
        controllers: Mapping[str, Licenses],
        world: tuple[Object, ...] = WORLD,
        parameters: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.parameters = parameters
        stores = {name: Store.open(folder / f"{name}.json") for name in controllers}
        self.by_context = contexts
        self.kit = {name: Responder(each, stores[name]) for name, each in controllers.items()}
        super().__init__(*objects, world=world)
        self.foreign = Foreign(self.cluster.api)
        self.contexts = [self.context_responder(name) for name in controllers] if contexts else []

    def another(self, **given: Any) -> Any:
        self.controllers = (
            {} if self.by_context else {name: ByQuestions(responder) for name, responder in self.kit.items()}
        )
        transport = {"transport": "PodSchedulingContext"} if self.by_context else {"url": "http://localhost:1"}
        named = [{"name": name, "allocationSeconds": 5, **transport} for name in self.kit]
        return super().another(**{"controllers": named, **given})

    def context_responder(self, name: str) -> ContextResponder:
        """A process of a controller; another one after a crash."""
        api, state = self.foreign, self.cluster.state
        reader = ParameterReader(api, [ParameterKind.model_validate(each) for each in self.parameters])
        return ContextResponder(
            name, self.kit[name], ContextWrites(api), ClaimWrites(api, state), lambda: self.seconds, at_once, reader
        )

    def lose_next_answer(self, name: str) -> None:
        """A process ends after its next allocation, before it tells anybody."""
        self.kit[name].store = Ending(self.kit[name].store.path)

    def restart(self, name: str) -> None:
        """A process of a controller begins with the store of the one before."""
        self.kit[name].store = Store.open(self.kit[name].store.path)

    async def turn(self, seconds: float = 0.5) -> None:
        """The controllers and the service each have a turn."""
        for each in self.contexts:
            await each.turn()
        await self.tick(seconds)

    async def schedule(self, name: str = "p", rounds: int = 8) -> str:
        """Try a pod as kube-scheduler does; its node, or why it got none."""
        reason = ""
        for _ in range(rounds):
            result = await self.filter(name)
            reason = ", ".join(sorted(set(result.unresolvable.in_words().values())))
            if result.passed:
                reason = await self.bound(name, result.passed[0])
                if not reason:
                    return str(result.passed[0])
            await self.turn()
        return reason

    async def bound(self, name: str, node: str) -> str:
        """Bind a pod while controllers work; the error of the last call."""
        while "still running" in (error := await self.during(name, node)):
            """The next call gets the answer."""
        return error

    async def during(self, name: str, node: str) -> str:
        """One call of bind, during which controllers have turns."""
        call = asyncio.ensure_future(self.bind(name, node))
        while not call.done():
            await virtualtime.elapse(0.1)
            for each in self.contexts:
                await each.turn()
        return await call

    async def context(self, name: str = "p") -> RawObject | None:
        """The PodSchedulingContext of a pod."""
        try:
            return await self.cluster.api.get(CONTEXTS, ObjectKey("ns", name))
        except ApiError:
            return None
