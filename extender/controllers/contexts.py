"""A controller that answers by PodSchedulingContexts and claims, as KEP-3063 asks of a driver.

It follows an API server, and serves what it finds there. The responder remembers what is allocated, as for a controller
on HTTP. Every write names the version of the object that it was made from, so nothing is written over what others have
said meanwhile. The next turn goes on from there.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from allocator import Claim
from allocator.tools import Recent
from extender.cluster.cluster_state import ClusterState
from extender.cluster.controller_marks import Mark, asks_to_deallocate
from extender.cluster.live import connect
from extender.cluster.objects.claims import DEALLOCATION_REQUESTED, ClaimObject, is_immediate
from extender.cluster.objects.scheduling_contexts import SchedulingContext
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.claims import ClaimWrites, ReadClaim
from extender.cluster.writes.other_kinds import ContextWrites
from extender.config.settings import ParameterKind
from extender.controllers.controller import Controller, Responder
from extender.controllers.server import led, responder_of, sole_user
from extender.controllers.store import Store, dumps, loads
from extender.framework.pods.claims import named_claims
from extender.framework.pods.negotiated_claims import NegotiatedClaim, NegotiationError, negotiated
from extender.kube.api import ApiError, ObjectKey, RawObject
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.resources import CLAIMS, CLASSES, CONTEXTS, NODES, PODS, RESOURCES
from extender.plugins.negotiation.protocol import (
    ALLOCATE,
    DEALLOCATE,
    UNSUITABLE_NODES,
    ClaimAsk,
    NegotiatedQuestion,
    NodeName,
    ask_of,
    ask_to_json,
)
from extender.plugins.negotiation.questions import ParameterReader, claim_ask, node_name
from extender.plugins.negotiation.scheduling_contexts import MOST_NODES
from extender.tools.offload import Offload, in_thread

logger = structlog.get_logger()

REFRESH_SECONDS: Final = 5.0
"""Answers about nodes are given anew after this time: what a controller knows may have changed outside."""

_TAKEN_SECONDS: Final = 1.0
"""The same after an allocation. A node that has become unsuitable until then is refused when it is selected."""

_PAUSE_SECONDS: Final = 1.0
"""After a failure, an object is left alone for this time."""

_MOST_SAID: Final = 4096

_ALLOCATED: Final = "/allocated"
"""The end of the finalizers of controllers."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A judgement for a context: its revision, what had been allocated and released, and when, by the clock."""

    revision: int
    allocations: int
    releases: int
    at: float

    def is_fresh(self, context: SchedulingContext, allocations: int, releases: int, now: float) -> bool:
        """Whether the answers still hold. A release may help pods that wait, so it counts at once."""
        seconds = REFRESH_SECONDS if self.allocations == allocations else _TAKEN_SECONDS
        return (self.revision, self.releases) == (context.revision, releases) and now < self.at + seconds


@dataclass(slots=True)
class ContextResponder:
    """Serves the contexts and the claims of one controller, in turns.

    Attributes:
        name: of the controller, as device classes name it.
        responder: answers questions.
        writes: writes contexts.
        claims: the claims of the API server; their state is followed.
        clock: measures durations, in seconds.
        off_loop: where the controller computes.
        parameters: reads the objects that classes and claims name for the controller.
    """

    name: str
    responder: Responder
    writes: ContextWrites
    claims: ClaimWrites
    clock: Callable[[], float]
    off_loop: Offload
    parameters: ParameterReader
    _allocations: int = 0
    _releases: int = 0
    """Those so far: they change what is true of nodes."""
    _nodes: tuple[object, dict[str, NodeName]] = (None, {})
    """Nodes as they are told, and the nodes of the cluster that this is about."""
    _judged: dict[ObjectKey, _Judged] = field(default_factory=dict)
    _paused: dict[Hashable, float] = field(default_factory=dict)
    _said: Recent[str] = field(default_factory=lambda: Recent(_MOST_SAID))
    """Why objects are not served, as it was logged last."""
    _looked: tuple[int, float] = (-1, 0.0)
    """Version of the cluster at the last look, and when that was."""

    @property
    def finalizer(self) -> str:
        """The finalizer of claims for which something may be allocated."""
        return f"{self.name}{_ALLOCATED}"

    async def turn(self) -> None:
        """Do what is to be done now: release first, then allocate, then judge nodes.

        Without a change of the cluster, nothing is looked at until something may be tried again.
        """
        snapshot, now = self.claims.state.snapshot, self.clock()
        version, at = self._looked
        if version == snapshot.version and now < at + _PAUSE_SECONDS:
            return
        self._looked = (snapshot.version, now)
        self._paused = {key: until for key, until in self._paused.items() if until > now}
        self._judged = {key: each for key, each in self._judged.items() if key in snapshot.objects(SchedulingContext)}
        for claim in [each for each in snapshot.claims.values() if self._is_to_release(each)]:
            await self._tried(("release", claim.key), partial(self._release, claim.key))
        for found in self._own(snapshot.claims.values(), snapshot):
            if is_immediate(found.claim.claim) and self._may_allocate(found.claim):
                await self._tried(("immediate", found.uid), partial(self._allocate_anywhere, found, snapshot))
        for context in sorted(snapshot.objects(SchedulingContext).values(), key=lambda each: (each.created, each.key)):
            await self._tried(("context", context.key), partial(self._serve, context, snapshot))

    async def _tried(self, key: Hashable, work: Callable[[], Awaitable[None]]) -> None:
        """Do a piece of work. If it fails, its object is left alone for a while, and the others are served."""
        if key in self._paused:
            return
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - a fault in the controller fails one object
            if not (isinstance(error, ApiError) and (error.is_conflict or error.is_missing)):
                self._paused[key] = self.clock() + _PAUSE_SECONDS
                self._say(key, f"{type(error).__name__}: {error}")
        else:
            self._said.forget(key)

    def _say(self, key: Hashable, error: str) -> None:
        """Log why an object is not served, once for each cause: it is tried every second."""
        if self._said.find(key) != error:
            self._said.keep(key, error)
            logger.warning("subject not served", subject=str(key), error=error)

    # --- what is ours ---------------------------------------------------------------------------------------

    def _own(self, claims: Iterable[ClaimObject], snapshot: Snapshot) -> Iterator[NegotiatedClaim]:
        """The claims without an allocation that this controller serves. dra-extender says what is wrong with others."""
        for each in claims:
            if each.claim.allocation is not None or not self._is_of_our_class(each.claim):
                continue
            try:
                found = negotiated(each, snapshot)
            except NegotiationError:
                continue
            if found is not None and found.controller == self.name and not found.has_rest:
                yield found

    def _claims_to_serve(self, context: SchedulingContext, snapshot: Snapshot) -> Mapping[str, NegotiatedClaim]:
        """The claims to serve for a context, by their names in the pod; none for a pod that is gone."""
        pod = snapshot.pods.get(context.key)
        if pod is None or pod.uid != context.pod_uid or pod.deleting:
            return {}
        names = {claim.claim.uid: name for name, claim in named_claims(pod, snapshot)}
        own = self._own((claim for _, claim in named_claims(pod, snapshot)), snapshot)
        return {names[each.uid]: each for each in own if not is_immediate(each.claim.claim)}

    def _may_allocate(self, claim: ClaimObject | ReadClaim) -> bool:
        """Whether a claim waits for an allocation, and not for a release."""
        mark, value = Mark.of(claim.claim), claim.claim
        is_open = mark is None or mark.is_released or (mark.controller == self.name and not mark.is_releasing)
        return is_open and value.allocation is None and not value.deleting and not asks_to_deallocate(value)

    def _is_to_release(self, claim: ClaimObject | ReadClaim) -> bool:
        value = claim.claim
        if value.reserved_for or not (asks_to_deallocate(value) or value.deleting):
            return False
        if self.finalizer in value.finalizers:
            return True
        if any(each.endswith(_ALLOCATED) for each in value.finalizers):
            return False  # another controller has it: who ends the request would keep that one from its release
        mark = Mark.of(value)
        is_marked = mark is not None and mark.controller == self.name
        return asks_to_deallocate(value) and (is_marked or self._is_of_our_class(value))

    def _is_of_our_class(self, claim: Claim) -> bool:
        controllers = self.claims.state.snapshot.controllers
        classes = (at.device_class for request in claim.spec.requests for at in request.alternatives)
        return self.name in map(controllers.get, classes)

    # --- nodes ----------------------------------------------------------------------------------------------

    async def _serve(self, context: SchedulingContext, snapshot: Snapshot) -> None:
        """Allocate for the selected node, if there is one; or else judge the nodes."""
        own = self._claims_to_serve(context, snapshot)
        open_ = {name: each for name, each in own.items() if self._may_allocate(each.claim)}
        refused = any(context.selected in context.unsuitable.get(name, ()) for name in own)
        if context.selected and open_ and not refused:
            there = self._named(snapshot).get(context.selected) or NodeName(context.selected)
            if not await self._allocated(list(open_.values()), there, context):
                await self._judge(context, own, snapshot, context.selected)
        elif own:
            await self._judge(context, own, snapshot, context.selected if refused else "")

    def _named(self, snapshot: Snapshot) -> Mapping[str, NodeName]:
        """All nodes as a controller is told of them, by name. Most questions are about the same ones."""
        if self._nodes[0] is not snapshot.nodes:
            found = {name: node_name(each, each.node.labels) for name, each in snapshot.nodes.items()}
            self._nodes = (snapshot.nodes, found)
        return self._nodes[1]

    async def _unsuitable(
        self, claims: Sequence[NegotiatedClaim], nodes: Sequence[NodeName]
    ) -> Mapping[str, Mapping[str, str]]:
        """The nodes that do not suit, by uid of the claim, with the reasons."""
        found: dict[str, Mapping[str, str]] = {each.uid: {} for each in claims}
        if nodes:
            asks = [await self._about(each) for each in claims]
            question = NegotiatedQuestion(UNSUITABLE_NODES, tuple(asks), None, tuple(nodes))
            answer = await self.off_loop(lambda: self.responder.answer(question))
            found |= {each["uid"]: each["unsuitableNodes"] for each in answer["claims"]}
        return found

    async def _judge(
        self, context: SchedulingContext, own: Mapping[str, NegotiatedClaim], snapshot: Snapshot, refused: str = ""
    ) -> None:
        """Write which nodes do not suit; ``refused``: the selected node, if nothing can be allocated for it."""
        last = self._judged.get(context.key)
        told = [context.unsuitable.get(name) for name in own]
        is_told = all(each is not None and (not refused or refused in each) for each in told)
        if is_told and last is not None and last.is_fresh(context, self._allocations, self._releases, self.clock()):
            return
        judged = _Judged(context.revision, self._allocations, self._releases, self.clock())
        # Nodes that were refused are not posted again, and they may suit now.
        before = (name for entry in own for name in sorted(context.unsuitable.get(entry, ())))
        names = dict.fromkeys((*context.potential, *before))
        known = self._named(snapshot)
        nodes = [known[name] for name in names if name in known]
        reasons = await self._unsuitable([*own.values()], nodes)
        self._judged[context.key] = judged
        found = {
            name: [*dict.fromkeys((*([refused] if refused else []), *(n for n in names if n in reasons[claim.uid])))]
            for name, claim in own.items()
        }
        if any(frozenset(found[name]) != context.unsuitable.get(name) for name in own):
            await self.writes.tell(context, {name: nodes[:MOST_NODES] for name, nodes in found.items()})

    # --- claims ---------------------------------------------------------------------------------------------

    async def _allocated(
        self, claims: Sequence[NegotiatedClaim], node: NodeName, context: SchedulingContext | None = None
    ) -> bool:
        """Allocate claims for a node, all or none; False: refused. Nothing changes outside before the finalizers.

        Args:
            claims: have no allocation.
            node: to allocate for.
            context: selects the node; None: no pod needs the claims yet.
        """
        about = [await self._about(each) for each in claims]
        began = [await self._begun(each.claim.key) for each in claims]
        asks = tuple(
            replace(each, attempt=self._attempt(now)) for each, now in zip(about, began, strict=True) if now is not None
        )
        if len(asks) < len(claims):
            return True  # claims have changed: the next turn sees how
        question = NegotiatedQuestion(ALLOCATE, asks, None, (node,))
        self._allocations += 1
        answer = await self.off_loop(lambda: self.responder.answer(question))
        allocations = {each["uid"]: each["allocation"] for each in answer["claims"]}
        is_late = bool(allocations) and context is not None and not await self.writes.still_selects(context)
        for each in asks if is_late else ():
            await self._given_back(each)
        if answer.get("refused"):
            logger.info("claims not allocated", node=node.name, claims=list(map(str, asks)), reason=answer["refused"])
        await self._write_allocations([each for each in began if each is not None], {} if is_late else allocations)
        return not answer.get("refused")

    async def _write_allocations(self, claims: Sequence[ReadClaim], allocations: Mapping[str, RawObject]) -> None:
        """Write what is allocated for claims, by uid; a claim without an allocation loses our finalizer."""
        for now in claims:
            allocation = allocations.get(now.claim.uid)
            if allocation is None:
                await self.claims.update(self._ended(now.raw))
            else:
                status = {**(now.raw.get("status") or {}), "allocation": allocation}
                await self.claims.update_status({**now.raw, "status": status})

    async def _about(self, claim: NegotiatedClaim) -> ClaimAsk:
        """A claim in a question, with values as by HTTP. Raises ParametersError: its parameters cannot be read."""
        return ask_of(loads(dumps(ask_to_json(claim_ask(claim, 0, await self.parameters.of(claim))))))

    async def _begun(self, key: ObjectKey) -> ReadClaim | None:
        """A claim with our finalizer, as it is now; None if it does not wait for an allocation any more."""
        now = await self.claims.get(key)
        if not self._may_allocate(now):
            return None
        if self.finalizer in now.claim.finalizers:
            return now
        metadata = now.raw["metadata"]
        finalizers = [*(metadata.get("finalizers") or []), self.finalizer]
        return await self.claims.update({**now.raw, "metadata": {**metadata, "finalizers": finalizers}})

    async def _allocate_anywhere(self, found: NegotiatedClaim, snapshot: Snapshot) -> None:
        """Allocate an immediate claim on the first node by name that suits, or on the one where it was begun."""
        self._paused["immediate", found.uid] = self.clock() + REFRESH_SECONDS
        known = self.responder.store.allocated.get(found.uid)
        nodes = [
            told
            for name, told in sorted(self._named(snapshot).items())
            if found.is_for(snapshot.nodes[name]) and (known is None or known.node.name == name)
        ]
        refused = (await self._unsuitable([found], nodes))[found.uid] if known is None else ()
        node = next((each for each in nodes if each.name not in refused), None)
        if node is not None:
            await self._allocated([found], node)

    async def _release(self, key: ObjectKey) -> None:
        """Deallocate a claim: without its allocation first, so that nobody reserves what is given back meanwhile."""
        now = await self.claims.get(key)
        if not self._is_to_release(now):
            return
        if now.claim.allocation is not None:
            gone = {"allocation", "devices"}
            status = {name: value for name, value in (now.raw.get("status") or {}).items() if name not in gone}
            now = await self.claims.update_status({**now.raw, "status": status})
        value = now.claim
        ask = ClaimAsk(value.namespace, value.name, value.uid, self._attempt(now))
        await self._given_back(ask)
        await self.claims.update(self._ended(now.raw))
        logger.info("claim given back", claim=str(ask))

    async def _given_back(self, ask: ClaimAsk) -> None:
        """Give back outside what is allocated for a claim."""
        self._releases += 1
        answer = await self.off_loop(lambda: self.responder.answer(NegotiatedQuestion(DEALLOCATE, (ask,))))
        for each in answer["claims"]:  # somebody has changed the mark; the claim itself says that it is to be released
            known = replace(ask, attempt=each["attempt"])
            await self.off_loop(partial(self.responder.answer, NegotiatedQuestion(DEALLOCATE, (known,))))

    def _ended(self, raw: RawObject) -> RawObject:
        """A claim's JSON for which nothing is allocated, and nothing is to be deallocated."""
        metadata = raw["metadata"]
        finalizers = [each for each in metadata.get("finalizers") or [] if each != self.finalizer]
        annotations = {
            key: text for key, text in (metadata.get("annotations") or {}).items() if key != DEALLOCATION_REQUESTED
        }
        return {**raw, "metadata": {**metadata, "finalizers": finalizers, "annotations": annotations}}

    def _attempt(self, claim: ReadClaim) -> int:
        mark = Mark.of(claim.claim)
        return mark.attempt if mark is not None and mark.controller == self.name else 0


KINDS: Final = (CLASSES, NODES, PODS, CLAIMS, CONTEXTS)
"""The kinds that a controller follows."""

_TURN_SECONDS: Final = 0.05
"""Between two turns."""


def serve_contexts(
    controller: Controller,
    store: Path | str,
    name: str,
    *,
    parameters: Sequence[ParameterKind] = (),
    lease: str = "",
    kubeconfig: Path | None = None,
) -> None:
    """Serve a controller by PodSchedulingContexts until SIGTERM or SIGINT comes. What was begun is finished then.

    Args:
        controller: decides.
        store: the file that remembers what is allocated. One process uses it at a time; another one waits until then.
        name: of the controller, as device classes name it.
        parameters: the kinds of objects that classes and claims may name for it.
        lease: ``NAMESPACE/NAME`` of a Lease: of several processes, the one that has the lease serves. Empty: none.
        kubeconfig: the file of the API server; None: KUBECONFIG, the pod that we run in, or ``~/.kube/config``.

    Raises:
        ConnectError: there is no API server that we can work with.
        OSError, ValueError: the store cannot be read, or the lease has no such name.
    """
    path, origin = Path(store), find_origin(kubeconfig, "", os.environ)
    with led(lease, kubeconfig) as leadership, sole_user(path):
        asyncio.run(_served(responder_of(controller, Store.open(path), leadership), name, parameters, origin))


async def _served(responder: Responder, name: str, parameters: Sequence[ParameterKind], origin: Origin) -> None:
    async with connect(origin, random=random.random, listing=KINDS) as live:
        state = ClusterState()
        for other in RESOURCES.values():
            if other not in KINDS:
                state.trust(other)
        claims, reader = ClaimWrites(live.api, state), ParameterReader(live.api, parameters)
        contexts = ContextResponder(name, responder, ContextWrites(live.api), claims, time.monotonic, in_thread, reader)
        ending = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ending.set)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(live.run(state, KINDS))
            while not ending.is_set():
                await asyncio.sleep(_TURN_SECONDS)
                if not state.not_ready:
                    await contexts.turn()
            following.cancel()
