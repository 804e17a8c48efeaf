"""The objects that decide which devices are held for nominated pods."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from allocator import PoolId
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.pods import Pod
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.negotiated_claims import names_controller
from extender.kube.api import ObjectKey


@dataclass(frozen=True, slots=True)
class NominationReads:
    """The objects on which it depends what some nominated pods get, beside their node and its pools.

    Attributes:
        pods: the nominated pods, their victims, and those that use devices of the pools.
        claims: of the nominated pods and of their victims, and those that hold devices of the pools.
    """

    pods: frozenset[ObjectKey] = frozenset()
    claims: frozenset[ObjectKey] = frozenset()

    @classmethod
    def of(cls, nominated: Collection[Pod], pools: Iterable[PoolId], snapshot: Snapshot) -> "NominationReads":
        """What is read for some pods whose nodes reach these pools."""
        uids = {uid for pool in pools for uid in snapshot.holders.get(pool, ())}
        holders = [claim for uid in uids if (claim := snapshot.claim(uid)) is not None]
        users = {ObjectKey(each.key.namespace, user.name) for each in holders for user in each.claim.reserved_for}
        owners = {pod.key for each in holders if (pod := snapshot.pod(each.claim.owner_uid or "")) is not None}
        gone = (snapshot.pod(uid) for pod in nominated for uid in pod.kept.victims)
        own = (*nominated, *(pod for pod in gone if pod is not None))
        claims = {key for pod in own for key in claim_keys(pod)}
        claims |= {each.key for pod in own for each in snapshot.special_claims(pod.uid)}
        return cls(
            frozenset({*(pod.key for pod in own), *users, *owners}), frozenset({*claims, *(c.key for c in holders)})
        )


def is_local(nominated: Iterable[Pod], snapshot: Snapshot) -> bool:
    """Whether what pods get depends on their node alone.

    Quotas of a namespace may withhold optional requests. What a controller says may change at any time.
    """
    found = (snapshot.claims.get(key) for pod in nominated for key in claim_keys(pod))
    claims = [each.claim for each in found if each is not None]
    return not any(each.spec.optional or names_controller(each, snapshot) for each in claims)
