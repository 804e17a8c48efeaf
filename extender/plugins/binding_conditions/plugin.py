"""Binding conditions (KEP-5007): a pod whose claim is allocated waits until the devices are ready."""

from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.decisions.solver import Solver
from extender.framework.decisions.verdict import PendingReason
from extender.framework.plugin import Plugin, Refusal
from extender.framework.pods.claims import PodClaims, not_ready, unready


class BindingConditionsPlugin(Plugin):
    """Refuses a pod while the devices of one of its claims are not ready. Nodes could change nothing."""

    name = "binding-conditions"
    waits_for = PendingReason.CLAIMS
    of_claims = ("has_allocated",)

    def pre_filter(self, pod: Pod, claims: PodClaims, snapshot: Snapshot, solver: Solver) -> Refusal | None:
        """Raises nothing: conditions of the claims are read."""
        waiting = unready(claims, solver.features)
        if waiting is None:
            return None
        return Refusal(not_ready(waiting), f"claim {waiting.key} waits until its devices are ready")
