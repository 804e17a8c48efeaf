"""Explanations over one cluster: a pod or a claim in, an explanation out, or why there is none.

An explanation runs in a thread, one at a time in fair turns of the callers, and pauses while a verb runs; it takes no
turn of a verb's search. A reader who may read one namespace gets it without the names of other namespaces' objects. Who
may read all namespaces, and everybody on loopback, gets the explanation as it is.
"""

import asyncio
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Final, cast

from allocator import DeviceId, InvalidObjectError
from allocator.tools import dns_label, dns_subdomain
from extender.answers.explain.explainer import Explainer, explain_claim, unknown_claim
from extender.answers.explain.explanation import (
    Conclusion,
    Explanation,
    Proposal,
    Spared,
    needs_no_devices,
    unknown_pod,
)
from extender.answers.explain.holders import Holder
from extender.answers.explain.patches import ObjectPatch
from extender.answers.explain.pod_claims import Admission, read_admission
from extender.answers.observe.overview import Overview
from extender.answers.observe.tables.pods import fits_in_words
from extender.cluster.objects.pods import Pod, parse_pod
from extender.cluster.priority_classes import CLASS_NAME, read_priority_classes
from extender.cluster.snapshot import Snapshot
from extender.cluster.whole_pods import NOT_LISTED, ListedPods
from extender.config.settings import SchedulingSettings
from extender.framework.cycle import refreshed
from extender.framework.decisions.evaluate import Decider
from extender.framework.pods.claims import stand_in
from extender.kube.api import ApiError, ObjectKey, OutcomeUnknownError, RawObject
from extender.kube.resources import CLAIMS, PODS
from extender.planning.changes import Suggest
from extender.plugins.negotiation.negotiation import Negotiation
from extender.plugins.requeue.unserved import Cause
from extender.tools.fairness import CrowdedError, Places
from extender.tools.faults import RefusedError
from extender.tools.offload import Offload, in_thread

ELSEWHERE: Final = "an object of another namespace"
"""Stands for the name of an object that the reader may not read."""

_ELSEWHERE: Final = "of another namespace"
"""Stands for the name after a noun."""

LEFT_OUT: Final = "names of objects of other namespaces are left out, and so are proposals to change such objects"

_NAMED: Final = re.compile(r"(?<![\w./-])([a-z0-9-]{1,63})/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?(?![\w/-])")
"""Namespace and name, with a slash. The id of a device has two slashes, and begins with the name of a driver."""

_OPTION: Final = re.compile(r"(?<!\S)(?:-n|--namespace|namespace)[ =]([a-z0-9-]{1,63})(?![\w.-])")
"""The namespace of a command, or one that a sentence names."""


def namespaces_of(snapshot: Snapshot) -> frozenset[str]:
    """The namespaces of everything that an explanation may name."""
    return frozenset(key.namespace for keys in (snapshot.claims, snapshot.pods) for key in keys) | frozenset(
        snapshot.quotas_in
    )


def names_within(explanation: Explanation, own: str, namespaces: Collection[str]) -> Explanation:
    """The explanation with names of objects of one namespace alone.

    Args:
        explanation: of an object of that namespace.
        own: the namespace.
        namespaces: all namespaces whose objects it may name.
    """
    reader = _Reader(frozenset(namespaces) - {own})
    proposals = tuple(each for each in explanation.proposals if not reader.is_foreign(each))
    found = cast("Explanation", reader.redacted(replace(explanation, proposals=proposals)))
    if found == explanation:
        return explanation
    return replace(found, notes=(*found.notes, LEFT_OUT))


class _Reader:
    """The rights of one reader.

    Args:
        foreign: the namespaces that it may not read.
    """

    def __init__(self, foreign: frozenset[str]) -> None:
        self._foreign = foreign

    def text(self, text: str) -> str:
        named = _NAMED.sub(lambda found: ELSEWHERE if found[1] in self._foreign else found[0], text)
        return _OPTION.sub(lambda found: _ELSEWHERE if found[1] in self._foreign else found[0], named)

    def is_foreign(self, proposal: Proposal) -> bool:
        """Whether a proposal changes an object that the reader may not read."""
        texts = (text for change in proposal.changes for text in (change.what, change.text, change.how))
        return any(self.text(text) != text for text in texts)

    def holder(self, holder: Holder) -> Holder:
        """Who has a device. A note of a claim may name a consumer without its namespace."""
        if not holder.claim:
            return replace(holder, pods=tuple(map(self.text, holder.pods)))
        return Holder("", (_ELSEWHERE,), share=holder.share) if self.text(holder.claim) != holder.claim else holder

    def spared(self, spared: Spared) -> Spared:
        """Pods and claims that are not evicted, and why."""
        own = tuple(name for name in spared.names if self.text(name) == name)
        others = len(spared.names) - len(own)
        if not others:
            return Spared(self.text(spared.reason), own)
        counted = f"{others} of other namespaces"
        return Spared(self.text(spared.reason) if own else "not evicted", (*own, counted))

    def redacted(self, value: object) -> object:
        """A value in which all texts are redacted.

        Ids of devices are no names of objects of a namespace. Proposals that patch foreign objects are left out before.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, DeviceId | ObjectPatch):
            return value
        if isinstance(value, Holder | Spared):
            return self.holder(value) if isinstance(value, Holder) else self.spared(value)
        if isinstance(value, Mapping):
            return {self.redacted(key): self.redacted(each) for key, each in value.items()}
        if isinstance(value, tuple):
            parts = [self.redacted(each) for each in value]
            return getattr(value, "_make", tuple)(parts)
        if is_dataclass(value) and not isinstance(value, type):
            changed = {
                each.name: new
                for each in fields(value)
                if each.init and (new := self.redacted(old := getattr(value, each.name))) is not old
            }
            return replace(value, **changed) if changed else value
        return value


_EXPLAINING_SECONDS: Final = 10.0
"""The longest time of one explanation. Other explanations wait meanwhile."""

_CAUSE_SECONDS: Final = 2.0
"""The longest time to find what an Event tells."""

_REMEDY_SECONDS: Final = 0.1
"""The work, of that, to find what would help: enough for one or two changes on a few nodes."""

_CAUSES: Final = "events"
"""The caller in whose turn that is found."""

_ASKING_SECONDS: Final = 5.0
"""The longest wait for the API server to say whether a pod exists, with the wait for answers about other pods."""


class Explanations:
    """Explains the pods and claims of a cluster.

    Attributes:
        overview: of the cluster.
        verb_priority: knows when verbs run.

    Args:
        overview: of the cluster.
        negotiation: asks controllers about claims that they allocate.
        scheduling: the schedulers that call the extender, and whether pods are evicted.
        suggest: finds further changes for pods that fit nowhere.
        in_background: where the causes are found that no person has asked for.
    """

    def __init__(
        self,
        overview: Overview,
        negotiation: Negotiation,
        scheduling: SchedulingSettings,
        suggest: Sequence[Suggest] = (),
        in_background: Offload = in_thread,
    ) -> None:
        self.overview = overview
        self.verb_priority = overview.verb_priority
        self._state = overview.state
        self._api = overview.api
        self._decider = overview.decider
        self._negotiation = negotiation
        self._scheduling = scheduling
        self._suggest = suggest
        self._in_background = in_background
        self._explaining = Places(1, 1, time.monotonic)
        self._asking = Places(1, 1, time.monotonic)

    async def of_pod(
        self, key: ObjectKey, nodes: Sequence[str] | None = None, *, within: str | None = None, caller: str = ""
    ) -> Explanation | str:
        """Why a pod of the cluster goes where it goes, on all nodes or on some. A text if there is no such pod.

        Args:
            key: of the pod.
            nodes: None: all nodes.
            within: the only namespace whose objects the reader may read; None: all.
            caller: whose turn it is.

        Raises:
            RefusedError: the cluster is not known well enough, or the API server does not say whether the pod exists.
            CrowdedError: others wait.
        """
        pod = self._state.known().pods.get(key)
        if pod is None:
            return await self._absence(key, within, caller)
        return await self.explain(pod, nodes, within=within, caller=caller)

    async def explain(
        self,
        pod: Pod,
        nodes: Sequence[str] | None = None,
        *,
        priority_class: str | None = None,
        within: str | None = None,
        caller: str = "",
    ) -> Explanation:
        """Like `of_pod`, for a pod that need not exist.

        Args:
            pod: is explained.
            nodes: as in `of_pod`.
            priority_class: what a pod names that no API server has admitted; None: the pod has its priority.
            within: as in `of_pod`.
            caller: as in `of_pod`.

        Raises:
            RefusedError: the cluster is not known well enough.
            CrowdedError: others wait.
        """
        await self._negotiation.look(pod)
        self._state.known()
        with await self._asking.take(caller):
            listed = await self.overview.listed_pods()
            snapshot = self._state.known()
            known = listed.whole(refreshed(pod, snapshot))
            admission = await read_admission(known, snapshot, self._api)
            if priority_class is not None:
                known, admission = await self._prioritized(known, priority_class, admission)

        def explained() -> Explanation:
            explainer = self._explainer(snapshot, listed)
            return _readable(explainer.explain(known, nodes, admission), within, snapshot)

        return await self._explaining.offload(in_thread, caller)(explained)

    async def cause(self, pod: Pod) -> Cause:
        """The problem with a pod that fits nowhere, and what would help, for who may read its namespace alone.

        Neither the API server nor controllers are asked, and few changes are tried.
        """
        snapshot = self._state.snapshot
        known = refreshed(pod, snapshot)

        def explained() -> Cause:
            until = self._decider.solver.clock() + _CAUSE_SECONDS
            brief = self._explainer(snapshot)
            pause = self.overview.give_way
            brief = replace(brief, pause=pause, until=until, seconds=_REMEDY_SECONDS, preempts=False, suggest=())
            found = _readable(brief.explain(known), known.namespace, snapshot)
            return Cause(found.headline, found.proposals[0].order if found.proposals else "")

        with suppress(CrowdedError):
            return await self._explaining.offload(self._in_background, _CAUSES)(explained)
        return Cause()

    async def _prioritized(self, pod: Pod, name: str, admission: Admission) -> tuple[Pod, Admission]:
        """The pod with what its priority class says; or why it is not made, or what could not be read."""
        classes = await read_priority_classes(self._api)
        found = classes.named(name)
        if isinstance(found, str):
            return pod, replace(admission, unmade=admission.unmade or f"spec.{CLASS_NAME}: {found}")
        unread = admission.unread or (f"priority classes: {classes.unread}" if classes.unread else "")
        return replace(pod, priority=found.value, may_preempt=found.preempts), replace(admission, unread=unread)

    async def of_claim(
        self, key: ObjectKey, nodes: Sequence[str] | None = None, *, within: str | None = None, caller: str = ""
    ) -> Explanation | str:
        """What a claim holds, or why it is not allocated; as `of_pod`. A text if there is no such claim.

        Raises:
            RefusedError: the cluster is not known well enough.
            CrowdedError: others wait.
        """
        snapshot = self._state.known()
        found = snapshot.claims.get(key)
        if found is None:
            if problem := snapshot.problems.get((CLAIMS.kind, key)):
                return f"claim {key} can't be read: {problem}"
            known = (each for other, each in snapshot.claims.items() if within in (None, other.namespace))
            return await self._explaining.offload(in_thread, caller)(partial(unknown_claim, key, known))
        await self._negotiation.look(stand_in(found.claim))
        with await self._asking.take(caller):
            listed = await self.overview.listed_pods()
        now = self._state.known()

        def explained() -> Explanation:
            return _readable(explain_claim(found, self._explainer(now, listed), nodes), within, now)

        return await self._explaining.offload(in_thread, caller)(explained)

    def _explainer(self, snapshot: Snapshot, listed: ListedPods = NOT_LISTED) -> Explainer:
        """Explains from now on: to wait for others costs no time of an explanation."""
        until = self._decider.solver.clock() + _EXPLAINING_SECONDS
        return Explainer(
            listed.beside(snapshot),
            self._decider,
            self.verb_priority.turn(),
            until,
            schedulers=self._scheduling.scheduler_names,
            marked_only=self._scheduling.marked_pods_only,
            preempts=self._scheduling.preemption,
            suggest=self._suggest,
            followed=snapshot,
            unread=listed.problems,
        )

    async def _absence(self, key: ObjectKey, within: str | None, caller: str) -> str:
        """Why there is no pod with devices of that name. The API server is asked: it has the pods without devices."""
        snapshot = self._state.known()
        if problem := snapshot.problems.get((PODS.kind, key)):
            return f"pod {key} can't be read: {problem}"
        found = await self._asked_for(key, caller)
        if found is None:
            known = [other for other in snapshot.pods if within in (None, other.namespace)]
            return await self._explaining.offload(in_thread, caller)(partial(unknown_pod, key, known))
        try:
            return f"pod {key} is not known here yet" if parse_pod(found).needs_devices else needs_no_devices(key)
        except InvalidObjectError as error:
            return f"pod {key} can't be read: {error.summary}"

    async def _asked_for(self, key: ObjectKey, caller: str) -> RawObject | None:
        """The pod as the API server has it; None if there is none. One request at a time, not one for each caller."""
        if dns_label(key.namespace) or dns_subdomain(key.name):
            return None
        try:
            async with asyncio.timeout(_ASKING_SECONDS):
                with await self._asking.take(caller):
                    return await self._api.get(PODS, key)
        except (ApiError, OutcomeUnknownError, TimeoutError) as error:
            if isinstance(error, ApiError) and error.is_missing:
                return None
            text = f"no pod with devices is called {key}; the API server does not say whether it exists"
            raise RefusedError(f"{text}: {error}" if str(error) else text) from error


def _readable(explanation: Explanation, within: str | None, snapshot: Snapshot) -> Explanation:
    """The explanation as its reader may read it."""
    return explanation if within is None else names_within(explanation, within, namespaces_of(snapshot))


_SECONDS: Final = 2.0
"""The longest time for the pods of one table. The next table begins with what is known then."""

LATER: Final = "not judged yet: look again"
"""Stands for the reason of a pod for which there was no time."""


class UnaskedPods:
    """Judges pods that nobody asks about, and remembers the answers until the cluster changes.

    Args:
        decider: remembers verdicts.
        turn: makes what each table calls between small pieces of work, so that verbs go first.
        schedulers: names of the schedulers that call the extender; empty: not known.
        marked_only: the schedulers ask only about pods with the marker.
    """

    def __init__(
        self,
        decider: Decider,
        turn: Callable[[], Callable[[], None]],
        schedulers: Sequence[str] = (),
        *,
        marked_only: bool = False,
    ) -> None:
        self._decider = decider
        self._turn = turn
        self._schedulers = schedulers
        self._marked_only = marked_only
        self._known: tuple[int, dict[str, str]] = (-1, {})

    def reasons(self, snapshot: Snapshot, seconds: float = _SECONDS) -> Callable[[Pod], str]:
        """Return a function that says why a pending pod of the snapshot waits, for one table.

        The function judges new pods for this number of seconds, and returns `LATER` for the rest. Several threads may
        call it at the same time: they find the same reasons.
        """
        clock = self._decider.solver.clock
        until, pause = clock() + seconds, self._turn()
        if self._known[0] != snapshot.version:
            self._known = (snapshot.version, {})
        known = self._known[1]

        def reason(pod: Pod) -> str:
            found = known.get(pod.uid, "")
            if not found and clock() < until:
                found = known[pod.uid] = self._judged(pod, snapshot, pause, until)
            return found or LATER

        return reason

    def _judged(self, pod: Pod, snapshot: Snapshot, pause: Callable[[], None], until: float) -> str:
        explainer = Explainer(
            snapshot,
            self._decider,
            pause,
            until,
            seconds=0.0,
            schedulers=self._schedulers,
            marked_only=self._marked_only,
            preempts=False,
        )
        found = explainer.explain(pod)
        if found.verdict is Conclusion.FITS:
            return fits_in_words(len(found.places))
        return found.headline or found.summary
