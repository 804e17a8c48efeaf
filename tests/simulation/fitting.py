"""Whether a pod would find a node without evictions, for a process that knows the objects of a moment alone."""

from collections.abc import Callable, Iterable

from allocator import AllocatorError
from extender.config.settings import Settings
from extender.faces.assembly import make_solver
from extender.framework.cycle import is_feasible
from extender.framework.held_devices import held_for_nominated
from extender.kube.api import Event, EventType, RawObject
from extender.kube.resources import RESOURCES
from tests.corpus.stage import replica_state
from tests.simulation.kept import Moment, woken


def fits(moment: Moment, pod: RawObject, names: Iterable[str], settings: Settings, clock: Callable[[], float]) -> bool:
    """Whether a pod that belongs to no gang finds a node without evictions.

    A process holds devices for the pods that it has woken for them, and no object says so. Each of these pods may take
    a node from a pod that is not more important; and what it takes of a pool that several nodes reach, it takes from
    all of them.

    Args:
        moment: what there is.
        pod: waits.
        names: the nodes that the filters of its scheduler pass.
        settings: of the service.
        clock: measures how long a search takes.
    """
    state, solver = replica_state(settings), make_solver(settings, clock)
    for resource in RESOURCES.values():
        state.replace(resource, [], 0)
    for kind, objects in moment.objects.items():
        for obj in objects.values():
            state.apply(Event(EventType.ADDED, RESOURCES[kind], obj))
    snapshot = state.snapshot
    wanted = snapshot.pod(pod["metadata"]["uid"])
    if wanted is None or wanted.gang is not None:
        return False
    world = held_for_nominated(wanted, snapshot, solver)
    nodes = [found for name in names if (found := snapshot.nodes.get(name)) is not None]
    try:
        passed = sum(is_feasible(wanted, each, world, solver) for each in nodes)
    except (AllocatorError, TimeoutError):
        return False
    told = [snapshot.pod(each["metadata"]["uid"]) for each in woken(moment)]
    others = [each for each in told if each is not None and each.uid != wanted.uid]
    first = sum(each.priority >= wanted.priority for each in others)
    return passed > first and not (first and snapshot.inventory.roaming)
