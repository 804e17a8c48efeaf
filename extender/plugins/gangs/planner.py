"""Plans for the pending pods of a gang: a node and devices for each, or none.

The search (`extender.plugins.gangs.search`) takes the pods in one order. After a failure, it begins again, with the
pods first that found no node. If not all pods can have the best that their claims allow, all get the least first, and
then each in turn gets as much as there is.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeAlias

from immutables import Map

from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import NOTHING_KEPT, Keeping, Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import No
from extender.framework.held_devices import held_for_nominated
from extender.framework.likeness import likeness_of
from extender.framework.pods.claims import Blocked, PodClaims, claims_of
from extender.framework.pods.reduced_claims import have_choice, least_first, level
from extender.kube.api import ObjectKey
from extender.planning.planner import Planner
from extender.plugins.gangs.gang import Gang
from extender.plugins.gangs.search import GangSearch
from extender.plugins.gangs.seats import GangPlan, Seat, Seating, Shortfall
from extender.plugins.gangs.topology import EVERYWHERE, Domain, domains_of

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
