"""Nodes that suit a pod apart from controllers that are still to be asked: these nodes are worth a question.

Source: KEP-3063, ``potentialNodes``: nodes that the scheduler has found suitable otherwise.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from extender.cluster.cluster_state import ClusterState
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.cycle import refreshed
from extender.framework.decisions.evaluate import Decider
from extender.framework.filter import Bounds, FilterResult, filter_nodes
from extender.framework.pods.claims import Blocked, claims_of
from extender.framework.pods.negotiated_claims import NegotiatedClaim, ready_to_bind
from extender.kube.api import ObjectKey
from extender.plugins.negotiation.protocol import PodName
from extender.tools.offload import Offload

_SEARCH_SECONDS: Final = 0.5
"""The longest search, by the solver's clock. Filter waits for it."""


@dataclass(frozen=True, slots=True)
class OtherwiseSuitable:
    """Judges nodes as if some controllers accepted all of them.

    Attributes:
        state: the cluster.
        decider: remembers verdicts.
        controllers: that are taken to accept all nodes. What others have answered counts.
        off_loop: where nodes are judged.
    """

    state: ClusterState
    decider: Decider
    controllers: Collection[str]
    off_loop: Offload

    async def __call__(self, pod: PodName, names: Collection[str]) -> Collection[str]:
        """The nodes that suit; all of them if none does, or if that is not found out in time."""
        snapshot = self.state.snapshot
        known = snapshot.pods.get(ObjectKey(pod.namespace, pod.name))
        if known is None or known.uid != pod.uid:
            return names
        known = refreshed(known, snapshot)
        claims = claims_of(known, snapshot)
        if isinstance(claims, Blocked):
            return names
        open_ = [each for each in claims.negotiated if each.controller in self.controllers]
        asked = [name for name in sorted(names) if name in snapshot.nodes]
        try:
            return (await self.off_loop(partial(self._judged, known, asked, snapshot, open_))).passed or names
        except TimeoutError:
            return names

    def _judged(
        self, pod: Pod, names: Sequence[str], snapshot: Snapshot, accepted: Sequence[NegotiatedClaim]
    ) -> FilterResult:
        """Filter, as if the controllers of some claims accepted all nodes."""
        solver = self.decider.solver
        until = solver.clock() + _SEARCH_SECONDS
        self.decider.follow(snapshot)
        world = ready_to_bind(accepted, snapshot)
        return filter_nodes(pod, names, world, solver.within(until), decider=self.decider, bounds=Bounds(until))
