"""The queue at the gate: which pods are held, and which are next, in fair turns of their namespaces."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from allocator import Clock
from extender.cluster.consumers import claim_keys
from extender.cluster.kinds import Topic
from extender.cluster.objects.pods import GangKey, Pod
from extender.cluster.snapshot import EMPTY, Snapshot
from extender.cluster.timeline import Reach
from extender.framework.bound_pods import lacks_some, needs_claims
from extender.framework.decisions.evaluate import Decider
from extender.framework.plugin import Refused
from extender.framework.queueing_hints import queueing_hint
from extender.kube.api import ObjectKey
from extender.planning.queue import likeness_of
from extender.plugins.scheduling_gates.gated_pods import (
    NOT_KNOWN,
    WHOLE,
    GatedPods,
    Head,
    Next,
    Prospect,
    Turn,
    held_by,
    prospect_of,
    tried_alike,
    with_lifted,
)
from extender.plugins.scheduling_gates.pod_lines import Line, Lines
from extender.plugins.scheduling_gates.shares import (
    BEHIND_SECONDS,
    FAILED_SHARE,
    TRY_SECONDS,
    Account,
    Bounds,
    Shares,
)
from extender.tools.fairness import Turns

JUDGING_SECONDS: Final = 0.01
"""After this time, other work on the event loop goes first; and so long, one look may ask what filter remembers of the
pods of one namespace."""

MOST_PIECES: Final = 10
"""In so many pieces of about this time, one look judges new pods. In as many it chooses: half of them are to see who is
next in each namespace."""

SHOWN_SECONDS: Final = 10.0
"""If the watch still shows the gate of a lifted pod after this time, the pod waits for its turn again. If it does not
show the claims of a bound pod, the pod counts against its quotas no more."""

_OF_PODS: Final = frozenset({Topic.POD, Topic.CLAIM})
"""Changes of these alter what single pods get, and no pod beside them; of pools in use, the pool is told as well."""

_MOST_NEW: Final = 64
"""Pods of one namespace that one look judges at most."""

Tell: TypeAlias = Callable[[Pod, Refused | None], None]
"""Is told of a pod that is held, and why; None: it is held no more."""


_Place: TypeAlias = tuple[int, int, str, str]
"""The place of a namespace in the order of turns: priority, lifted pods, age of its next pod, and its name."""


class _Lifted(NamedTuple):
    """A pod that was chosen."""

    namespace: str
    kind: Hashable
    next: Next
    at: float


class _Bound(NamedTuple):
    """A pod that has got its node before the watch has shown its claims: the watch of pods may be ahead."""

    namespace: str
    at: float


class _Fork(NamedTuple):
    """A cluster in which quotas count what lifted pods ask for."""

    uids: Sequence[str]
    snapshot: Snapshot


class GateQueue:
    """Knows the gated pods of a cluster as it was at the last look. The event loop alone uses it.

    Args:
        decider: remembers what filter has found. Its solver has the clock, the plugins and the faults.
        bounds: on lifted pods.
        tell: is told who is held.
    """

    def __init__(self, decider: Decider, bounds: Bounds, tell: Tell) -> None:
        self._decider, self._solver, self._bounds, self._tell = decider, decider.solver, bounds, tell
        self._turns = Turns(self._solver.clock)
        self._failed = Turns(self._solver.clock)
        """What failed tries have cost the schedulers."""
        self._snapshot, self._lines = EMPTY, Lines()
        self._gated: dict[str, GatedPods] = {}
        """By namespace."""
        self._kinds: dict[str, Hashable] = {}
        """The kind of each pod that waits for its turn, by uid."""
        self._users: dict[ObjectKey, dict[str, None]] = {}
        """The uids of the judged pods that name a claim."""
        self._told: set[str] = set()
        """The uids of pods of which it was told that they are held."""
        self._forks: dict[str, _Fork] = {}
        """Within one look, by namespace."""
        self._lifted: dict[str, _Lifted] = {}
        """Pods that were chosen and that their scheduler has neither bound nor rejected, by uid."""
        self._bound: dict[str, _Bound] = {}
        """By uid."""
        self._alike: dict[str, Hashable] = {}
        """Within one look, by uid of a pod: equal for those that their scheduler finds the same nodes for."""

    @property
    def clock(self) -> Clock:
        """Measures durations, in seconds."""
        return self._solver.clock

    @property
    def judged(self) -> int:
        """Of how many pods is kept what was found out."""
        return sum(each.judged for each in self._gated.values())

    @property
    def held(self) -> int:
        """How many pods are held."""
        return sum(len(each.held) for each in self._gated.values())

    @property
    def waiting(self) -> int:
        """How many pods wait for their turn, or to be judged."""
        return len(self._kinds) + sum(len(each.new) for each in self._gated.values())

    # --- what has changed -----------------------------------------------------------------------------------

    def begin(self, snapshot: Snapshot, lines: Lines) -> None:
        """Take in a cluster of which it is not known what has changed."""
        self._snapshot, self._lines = snapshot, lines
        self._gated.clear()
        self._kinds.clear()
        self._users.clear()
        self._told.clear()
        self._bound.clear()
        for namespace in lines.namespaces(Line.GATED):
            pods = (pod for uid in lines.of(Line.GATED, namespace) if (pod := snapshot.pod(uid)) is not None)
            self._of(namespace).new.update((pod.uid, None) for pod in sorted(pods, key=lambda pod: pod.order))

    def follow(self, snapshot: Snapshot, lines: Lines, reach: Reach) -> None:
        """Take in the changes since the last look."""
        if reach.changed is None:
            self.begin(snapshot, lines)
            return
        before, lines_before = self._snapshot, self._lines
        self._snapshot, self._lines = snapshot, lines
        hint = queueing_hint(reach, before, snapshot, self._solver.plugins)
        for key in reach.keys(Topic.POD) or ():
            old, new = before.pods.get(key), snapshot.pods.get(key)
            self._moved(old, new)
            if old is not None and (old.uid in self._lifted or old.uid in lines_before.of(Line.LIFTED, key.namespace)):
                self._left_line(old)
            if old is not None and old.is_pending and new is not None:
                self._note_bound(new)
        self._forget_bound()
        for key in reach.keys(Topic.POD_GROUP) or ():
            self._judge_gang(GangKey(key.namespace, key.name, is_pod_group=True))
        for namespace in list(self._gated) if hint.everywhere else hint.namespaces:
            if namespace in self._gated:
                self._judge_anew(list(self._gated[namespace].held))
        for claim in hint.claims:
            self._judge_anew(list(self._users.get(claim, ())))
        if any(topic.alters_decisions and topic not in _OF_PODS for topic in reach.changed):
            is_better = hint.everywhere or bool(hint.nodes)
            for kind in (kind for gated in self._gated.values() for kind in gated.kinds.values()):
                kind.is_old |= is_better or (kind.prospect is not None and not kind.prospect.is_hopeless)

    def _moved(self, old: Pod | None, new: Pod | None) -> None:
        """A pod has changed, come or gone. Those of its gang may be held for another reason, or for none."""
        if old is not None:
            self._drop(old)
        if new is not None and new.uid in self._lines.of(Line.GATED, new.namespace):
            self._of(new.namespace).new[new.uid] = None
        for gang in {pod.gang_key for pod in (old, new) if pod is not None and pod.gang_key is not None}:
            self._judge_gang(gang)

    def _left_line(self, pod: Pod) -> None:
        """A lifted pod has changed. If it is bound, rejected or gone, quotas may have more left for held pods."""
        gated = self._gated.get(pod.namespace)
        if gated is None or any(pod.uid in self._lines.of(line, pod.namespace) for line in (Line.GATED, Line.LIFTED)):
            return
        if self._solver.plugins.count_holders(pod, self._snapshot):
            self._judge_anew(list(gated.held))

    def _note_bound(self, pod: Pod) -> None:
        """A pending pod has changed. If it is bound, quotas count what it asks for until they count its claims."""
        if lacks_some(pod, self._snapshot) and self._solver.plugins.count_holders(pod, self._snapshot):
            self._bound[pod.uid] = _Bound(pod.namespace, self._solver.clock())

    def _forget_bound(self) -> None:
        """Forget bound pods whose claims the watch has shown; and those that will have none, as it seems."""
        late = self._solver.clock() - SHOWN_SECONDS
        for uid, each in list(self._bound.items()):
            pod = self._snapshot.pod(uid)
            lacks = pod is not None and lacks_some(pod, self._snapshot)
            if lacks and each.at > late:
                continue
            del self._bound[uid]
            if lacks or pod is None or not needs_claims(pod):
                self._judge_anew(list(self._gated.get(each.namespace, GatedPods()).held))

    def _judge_gang(self, gang: GangKey) -> None:
        """One held pod of a gang is judged anew. If it may be tried, the others are judged as well."""
        self._judge_anew(list(islice(self._held_of(gang), 1)))

    def _held_of(self, gang: GangKey) -> Iterable[str]:
        gated = self._gated.get(gang.namespace, GatedPods())
        return (uid for uid in self._members(gang) if uid in gated.held)

    def _members(self, gang: GangKey) -> Collection[str]:
        return self._snapshot.gangs.members.get(gang, ())

    def _judge_anew(self, uids: Iterable[str]) -> None:
        for uid in uids:
            pod = self._snapshot.pod(uid)
            if pod is not None and (uid in self._kinds or uid in self._of(pod.namespace).held):
                self._drop(pod)
                self._of(pod.namespace).new[uid] = None

    def _drop(self, pod: Pod) -> None:
        """Forget a gated pod."""
        gated = self._of(pod.namespace)
        gated.new.pop(pod.uid, None)
        gated.held.pop(pod.uid, None)
        if self._snapshot.pod(pod.uid) is None:
            self._told.discard(pod.uid)
        if pod.uid in self._kinds:
            gated.remove(pod.uid, self._kinds.pop(pod.uid))
        if gated.is_empty:
            del self._gated[pod.namespace]
        for key in claim_keys(pod):
            users = self._users.get(key, {})
            users.pop(pod.uid, None)
            if not users:
                self._users.pop(key, None)

    def _of(self, namespace: str) -> GatedPods:
        return self._gated.setdefault(namespace, GatedPods())

    # --- judging --------------------------------------------------------------------------------------------

    def judge(self) -> Iterator[None]:
        """Judge pods that are new, in fair turns of the namespaces, in pieces as `chosen`."""
        clock = self._solver.clock
        until, left = clock() + JUDGING_SECONDS, MOST_PIECES
        new = [(name, uid) for name, gated in self._gated.items() for uid in self._to_judge(gated)]
        for name, uid in self._turns.ordered(new, lambda each: each[0]):
            self._of(name).new.pop(uid, None)
            pod = self._snapshot.pod(uid)
            if pod is not None and uid not in self._lifted:
                with self._turns.of(name), self._solver.faults.of(f"pod {pod}", partial(self._hold_faulty, pod)):
                    self._judge(pod)
            if clock() > until:
                yield
                until, left = clock() + JUDGING_SECONDS, left - 1
                if not left:
                    return

    def _to_judge(self, gated: GatedPods) -> Sequence[str]:
        """The pods of a namespace that are judged in this look. If it has no room, others are forgotten for them.

        Those come again after all that are not judged: so whatever fills the room, each pod is judged some day.
        """
        found = list(islice(gated.new, _MOST_NEW))
        over = gated.judged + len(found) - self._bounds.judged_of_one(len(self._gated))
        if found and over > 0:
            self._judge_anew(gated.judged_again(over))
        return found

    def _judge(self, pod: Pod) -> None:
        for key in claim_keys(pod):
            self._users.setdefault(key, {})[pod.uid] = None
        if (refused := self._held_by(pod, self._snapshot)) is not None:
            self._hold(pod, refused)
            return
        if pod.uid in self._told:
            self._told.discard(pod.uid)
            self._tell(pod, None)
        gang = pod.gang_key
        kind = likeness_of(pod, self._snapshot) if gang is None else gang
        self._kinds[pod.uid] = self._of(pod.namespace).add(pod, kind)
        if gang is not None:
            self._judge_anew(list(self._held_of(gang)))

    def _held_by(self, pod: Pod, snapshot: Snapshot) -> Refused | None:
        """Who refuses a pod so that a try changes nothing; None also if that takes long: then filter finds it out."""
        try:
            return held_by(pod, snapshot, self._solver.within(self._solver.clock() + JUDGING_SECONDS))
        except TimeoutError:
            return None

    def _hold(self, pod: Pod, refused: Refused) -> None:
        self._of(pod.namespace).held[pod.uid] = None
        self._told.add(pod.uid)
        self._tell(pod, refused)

    def _hold_faulty(self, pod: Pod, _fault: str) -> None:
        """A pod at which something failed is held until something changes that may help it."""
        self._of(pod.namespace).held[pod.uid] = None

    def note_failed(self, namespace: str) -> None:
        """A scheduler has tried a pod of a namespace in vain."""
        self._failed.spend(namespace, TRY_SECONDS)

    def note_retry(self, pod: Pod) -> None:
        """A scheduler has tried a pod in vain. The first time counts once the watch shows it, whoever was asked."""
        if pod.uid in self._lines.of(Line.REJECTED, pod.namespace):
            self.note_failed(pod.namespace)

    # --- choosing -------------------------------------------------------------------------------------------

    def chosen(self) -> Iterator[Sequence[Pod]]:
        """Choose the pods that are lifted now, in pieces of about `JUDGING_SECONDS`; other work may go on in between.

        Of the namespaces with room, the one whose next pod has the highest priority is first, then the one with the
        fewest lifted pods, then the one whose next pod is the oldest. If there are so many that not all can be asked,
        those that have used the least time lately are.
        """
        self._forget_lifted()
        self._forks.clear()
        self._alike.clear()
        clock, (shares, turns) = self._solver.clock, self._opened()
        until, left = clock() + JUDGING_SECONDS, MOST_PIECES
        found = [pod for name, turn in turns.items() for pod in self._extra(name, turn, shares)]
        heap: list[_Place] = []
        for name in self._turns.ordered(turns, str):
            with self._turns.of(name):
                _push(heap, name, turns[name].next(shares), turns[name])
            if clock() > until:
                yield found
                found, until, left = [], clock() + JUDGING_SECONDS, left - 1
                if left <= MOST_PIECES // 2:
                    break
        while heap and left > 0:
            name = heappop(heap)[-1]
            with self._turns.of(name):
                if (next_one := turns[name].next(shares)) is not None:
                    if self._is_behind(next_one.head, finds_node=not next_one.is_hopeless):
                        turns[name].pass_over(next_one)
                    else:
                        found += self._taken(name, turns[name], next_one, shares)
                _push(heap, name, turns[name].next(shares), turns[name])
            if clock() > until:
                yield found
                found, until, left = [], clock() + JUDGING_SECONDS, left - 1
        yield found

    def _opened(self) -> tuple[Shares, dict[str, Turn]]:
        """The shares, and the turn of each namespace."""
        accounts, clock = self._accounts(), self._solver.clock
        ask = partial(self._asked, {})
        out = Counter((each.namespace, each.kind) for each in self._lifted.values())
        turns = {
            name: Turn(name, gated, accounts.setdefault(name, Account()), out, ask, clock)
            for name, gated in self._gated.items()
            if gated.kinds
        }
        number = len(turns.keys() | set(self._lines.namespaces(Line.LIFTED)))
        trying = sum(each.is_trying for each in accounts.values())
        return Shares(self._bounds, sum(each.lifted for each in accounts.values()), number, trying), turns

    def _asked(self, used: dict[str, float], uid: str) -> Prospect | None:
        """What filter remembers of a pod; None: there is no time to ask, or not all pods of its gang are judged.

        Args:
            used: the time that each namespace has used for its questions.
            uid: of the pod.
        """
        pod = self._snapshot.pod(uid)
        if pod is None:
            return NOT_KNOWN
        if pod.gang_key is not None:
            return WHOLE if self._gated[pod.namespace].new.keys().isdisjoint(self._members(pod.gang_key)) else None
        if used.get(pod.namespace, 0.0) >= JUDGING_SECONDS:
            return None
        began = self._solver.clock()
        try:
            return prospect_of(pod, self._snapshot, self._decider)
        finally:
            used[pod.namespace] = used.get(pod.namespace, 0.0) + self._solver.clock() - began

    def _extra(self, name: str, turn: Turn, shares: Shares) -> Sequence[Pod]:
        """The first pod of a namespace, once some of its pods have waited for their turn for long enough."""
        now, gated, head = self._solver.clock(), self._gated[name], turn.first()
        after = now + shares.extra_seconds(turn.account)
        if head is None or gated.extra is None or now < gated.extra:
            gated.extra = after if gated.extra is None else gated.extra
            return ()
        gated.extra = after
        if self._is_behind(head):
            gated.behind = now if gated.behind is None else gated.behind
            if now < gated.behind + BEHIND_SECONDS:
                return ()
        gated.behind = None
        return self._taken(name, turn, Next(head, is_trial=True), shares)

    def _is_behind(self, head: Head, *, finds_node: bool = False) -> bool:
        """Whether rejected pods of no lower priority have what is left of its quotas, once there are nodes for them.

        A pod that may find a node waits for those that find it, too: their scheduler tries them again soon. Another one
        waits for all of them: an autoscaler would bring it a node that stays empty.
        """
        pods = self._with_gang(head)
        rejected = self._lines.of(Line.REJECTED, pods[0].namespace) if pods else ()
        if finds_node and rejected:
            rejected = self._tried_alike(pods[0], rejected)
        return bool(rejected) and self._over_quota(pods, rejected) is not None

    def _tried_alike(self, pod: Pod, uids: Iterable[str]) -> Sequence[str]:
        """The pods for which their scheduler finds the same nodes as for a pod; none if no quota counts them."""
        if not self._solver.plugins.count_holders(pod, self._snapshot) or (kind := self._kind_of(pod)) is None:
            return ()
        return [each.uid for each in self._known_of(uids) if self._kind_of(each) == kind]

    def _kind_of(self, pod: Pod) -> Hashable:
        if pod.uid not in self._alike:
            self._alike[pod.uid] = tried_alike(pod, self._snapshot)
        return self._alike[pod.uid]

    def _with_gang(self, head: Head) -> Sequence[Pod]:
        """A pod, and with it those of its gang that wait for their turn."""
        first = self._snapshot.pods[self._snapshot.pod_keys[head.uid]]
        uids = [head.uid] if first.gang_key is None else self._members(first.gang_key)
        return self._known_of(uid for uid in uids if uid in self._kinds)

    def _known_of(self, uids: Iterable[str]) -> Sequence[Pod]:
        return [pod for uid in uids if (pod := self._snapshot.pod(uid)) is not None]

    def _taken(self, name: str, turn: Turn, next_one: Next, shares: Shares) -> Sequence[Pod]:
        """Take a pod, and with it those of its gang that wait for their turn; empty: quotas have no room for them."""
        head, gated = next_one.head, self._gated[name]
        pods = self._with_gang(head)
        refused, now = self._over_quota(pods), self._solver.clock()
        for pod in pods:
            gated.remove(pod.uid, self._kinds.pop(pod.uid))
            if refused is None:
                self._lifted[pod.uid] = _Lifted(name, head.kind, next_one, now)
            else:
                self._hold(pod, refused)
        turn.taken(next_one, 0 if refused else len(pods), shares)
        return () if refused else pods

    def _over_quota(self, pods: Sequence[Pod], rejected: Iterable[str] = ()) -> Refused | None:
        """Who refuses one of some pods beside others of their namespace.

        Those are lifted and rejected ones of no lower priority, which their scheduler tries first, and bound ones whose
        claims the watch has not shown.
        Of a large gang, not all pods are asked about: filter finds out what was not found in time.

        Args:
            pods: one, or pods of a gang.
            rejected: the uids of the rejected pods that count, too.
        """
        if not self._solver.plugins.count_holders(pods[0], self._snapshot):
            return None
        namespace = pods[0].namespace
        uids = {*self._lines.of(Line.LIFTED, namespace)}
        uids |= {uid for uid, each in self._lifted.items() if each.namespace == namespace}
        others = self._known_of((*uids, *rejected))
        bound = self._known_of(uid for uid, each in self._bound.items() if each.namespace == namespace)
        before = sorted((each for each in others if each.priority >= pods[0].priority), key=attrgetter("order"))
        until = self._solver.clock() + JUDGING_SECONDS
        for number, pod in enumerate(pods):
            snapshot = self._with_lifted([*bound, *before, *pods[:number]], namespace)
            if (refused := self._held_by(pod, snapshot)) is not None:
                return refused
            if self._solver.clock() > until:
                break
        return None

    def _with_lifted(self, pods: Sequence[Pod], namespace: str) -> Snapshot:
        """The cluster in which quotas count what pods ask for. It grows from the one before, if it can."""
        uids, known = [pod.uid for pod in pods], self._forks.get(namespace, _Fork((), self._snapshot))
        if uids[: len(known.uids)] != list(known.uids):
            known = _Fork((), self._snapshot)
        snapshot = with_lifted(pods[len(known.uids) :], known.snapshot)
        self._forks[namespace] = _Fork(uids, snapshot)
        return snapshot

    def _accounts(self) -> dict[str, Account]:
        """What each namespace has lifted."""
        accounts: dict[str, Account] = {}
        for (line, name), uids in self._lines.pods.items():
            account = accounts.setdefault(name, Account())
            if line is Line.LIFTED:
                account.lifted += len(uids)
            elif line is Line.REJECTED:
                account.rejected += len(uids)
        for uid, each in self._lifted.items():
            account = accounts.setdefault(each.namespace, Account())
            account.hopeless += each.next.is_hopeless
            account.trials += each.next.is_trial
            account.lifted += uid in self._lines.of(Line.GATED, each.namespace)
        for name, account in accounts.items():
            account.failed = self._failed.share(name)
        return accounts

    def _forget_lifted(self) -> None:
        """Forget pods that have a node or are rejected; and those whose gate is still there after a while."""
        late = self._solver.clock() - SHOWN_SECONDS
        for uid, each in list(self._lifted.items()):
            is_gated = uid in self._lines.of(Line.GATED, each.namespace)
            if is_gated and each.at < late:
                self.not_lifted(uid)
            elif not is_gated and uid not in self._lines.of(Line.LIFTED, each.namespace):
                del self._lifted[uid]
                if uid in self._lines.of(Line.REJECTED, each.namespace):
                    self._refused(each)

    def _refused(self, lifted: _Lifted) -> None:
        """A pod was rejected: others of its kind are, too, for a while."""
        self.note_failed(lifted.namespace)
        gated = self._gated.get(lifted.namespace)
        kind = None if gated is None else gated.kinds.get(lifted.kind)
        if kind is not None:
            kind.refuse(self._solver.clock(), is_rare=self._failed.share(lifted.namespace) < FAILED_SHARE)

    def not_lifted(self, uid: str) -> None:
        """The gate of a pod that was chosen could not be lifted: the pod waits for its turn again."""
        each = self._lifted.pop(uid, None)
        if each is not None and uid in self._lines.of(Line.GATED, each.namespace):
            self._of(each.namespace).new[uid] = None


def _push(heap: list[_Place], name: str, next_one: Next | None, turn: Turn) -> None:
    """Give a namespace its place in the order of turns, if it has a next pod."""
    if next_one is not None:
        priority, created, _ = next_one.head.order
        heappush(heap, (priority, turn.account.lifted, created, name))
