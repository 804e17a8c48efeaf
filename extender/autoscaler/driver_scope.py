"""The scope of a session: the drivers that it judges. Requests for devices of other drivers are left to others.

KEP-3063 has one webhook for each driver: a Cluster Autoscaler asks all of them, and each judges the claims of its own
driver. Structured parameters do not say whose devices a request is for, but selectors do, mostly with a condition such
as ``device.driver == "gpu.example.com"``. Where they do not, the devices that are known tell.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from allocator import (
    ClaimSpec,
    ClassMembers,
    Device,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    Limits,
    Request,
    SearchLimitError,
    Selectors,
)
from allocator.cel import CompileError
from allocator.obstacles import conditions_of
from allocator.search import SearchBudget, TimedSelectors
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod, RequestingContainer
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.pods.extended_resources.special_claim import class_serving
from extender.kube.api import ObjectKey
from extender.planning.templates.catalog import Supply

_SECONDS: Final = 1.0
"""The longest time to find out whose devices a request is for. A request that takes longer is judged."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """The drivers that a session judges.

    Attributes:
        supply: the devices that are known, of nodes that exist and of templates.
    """

    drivers: frozenset[str]
    supply: Supply
    _own: dict[tuple[str, ...], bool] = field(default_factory=dict)
    """Selectors, to whether a request with them is judged."""

    def narrowed(self, pod: Pod, snapshot: Snapshot, solver: Solver) -> tuple[Pod, Snapshot]:
        """The pod without what other drivers serve, and the cluster in which its claims ask for the rest.

        Args:
            pod: with the names of its claims, which exist in the snapshot.
            snapshot: the cluster.
            solver: evaluates selectors.
        """
        claims = []
        for reference in pod.claims:
            name = reference.claim_name or pod.claim_statuses.get(reference.name)
            found = snapshot.claims.get(ObjectKey(pod.namespace, name or ""))
            if found is None or found.claim.allocation is not None:
                claims.append(reference)
                continue
            spec = self._narrowed(found.claim.spec, snapshot, solver)
            if spec.requests or not found.claim.spec.requests:
                claims.append(reference)
                snapshot = snapshot if spec is found.claim.spec else snapshot.with_claim(_with_spec(found, spec))
        containers = tuple(each for one in pod.containers if (each := self._left(one, snapshot, solver)).requests)
        return replace(pod, claims=tuple(claims), containers=containers), snapshot

    def _narrowed(self, spec: ClaimSpec, snapshot: Snapshot, solver: Solver) -> ClaimSpec:
        """The spec with the requests that are judged, and with constraints between these."""
        own = tuple(each for each in spec.requests if self._judges(each, snapshot, solver))
        if len(own) == len(spec.requests):
            return spec
        names = {each.name for each in own}
        others = {each.name for each in spec.requests} - names

        def kept(requests: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(each for each in requests if each.partition("/")[0] in names)

        return ClaimSpec(
            own,
            tuple(
                replace(each, requests=kept(each.requests))
                for each in spec.constraints
                if not each.requests or kept(each.requests)
            ),
            tuple(
                replace(each, requests=kept(each.requests))
                for each in spec.configs
                if not each.requests or kept(each.requests)
            ),
            tuple(each for each in spec.optional if each in names or each not in others),
        )

    def _left(self, container: RequestingContainer, snapshot: Snapshot, solver: Solver) -> RequestingContainer:
        """The container with the extended resources that no device class of another driver serves.

        A group resource is judged as a whole if one of its members is.
        """

        def is_own(resource: str) -> bool:
            device_class = snapshot.classes.get(class_serving(resource, snapshot) or "")
            if device_class is not None and device_class.group is not None:
                members = (snapshot.classes.get(name) for name, _ in device_class.group.members)
                return any(each is None or self._is_own(each.selectors, solver) for each in members)
            return device_class is None or self._is_own(device_class.selectors, solver)

        own = tuple(each for each in container.requests if is_own(each.resource))
        return container if len(own) == len(container.requests) else replace(container, requests=own)

    def _judges(self, request: Request, snapshot: Snapshot, solver: Solver) -> bool:
        """Whether a request is judged: one with an alternative that another driver serves may be served there."""
        return all(self._is_for_own(each, snapshot, solver) for each in request.alternatives)

    def _is_for_own(self, way: DeviceRequest, snapshot: Snapshot, solver: Solver) -> bool:
        device_class = snapshot.classes.get(way.device_class)
        return device_class is None or self._is_own((*device_class.selectors, *way.selectors), solver)

    def _is_own(self, selectors: tuple[str, ...], solver: Solver) -> bool:
        if selectors not in self._own:
            budget = SearchBudget(Limits(seconds=_SECONDS), solver.clock)
            try:
                self._own[selectors] = self._found_own(selectors, solver.selectors, budget)
            except (CompileError, SearchLimitError):
                return True  # The decision itself says what is wrong with the selectors.
        return self._own[selectors]

    def _found_own(self, selectors: tuple[str, ...], evaluator: Selectors, budget: SearchBudget) -> bool:
        timed = TimedSelectors(evaluator, budget)
        conditions = (condition for each in selectors for condition in conditions_of(each))
        of_driver = tuple(each for each in conditions if _reads_driver_alone(each, evaluator))
        if of_driver:
            members = ClassMembers(DeviceClass("", of_driver), timed)
            return any(members.has(Device(DeviceId(driver, "", ""))) for driver in self.drivers)
        members = ClassMembers(DeviceClass("", selectors), timed)
        if any(members.has(each) for each in self._devices(are_own=True)):
            return True
        return not any(members.has(each) for each in self._devices(are_own=False))

    def _devices(self, *, are_own: bool) -> Iterator[Device]:
        """The known devices of the drivers that are judged, or of all others."""
        templates = (each.blueprint.slices for each in self.supply.catalog.templates)
        slices = chain(chain.from_iterable(templates), self.supply.snapshot.inventory.slices.values())
        for each in slices:
            if (each.pool.driver in self.drivers) is are_own:
                yield from each.devices


def _with_spec(found: ClaimObject, spec: ClaimSpec) -> ClaimObject:
    return replace(found, claim=replace(found.claim, spec=spec))


def _reads_driver_alone(condition: str, selectors: Selectors) -> bool:
    reads = selectors.reads(condition)
    others = reads.everything or reads.attributes or reads.capacities or reads.allow_multiple_allocations
    return reads.driver and not others
