"""A handle: what a feature may use of the service to make its background tasks, its metrics, and what it shares."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry

from allocator import Clock
from extender.cluster.cluster_state import ClusterState
from extender.cluster.double_allocations import DoubleAllocations
from extender.cluster.objects.pods import Pod
from extender.cluster.writes.events import Note
from extender.cluster.writes.lease import SHORT, LeaseTimes, SharedLease
from extender.cluster.writes.writer import Writer
from extender.config.settings import Settings
from extender.framework.asked import Asked
from extender.framework.background_runner import BackgroundRunner
from extender.framework.bind.bind import Binder
from extender.framework.cluster_with_kept import ClusterWithKept
from extender.framework.decisions.evaluate import Decider
from extender.framework.decisions.solver import Solver
from extender.kube.api import Api, ObjectKey
from extender.tools.faults import Faults
from extender.tools.offload import Offload


@dataclass(frozen=True, slots=True)
class Handle:
    """The parts of a service that a feature may use.

    Attributes:
        writer: writes to the API server, and knows it, the cluster and the time.
        kept: the cluster as a pod finds it while devices are kept for other pods.
        binder: binds pods, and takes devices from pods that are not bound.
        background: runs the tasks of all features, and tells each of what another one has found.
        double_allocations: reports double allocations.
        tell: writes an Event on a pod.
        registry: has the metrics of all features.
        settings: of all features.
        off_loop: where searches run that a call waits for.
        in_background: where searches of tasks run. They give way to verbs.
        replica: a name that only this replica has.
        has_schedulers: schedulers follow the cluster, so a pod that is woken is tried again.
    """

    writer: Writer
    kept: ClusterWithKept
    binder: Binder
    background: BackgroundRunner
    double_allocations: DoubleAllocations
    tell: Callable[[Pod, Note], None]
    registry: CollectorRegistry
    settings: Settings
    off_loop: Offload
    in_background: Offload
    replica: str
    has_schedulers: bool

    @property
    def api(self) -> Api:
        """The API server, or a cluster in memory."""
        return self.writer.api

    @property
    def state(self) -> ClusterState:
        """The cluster."""
        return self.writer.state

    @property
    def now(self) -> Callable[[], datetime]:
        """Return the time."""
        return self.writer.now

    @property
    def decider(self) -> Decider:
        """Decides about nodes, and remembers it."""
        return self.kept.of_cluster

    @property
    def solver(self) -> Solver:
        """The allocator."""
        return self.decider.solver

    @property
    def clock(self) -> Clock:
        """Measures durations, in seconds."""
        return self.solver.clock

    @property
    def faults(self) -> Faults:
        """Gets unexpected errors."""
        return self.solver.faults

    @property
    def asked(self) -> Asked:
        """What schedulers have asked this process."""
        return self.background.asked

    def lease(self, key: ObjectKey, times: LeaseTimes = SHORT) -> SharedLease:
        """A lease that this replica shares with others. The runner gives it back in the end."""
        lease = SharedLease(self.api, key, self.replica, self.now, self.clock, times)
        self.background.leases.append(lease)
        return lease
