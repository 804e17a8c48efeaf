"""Containers and the CCI drivers of their claims: admitted, added and removed, in the text's order, and counted.

A container is admitted when the runtime is about to make it. So each container of a pod is, also when it is made again,
and also those of a pod that shares a claim which was prepared before. What is admitted is in the store until the
container has ended; then the driver is told until it has answered. While a driver is asked, the store has that it is to
be told, in case that its answer never comes.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from extender.node import cpu_list
from extender.node.cci import protocol
from extender.node.cci.protocol import Ask, CciError, End, Grant, RefusedError, Start, problem_of
from extender.node.cci.registry import Registry
from extender.node.driver import PrepareError
from extender.node.nri import RuntimeContainer
from extender.node.store import Portion, Removal, ResourceSet, ResourceStore
from extender.node.topology import Topology

BUILT_IN: Final = "built-in"
"""The label ``driver`` of containers whose claim names no driver."""


class CciMetrics:
    """Counts containers with claims for CPUs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._requests = Counter(
            "cci_manager_allocation_requests",
            "Containers with a claim for CPUs that were about to be made, by the driver of the claim.",
            ("driver",),
            registry=registry,
        )
        self._errors = Counter(
            "cci_manager_allocation_errors",
            "Of these, containers that were not made, because the driver refused, failed or gave wrong CPUs.",
            ("driver",),
            registry=registry,
        )
        self._available = Gauge(
            "cci_manager_available_cpus", "CPUs that claims can have and that no claim has.", registry=registry
        )
        self._up = Gauge(
            "cci_manager_driver_up", "Whether a CCI driver is registered and answers.", ("driver",), registry=registry
        )
        self._seen: set[str] = set()

    def requested(self, driver: str) -> None:
        """A container asks for CPUs of its claim. ``driver``: empty for the built-in one."""
        self._requests.labels(driver or BUILT_IN).inc()
        self._errors.labels(driver or BUILT_IN)  # so that it is 0 and not absent

    def failed(self, driver: str) -> None:
        """A container gets no CPUs."""
        self._errors.labels(driver or BUILT_IN).inc()

    def available(self, cpus: int) -> None:
        """The number of CPUs that no claim has now."""
        self._available.set(cpus)

    def drivers(self, names: Collection[str], needed: Collection[str]) -> None:
        """The drivers that answer now, and those that claims have."""
        self._seen.update(names, needed)
        for each in self._seen:
            self._up.labels(each).set(each in names)


logger = structlog.get_logger()

SECONDS: Final = 1.5
"""For all calls about one container, by default. A runtime waits 2 s for its plugins, and then does without them."""

_MOST_REMOVALS: Final = 1000
"""That are kept for drivers that do not come back."""


class Admissions:
    """Asks drivers about containers, and keeps what they say.

    Args:
        topology: the machine.
        store: what claims hold.
        registry: the drivers.
        save: writes the store, which has changed. Raises PrepareError: it cannot be written.
        metrics: count containers.
        seconds: for all calls about one container.
    """

    def __init__(
        self,
        topology: Topology,
        store: ResourceStore,
        registry: Registry,
        save: Callable[[], None],
        metrics: CciMetrics,
        seconds: float = SECONDS,
    ) -> None:
        self._seconds = seconds
        self._topology = topology
        self._store = store
        self._registry = registry
        self._save = save
        self._metrics = metrics
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._telling: set[str] = set()
        """Drivers that are being told."""
        self._late: set[Removal] = set()
        """Of which the log has told."""

    async def admit(self, container: RuntimeContainer) -> None:
        """Have the drivers of its claims choose the CPUs of a container.

        Raises:
            CciError: the container must not be made; the text says which driver, and why.
            PrepareError: the store cannot be written.
        """
        deadline = asyncio.get_running_loop().time() + self._seconds
        for key, held in list(self._store.sets.items()):
            if held.asked(container.cdi):
                self._metrics.requested(held.driver)
                try:
                    if held.driver:
                        await self._admit(key, held, container, deadline)
                except Exception:
                    self._metrics.failed(held.driver)
                    self.ended(container.uid)
                    raise

    async def _admit(self, key: str, held: ResourceSet, container: RuntimeContainer, deadline: float) -> None:
        told = f"claim {held.claim}: CCI driver {held.driver}"
        try:
            path = self._registry.endpoint(held.driver)
        except CciError as error:
            raise CciError(f"claim {held.claim}: {error}") from error
        try:
            async with asyncio.timeout_at(deadline), self._turns[held.driver]:
                await self._talk(key, path, container)
        except RefusedError as error:
            raise CciError(f"{told} refuses container {container.own_name}: {error}") from error
        except (TimeoutError, CciError) as error:
            problem = f": {error}" if isinstance(error, CciError) else f" has not answered within {self._seconds:g} s"
            raise CciError(f"{told}{problem}") from error

    async def _talk(self, key: str, path: Path, container: RuntimeContainer) -> None:
        ask = self._admission_request(key, container)
        # From here, the driver may know of a container that we do not, whatever ends this: also the end of the process.
        owed = self._owe(key, self._prepared_set(key, container), container.uid)
        try:
            grant = await protocol.admit(path, ask, self._seconds)
        except RefusedError:
            self._settle(owed)
            self._changed()
            raise
        # Claims and containers may have come and gone meanwhile.
        held = self._prepared_set(key, container)
        if problem := problem_of(grant, ask, _portions_in_conflict(held, grant, container.uid)):
            raise CciError(f"CCIAdmit for container {container.own_name} {problem}")
        portion = Portion(container.name, grant.cpus, grant.exclusive)
        self._store.set_portions(key, {**held.portions, container.uid: portion})
        self._settle(owed)
        self._save()
        start = Start(container.cgroup, container.pod, container.own_name, container.uid)
        await protocol.add(path, start, self._seconds)

    def _admission_request(self, key: str, container: RuntimeContainer) -> Ask:
        held = self._prepared_set(key, container)
        asked, offered = held.asked(container.cdi), held.offered(container.cdi, container.uid)
        cpus = tuple(each for each in self._topology.cpus if each.number in offered)
        cores = min(max(container.cores, 1), len(asked))
        claim = protocol.claim_name(held.claim, _uid(key))
        return Ask(claim, container.pod, container.own_name, cores, cpus, held.parameters)

    def _prepared_set(self, key: str, container: RuntimeContainer) -> ResourceSet:
        if key not in self._store.sets:
            raise CciError(f"the claim of container {container.own_name} is not prepared any more")
        return self._store.sets[key]

    def ended(self, uid: str) -> bool:
        """A container has ended: its portion is free. Whether it had one; then the driver is to be told."""
        keys = [key for key, held in self._store.sets.items() if uid in held.portions]
        for key in keys:
            held = self._store.sets[key]
            self._store.set_portions(key, {other: portion for other, portion in held.portions.items() if other != uid})
            self._owe(key, held, uid)
        return bool(keys)

    def given_back(self, key: str) -> None:
        """A claim is unprepared: all its containers have ended."""
        held = self._store.sets.get(key)
        for uid in held.portions if held else ():
            self.ended(uid)

    def _owe(self, key: str, held: ResourceSet, uid: str) -> Removal:
        """Have the driver forget a container, as soon as it has time."""
        owed = Removal(held.driver, held.claim, _uid(key), uid)
        self._store.removals.append(owed)
        del self._store.removals[:-_MOST_REMOVALS]
        self._changed()
        return owed

    def _settle(self, owed: Removal) -> None:
        if owed in self._store.removals:
            self._store.removals.remove(owed)

    def _changed(self) -> None:
        """Write the store. If that fails, the next change is written with this one."""
        try:
            self._save()
        except PrepareError as error:
            logger.warning("store not written", problem=str(error))

    async def tell(self) -> None:
        """Tell drivers that answer which containers have ended."""
        owed = ({each.driver for each in self._store.removals} & self._registry.names) - self._telling
        self._telling |= owed
        try:
            await asyncio.gather(*(self._tell_removals(driver) for driver in owed))
        finally:
            self._telling -= owed

    async def _tell_removals(self, driver: str) -> None:
        for each in [each for each in self._store.removals if each.driver == driver]:
            end = End(protocol.claim_name(each.claim, each.claim_uid), each.container_id)
            try:
                async with self._turns[driver]:  # containers that start come in between
                    if each not in self._store.removals:
                        continue  # it was being admitted, and has started
                    await protocol.remove(self._registry.endpoint(driver), end, self._seconds)
            except CciError as error:
                if each not in self._late:
                    logger.warning("CCI driver has not removed container", driver=driver, problem=str(error))
                self._late.add(each)
                if isinstance(error, RefusedError):
                    continue
                return
            self._late.discard(each)
            self._settle(each)
            self._changed()

    def adopt(self, containers: Iterable[RuntimeContainer]) -> None:
        """Agree with the containers that run: those that ended are forgotten, and those that came keep their CPUs."""
        running = {each.uid: each for each in containers}
        for uid in [uid for held in self._store.sets.values() for uid in held.portions if uid not in running]:
            self.ended(uid)
        for each in running.values():
            for key, held in list(self._store.sets.items()):
                if held.driver and each.uid not in held.portions and held.asked(each.cdi):
                    self._keep(key, held, each)

    def _keep(self, key: str, held: ResourceSet, container: RuntimeContainer) -> None:
        """Keep the CPUs of a container that the store does not know: it was made without us, or the store was lost."""
        now = cpu_list.parse(container.pinning.cpus) & held.asked(container.cdi)
        others = frozenset[int]().union(*(each.cpus for each in held.portions.values()))
        offered = held.offered(container.cdi, container.uid)
        free = sorted(offered - others)[: max(container.cores, 1)]  # no more: the others of the claim need theirs
        cpus = now or frozenset(free) or offered
        portion = Portion(container.name, cpus, exclusive=bool(cpus) and not cpus & others)
        self._store.set_portions(key, {**held.portions, container.uid: portion})
        self._changed()
        logger.warning("container not admitted by its CCI driver", container=container.name, driver=held.driver)


def _portions_in_conflict(held: ResourceSet, grant: Grant, uid: str) -> Collection[tuple[str, frozenset[int]]]:
    return [
        (portion.container, portion.cpus)
        for other, portion in held.portions.items()
        if other != uid and (portion.exclusive or grant.exclusive)
    ]


def _uid(key: str) -> str:
    return key.rpartition("/")[2]
