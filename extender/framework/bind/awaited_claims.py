"""Claims that a bind was decided for before they were made: it waits for them, and goes on with what was made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from extender.cluster.cluster_state import ClusterState
from extender.cluster.consumers import claim_name
from extender.cluster.objects.claims import READ, ClaimObject
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.cluster.writes.claims.claim_json import Reservation
from extender.cluster.writes.pods import check_unbound
from extender.framework.bind_errors import BindError
from extender.framework.claim_arrival import made
from extender.framework.pods.claims import is_made_for
from extender.kube.api import ObjectKey, WriteRefusedError


async def arrived(
    pod: Pod, reservations: Sequence[Reservation], state: ClusterState, until: float
) -> tuple[Pod, tuple[Reservation, ...]]:
    """The pod and its reservations once the claims to come are made; their devices are assumed for the claims then.

    Args:
        pod: as it was decided.
        reservations: of the pod; the devices of those to come are assumed under the uid of a stand-in.
        state: the cluster.
        until: when to give up, by the loop's clock.

    Raises:
        BindError: a claim was not made in time.
        WriteRefusedError: a claim was made otherwise than its template said, or the pod has changed.
    """
    try:
        now = await made(pod, state, until)
    except TimeoutError as error:
        raise BindError("out of time: the claims of the pod are not made yet") from error
    check_not_fenced(pod, now)
    check_unbound(now)
    claims = _claims_by_stand_in(now, state.snapshot)
    found = tuple(_for_claim(each, now, claims) if each.is_to_come else each for each in reservations)
    for stand_in, each in zip(reservations, found, strict=True):
        if stand_in.is_to_come:
            state.assume(each.uid, each.allocation, now.uid, each.claim.claim.spec)
            state.forget(stand_in.uid)
    return now, found


def check_not_fenced(old: Pod, new: Pod) -> None:
    """Check that no process has begun to take claims from the pod."""
    if new.fence != old.fence:
        raise WriteRefusedError(f"pod {new.key}: another writer releases its claims")


def _claims_by_stand_in(pod: Pod, snapshot: Snapshot) -> Mapping[str, ClaimObject | None]:
    """The claims of a pod's templates, by the uid of the stand-in (`claim_from_template`)."""
    keys = {each.name: ObjectKey(pod.namespace, claim_name(pod, each) or "") for each in pod.claims}
    return {f"{pod.uid}/{entry}": snapshot.claims.get(key) for entry, key in keys.items()}


def _for_claim(stand_in: Reservation, pod: Pod, claims: Mapping[str, ClaimObject | None]) -> Reservation:
    """The reservation of the claim in place of its stand-in."""
    made_claim, expected = claims.get(stand_in.uid), stand_in.claim.claim
    if made_claim is None:
        raise WriteRefusedError(f"claim {expected.name} was not made")
    claim = made_claim.claim
    told = {name: text for name, text in expected.annotations.items() if name in READ}
    is_as_expected = claim.spec == expected.spec and told.items() <= claim.annotations.items()
    if claim.deleting or claim.allocation is not None or not is_made_for(pod, claim) or not is_as_expected:
        raise WriteRefusedError(f"claim {claim.name} was made otherwise than its template said")
    return replace(stand_in, claim=made_claim, pod=pod)
