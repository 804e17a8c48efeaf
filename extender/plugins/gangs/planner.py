"""Plans for the pending pods of a gang: a node and devices for each, or none.

The search (`extender.plugins.gangs.search`) takes the pods in one order. After a failure, it begins again, with the
pods first that found no node. If not all pods can have the best that their claims allow, all get the least first, and
then each in turn gets as much as there is.

The task of gangs makes each plan off the loop on one snapshot, while the cluster goes on and others are planned.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Final, TypeAlias

from immutables import Map

from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import NOTHING_KEPT, Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import No, Solver
from extender.framework.held_devices import held_for_nominated
from extender.framework.pods.claims import Blocked, PodClaims, claims_of
from extender.framework.pods.node_resources import is_counted
from extender.framework.pods.reduced_claims import have_choice, least_first, level
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import likely_nodes
from extender.planning.planner import Planner
from extender.planning.queue import likeness_of
from extender.plugins.gangs.gang import Gang
from extender.plugins.gangs.rejected_members import RejectedMembers
from extender.plugins.gangs.search import EVERYWHERE, Domain, GangPlan, GangSearch, Seat, Seating, Shortfall, domains_of
from extender.tools.offload import Of, Offload

_MORE: Final = 256
"""In one search, this number of places is tried beyond four for each pod."""


@dataclass(frozen=True, slots=True)
class GangPlanner:
    """Plans gangs on one snapshot.

    Attributes:
        snapshot: the cluster, or a fork.
        planner: puts pods on forks, for as long as there is time.
        names_of: the nodes on which kube-scheduler might bind a pod, apart from devices.
    """

    snapshot: Snapshot
    planner: Planner
    names_of: Callable[[Pod], Sequence[str]]

    def plan(self, gang: Gang) -> GangPlan | Shortfall:
        """Nodes and devices for members for which nothing is kept yet, so that the gang is ready; or why not.

        What is kept for members stays as it is. If possible, the members share the topology that the gang names, and
        leave alone what is kept for pods of lower priority.
        """
        wanted = gang.size - len(gang.bound) - len(gang.kept)
        nowhere = Shortfall(0, wanted, "no time was left", is_final=False)
        for spares in (True, False) if self._may_take_kept(gang) else (False,):
            try:
                found = self._planned(gang, wanted, spares=spares)
            except TimeoutError:
                return replace(nowhere, is_final=False)
            if not isinstance(found, Shortfall):
                return found
            nowhere = found
        return nowhere

    def _planned(self, gang: Gang, wanted: int, *, spares: bool) -> GangPlan | Shortfall:
        """A plan that leaves alone what is kept for pods of lower priority, or that may take it."""
        fork = self._begun(gang, spares=spares)
        if fork is None:
            return Shortfall(0, wanted, "another claim has a device that was kept for a pod, or its node is gone")
        domains = self._domains(gang)
        ways = (False, True) if self._have_choice(gang) else (False,)
        with suppress(TimeoutError):
            hasty = self._for_a_share(4)
            for is_least in ways:
                for domain in domains:
                    found = hasty._search(gang, wanted, fork, domain, is_least=is_least)
                    if not isinstance(found, Shortfall):
                        return found
        for is_least in ways[:-1]:
            with suppress(TimeoutError):
                found = self._for_a_share(2)._search(gang, wanted, fork, is_least=is_least)
                if not isinstance(found, Shortfall):
                    return found
        return self._search(gang, wanted, fork, is_least=ways[-1])

    def _for_a_share(self, count: int) -> "GangPlanner":
        """The planner for one of so many equal shares of the time that is left."""
        return replace(self, planner=self.planner.by(self.planner.solver.share(count)))

    def _may_take_kept(self, gang: Gang) -> bool:
        """Whether devices are kept for a pod of lower priority."""
        return any(pod.kept.devices and pod.priority < gang.priority for pod in _nominated(self.snapshot))

    def _begun(self, gang: Gang, *, spares: bool) -> Snapshot | None:
        """The cluster in which others have what is kept from the gang, and members have what is kept for them.

        The pods of other gangs are placed, so that their devices count for quotas, and their CPU on the node.
        """
        bare = self.snapshot
        for pod in gang.kept:
            bare = bare.with_pod(_alone(pod))
        asking = replace(_alone(gang.members[0]), priority=gang.priority)
        for pod in _kept_in_gangs(bare):
            if spares or pod.priority >= asking.priority:
                bare = self._with_kept(pod, bare) or bare
        fork = held_for_nominated(asking, bare, self.planner.solver, spares=spares)
        fork = fork._replace(nominated=Map(), woken=Map())
        for pod in gang.kept:
            placed = self._with_kept(pod, fork)
            if placed is None:
                return None
            fork = placed
        return fork

    def _with_kept(self, pod: Pod, fork: Snapshot) -> Snapshot | None:
        """The cluster in which a pod has what is kept for it; None if that is impossible."""
        planner = self.planner.among(frozenset(pod.kept.devices)) if pod.kept.devices else self.planner
        there = pod.kept.node in fork.nodes
        found = planner.place(_reduced(pod, pod.kept.without), pod.kept.node, fork) if there else None
        return None if found is None or isinstance(found, No) else found

    def _domains(self, gang: Gang) -> Sequence[Domain]:
        """The domains that the gang may share, those of its members with a node first."""
        found = domains_of(gang.topology, self.snapshot, self.planner.solver.features)
        nodes = {pod.node_name or pod.kept.node for pod in gang.members} - {""}
        return sorted(found, key=lambda domain: not nodes.issubset(domain.nodes or ())) if nodes else found

    def _kinds(self, pods: Sequence[Pod], fork: Snapshot) -> Mapping[Hashable, Sequence[Pod]]:
        """The pods by their kind, their nodes, and the claims that they share with other pods of the gang."""
        kinds: dict[Hashable, list[Pod]] = {}
        shared = shared_claims(pods)
        for pod in pods:
            own = tuple(key for key in claim_keys(pod) if key in shared)
            kinds.setdefault((likeness_of(pod, fork), own, tuple(self.names_of(pod))), []).append(pod)
        return kinds

    def _have_choice(self, gang: Gang) -> bool:
        """Whether members may get more or less."""
        return any(have_choice(claims) for pod in gang.free for claims in [self._claims(pod)] if claims is not None)

    def _claims(self, pod: Pod) -> PodClaims | None:
        claims = claims_of(pod, self.snapshot)
        return None if isinstance(claims, Blocked) else claims

    def _ways(self, pod: Pod) -> Sequence[Pod]:
        """The pod with the least, in each way that its claims allow."""
        claims = self._claims(pod)
        return [_reduced(pod, each) for each in least_first(claims)] if claims and have_choice(claims) else _best(pod)

    def _search(
        self, gang: Gang, wanted: int, fork: Snapshot, domain: Domain = EVERYWHERE, *, is_least: bool
    ) -> GangPlan | Shortfall:
        """Seats in one domain. After a failure, the pods go first that found no node.

        Args:
            gang: lacks something.
            wanted: the number of seats.
            fork: the cluster in which others have what is theirs.
            domain: where the seats are.
            is_least: each pod gets the least that its claims allow, and then as much as there is. Otherwise each pod
                gets the best that is there when its turn comes.
        """
        kinds, shared = self._kinds(gang.free, fork), shared_claims(gang.free)
        ways = self._ways if is_least else _best
        has_ways = any(len(ways(pods[0])) > 1 for pods in kinds.values())
        is_simple = len(kinds) == 1 and not (has_ways or shared or self.snapshot.inventory.roaming)
        front: list[Hashable] = []
        best = Shortfall(0, wanted, "")
        most = 2 * wanted
        while True:
            order = [*front, *(kind for kind in kinds if kind not in front)]
            queue = [(kind, ways(pod)) for kind in order for pod in kinds[kind]]
            search = self._searching(queue, wanted, domain, most, backtracks=not is_simple)
            found = search.run(fork)
            if found is not None:
                return self._most(found, fork, domain, shared)
            best = max(best, search.shortfall, key=lambda each: (each.placed, bool(each.reason)))
            if len(kinds) > 1 and search.stuck is not None and search.stuck not in front:
                front.insert(0, search.stuck)
            elif search.is_complete or most > 2 * wanted:
                return replace(best, is_final=search.is_complete)
            else:
                most = 4 * wanted + _MORE

    def _most(self, found: Seating, fork: Snapshot, domain: Domain, shared: Collection[ObjectKey]) -> GangPlan:
        """The seats, with as much as there is for each pod."""
        if not any(seat.keeping.without for seat in found.seats):
            return found.seats

        def reseat(pods: Sequence[Pod], bare: Snapshot) -> Seating | None:
            queue = [(pod.uid, _best(pod)) for pod in pods]
            most = len(bare.nodes) if len(queue) == 1 else _MORE
            return self._searching(queue, len(queue), domain, most, backtracks=True).run(bare)

        return _raised(found, fork, shared, reseat).seats

    def _searching(
        self,
        queue: Sequence[tuple[Hashable, Sequence[Pod]]],
        wanted: int,
        domain: Domain,
        most: int,
        *,
        backtracks: bool,
    ) -> GangSearch:
        around = (self.snapshot, self.planner, self.names_of)
        return GangSearch(*around, queue, wanted, domain, most, backtracks=backtracks)


def _nominated(snapshot: Snapshot) -> Iterator[Pod]:
    return (pod for name in snapshot.nominated for pod in snapshot.nominated_to(name))


def _kept_in_gangs(snapshot: Snapshot) -> Sequence[Pod]:
    """The nominated pods of gangs, in the order of held devices."""
    found = (pod for pod in _nominated(snapshot) if pod.kept.node and pod.gang_key is not None and not pod.deleting)
    return sorted(found, key=attrgetter("order"))


def shared_claims(pods: Iterable[Pod]) -> Collection[ObjectKey]:
    """The claims that more than one of the pods uses."""
    users = Counter(key for pod in pods for key in claim_keys(pod))
    return {key for key, number in users.items() if number > 1}


def _alone(pod: Pod) -> Pod:
    """The pod as one that is in no gang, and for which nothing is kept."""
    return replace(pod, gang=None, kept=NOTHING_KEPT, nominated_node="")


def _reduced(pod: Pod, without: tuple[str, ...]) -> Pod:
    """The pod as one that is in no gang, and that gets less than it asks for."""
    return replace(_alone(pod), kept=Keeping(without=without))


def _best(pod: Pod) -> Sequence[Pod]:
    """The only way of a pod that gets the best that is there."""
    return (_alone(pod),)


_Reseat: TypeAlias = Callable[[Sequence[Pod], Snapshot], Seating | None]
"""The best seats for some pods in a fork; None if none are found. Raises TimeoutError: time is up."""


def _raised(found: Seating, base: Snapshot, shared: Collection[ObjectKey], reseat: _Reseat) -> Seating:
    """The seats with as much as there is: each pod in turn gives up its seat and gets the best one that is there.

    The most important pod comes first, then the oldest. Pods that share a claim take their turn together. The turns are
    repeated until nobody gets more, or the time is up.

    Args:
        found: the seats.
        base: the cluster in which no pod of the plan has a seat.
        shared: the claims that more than one of the pods uses.
        reseat: finds seats.
    """
    seats = {seat.pod.uid: seat for seat in found.seats}
    units, fork, is_better = _units(found.seats, base, shared), found.fork, True
    try:
        while is_better:
            is_better = False
            for pods in units:
                before = _level(seats[pod.uid] for pod in pods)
                again = reseat(pods, _without(pods, fork, base)) if any(before) else None
                if again is not None and _level(again.seats) < before:
                    seats |= {seat.pod.uid: seat for seat in again.seats}
                    fork, is_better = again.fork, True
    except TimeoutError:
        pass
    return Seating(tuple(seats.values()), fork)


def _units(seats: Iterable[Seat], base: Snapshot, shared: Collection[ObjectKey]) -> Sequence[Sequence[Pod]]:
    """The pods, those together that share claims."""
    units: list[tuple[set[ObjectKey], list[Pod]]] = []
    for pod in sorted((base.pods[seat.pod.key] for seat in seats), key=attrgetter("order")):
        own = {key for key in claim_keys(pod) if key in shared}
        same = [unit for unit in units if not unit[0].isdisjoint(own)]
        units = [unit for unit in units if unit not in same]
        pods = [each for _, members in same for each in members]
        units.append((own.union(*(keys for keys, _ in same)), [*pods, pod]))
    return sorted((pods for _, pods in units), key=lambda pods: pods[0].order)


def _level(seats: Iterable[Seat]) -> tuple[int, int]:
    return level([label for seat in seats for label in seat.keeping.without])


def _without(pods: Iterable[Pod], fork: Snapshot, base: Snapshot) -> Snapshot:
    """The fork in which some pods have no seat."""
    for pod in pods:
        special = (each.key for world in (fork, base) for each in world.special_claims(pod.uid))
        for key in dict.fromkeys((*claim_keys(pod), *special)):
            before = base.claims.get(key)
            fork = fork.without_claim(key) if before is None else fork.with_claim(before)
        fork = fork.with_pod(pod)
    return fork


ADMITTING_SECONDS: Final = 0.01
"""The longest time in which a look at what is kept for a gang asks plugins, such as quotas with slow selectors."""


class GangPlans:
    """Makes plans.

    Args:
        state: the cluster.
        decider: remembers where pods fit.
        rejected: knows the nodes that schedulers may take.
        written: what was written for pods, by uid, and the watch does not show yet.
        off_loop: where plans are made.
    """

    def __init__(
        self,
        state: ClusterState,
        decider: Decider,
        rejected: RejectedMembers,
        written: Callable[[], Iterable[tuple[str, Keeping]]],
        off_loop: Offload,
    ) -> None:
        self._state = state
        self._decider = decider
        self._rejected = rejected
        self._written = written
        self._off_loop = off_loop

    async def made(self, gang: Gang, solver: Solver) -> GangPlan | Shortfall | None:
        """A plan, or why there is none. None: the plan is void.

        If the nodes that schedulers may take do not suffice, nodes are tried where they would evict others.

        A plan is void if its devices are kept for other pods by now, if one of its pods does not wait any more, or if
        a plugin refuses it by now: other pods of the namespace have got devices meanwhile. Nothing else runs
        between this check and the return. A plan holds if a pod without a gang has taken one of its devices: only the
        member that loses the device gets another place (`extender.plugins.gangs.gang`). And it holds if a pod was
        woken for one of its devices, unless that pod is more important or older than the gang. Otherwise pods that are
        woken all the time would keep a large gang, whose plan takes seconds, from its devices for good.

        Args:
            gang: lacks something.
            solver: the decider's, for as long as there is time.
        """
        present = self._state.snapshot
        preempting = gang.free if any(map(self._rejected.with_evictions, gang.free)) else ()
        names = self._names(present, preempting, with_evictions=False)
        by = solver.while_wanted(partial(self._waits, gang))
        planner = GangPlanner(self._with_written(present), Planner(by, self._decider), names)
        found = await self._off_loop(Of(gang.key.namespace, partial(self._planned, planner, gang, present)))
        if isinstance(found, Shortfall) and preempting:
            planner = replace(planner, names_of=self._names(present, preempting, with_evictions=True))
            found = await self._off_loop(Of(gang.key.namespace, partial(self._planned, planner, gang, present)))
        if isinstance(found, Shortfall):
            return found
        later = self._woken_later(gang, found, planner.snapshot)
        if self._is_void(found, planner.snapshot, later):
            return None
        for uid in later:
            self._state.keep_for(uid, NOTHING_KEPT)
        return found

    def kind(self, gang: Gang) -> Hashable | None:
        """Equal for gangs that get the same answer: after one finds no place, the next finds none. None: unlike any."""
        if gang.bound or gang.kept or shared_claims(gang.free):
            return None
        snapshot, names, evictions = self._state.snapshot, self._rejected.names, self._rejected.with_evictions
        kinds = sorted(hash((likeness_of(pod, snapshot), names(pod), evictions(pod))) for pod in gang.free)
        return gang.size, gang.topology, tuple(kinds)

    def refused_now(self, kept: Sequence[Pod]) -> str:
        """Why a plugin refuses by now what is kept for pods of a gang; empty: it does not, or that is not soon known.

        Others have got devices while the plan was written, or a quota was lowered.
        """
        if not kept:
            return ""
        solver = self._decider.solver
        by = solver.within(solver.clock() + ADMITTING_SECONDS)
        try:
            refused = by.plugins.nominate(kept, self._state.snapshot, by)
        except TimeoutError:
            return ""
        return "" if refused is None else str(refused.refusal)

    def _waits(self, gang: Gang) -> bool:
        """Whether a pod of a gang is still there that lacks something. Threads may ask."""
        snapshot = self._state.snapshot
        return any(snapshot.pod(pod.uid) is not None for pod in gang.free)

    def _planned(self, planner: GangPlanner, gang: Gang, present: Snapshot) -> GangPlan | Shortfall:
        self._decider.follow(present)
        found = planner.plan(gang)
        if not isinstance(found, Shortfall):
            self._is_refused(found, planner.snapshot)  # what is measured here is remembered
        return found

    def _woken_later(self, gang: Gang, plan: GangPlan, before: Snapshot) -> Collection[str]:
        """The uids of pods that were woken for devices of a plan since it was begun, and after which the gang comes."""
        now, planned = self._state.snapshot, frozenset(device for seat in plan for device in seat.keeping.devices)
        place = -gang.priority, min(pod.created for pod in gang.members)
        return [
            uid
            for uid, pod in now.woken.items()
            if uid not in before.woken
            and (-pod.priority, pod.created) >= place
            and planned.intersection(pod.kept.devices)
        ]

    def _is_void(self, plan: GangPlan, before: Snapshot, later: Collection[str]) -> bool:
        """Whether a pod of a plan waits no more, or something of it is kept for others, since the plan was begun.

        What is kept for the pods with the uids ``later`` does not count.
        """
        now = self._with_written(self._state.snapshot)
        for uid in later:
            now = now.without_woken(uid)
        pods = [now.pod(seat.pod.uid) for seat in plan]
        if any(pod is None or not pod.is_pending or pod.kept.node for pod in pods):
            return True
        # What others got meanwhile counts for what devices take of their nodes.
        counts = is_counted(now, self._decider.solver.features)
        if counts and not _pods_with_devices(now) <= _pods_with_devices(before):
            return True
        if self._is_refused(plan, now):
            return True
        devices = (device for seat in plan for device in seat.keeping.devices)
        return any(now.kept.users.get(each) != before.kept.users.get(each) for each in devices)

    def _is_refused(self, plan: GangPlan, snapshot: Snapshot) -> bool:
        """Whether a plugin refuses what a plan keeps for its pods: their namespace may exceed a quota with it."""
        solver = self._decider.solver
        try:
            return bool(plan) and solver.plugins.nominate([seat.pod for seat in plan], snapshot, solver) is not None
        except TimeoutError:
            return True

    def _names(
        self, snapshot: Snapshot, preempting: Sequence[Pod], *, with_evictions: bool
    ) -> Callable[[Pod], Sequence[str]]:
        """The nodes of each pod: those that filter was asked about, or those that kube-scheduler would take.

        Args:
            snapshot: the cluster.
            preempting: the pods of a gang for which schedulers evict others for want of CPU. A pod of these that its
                scheduler has not asked about yet may go where the others may.
            with_evictions: they may also go where evictions make room.
        """
        likely, uids = likely_nodes(snapshot), {pod.uid for pod in preempting}

        def told(pod: Pod) -> Sequence[str] | None:
            asked = self._rejected.names(pod)
            more = self._rejected.with_evictions(pod) if with_evictions and pod.uid in uids else ()
            return None if asked is None else tuple(dict.fromkeys((*asked, *more)))

        of_others = tuple({name: None for pod in preempting for name in told(pod) or ()})

        def names(pod: Pod) -> Sequence[str]:
            asked, may = told(pod), likely(pod)
            if asked is None and pod.uid not in uids:
                return may
            known = set(may)
            return [name for name in (of_others if asked is None else asked) if name in known]

        return names

    def _with_written(self, snapshot: Snapshot) -> Snapshot:
        """The cluster in which the watch shows what was written."""
        for uid, keeping in self._written():
            pod = snapshot.pod(uid)
            if pod is not None and pod.is_pending:
                snapshot = snapshot.with_pod(replace(pod, kept=keeping, nominated_node=keeping.node))
        return snapshot


def _pods_with_devices(snapshot: Snapshot) -> set[str]:
    """The uids of pods for which devices are kept by name."""
    return {uid for uids in snapshot.kept.users.values() for uid in uids}
