"""What is done for pods that filter left no node, once it has answered."""

import asyncio
from typing import Final

from extender.background.binding_timeout import BindingTimeout
from extender.background.deallocate import Deallocator
from extender.background.lost_claims import Losses
from extender.background.orphans import OrphanCollector
from extender.background.requeue import Requeue
from extender.background.unserved import Unserved
from extender.faults import Faults
from extender.observe.metrics import Metrics
from extender.pods.case import refreshed
from extender.state.snapshot import Snapshot
from extender.verbs.filter import FilterResult
from extender.verbs.wire import FilterArgs

PAUSE_SECONDS: Final = 0.2
"""Between two times that it is looked what there is to do."""


class BackgroundRunner:
    """Gives back what pods wait for in vain or what is in their way, tells why they wait, and wakes them when it helps.

    Filter calls of a scheduler bring it about; explanations and sessions don't.
    """

    def __init__(  # noqa: PLR0913 - one for each thing that is done
        self,
        patience: BindingTimeout,
        sweep: OrphanCollector,
        deallocator: Deallocator,
        requeue: Requeue,
        unserved: Unserved,
        losses: Losses,
        metrics: Metrics,
        faults: Faults,
    ) -> None:
        self._patience = patience
        self._sweep = sweep
        self._deallocator = deallocator
        self._requeue = requeue
        self._unserved = unserved
        self._losses = losses
        self._metrics = metrics
        self._faults = faults

    def note(self, args: FilterArgs, result: FilterResult, snapshot: Snapshot) -> None:
        """Filter has decided on a snapshot."""
        pod = args.pod
        if result.passed:
            self._requeue.forget(pod)
            self._unserved.forget(pod)
            return
        self._requeue.rejected(pod, args.names, snapshot, undecided=result.undecided)
        self._patience.rejected(refreshed(pod, snapshot))
        # After the call for the nominated node alone comes the one for all nodes.
        if not result.failed and list(args.names) != [pod.nominated_node]:
            self._unserved.rejected(pod, result.unresolvable.values())
            self._deallocator.propose(refreshed(pod, snapshot), set(result.unresolvable.values()))

    async def run(self) -> None:
        """Do what there is to do, for ever."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            await self.tend()

    async def tend(self) -> None:
        """Do what there is to do now. What fails in one part keeps no other from its work."""
        for part in (self._patience, self._sweep, self._unserved):
            with self._faults.of(type(part).__name__):
                part.look()
        with self._faults.of(type(self._losses).__name__):
            await self._losses.look()
        with self._faults.of(type(self._deallocator).__name__):
            helped = await self._deallocator.work()
            for pod in helped:
                self._requeue.forget(pod)
            self._metrics.deallocated(len(helped))
        with self._faults.of(type(self._requeue).__name__):
            self._metrics.woken(await self._requeue.look())
