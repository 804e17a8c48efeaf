"""Counts claims by state, and by who made them."""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import product
from typing import TypeAlias

from extender.cluster.change_log import Change
from extender.cluster.kinds import Topic
from extender.cluster.objects.claim_annotations import POD_CLAIM_NAME
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.observe.pod_and_claim_states import ClaimState, state_of_claim
from extender.observe.tally import Tally


class ClaimSource(Enum):
    """What a claim was made from; the words are those of kube-controller-manager's metric of claims."""

    CLAIM = "resource_claim"
    """A person or a program has made it."""
    TEMPLATE = "resource_claim_template"
    EXTENDED_RESOURCE = "extended_resource"
    """A special claim."""


_Label: TypeAlias = tuple[ClaimState, ClaimSource]


class ClaimCounts:
    """Counts claims again and again: only those that have changed since the last time.

    Args:
        changes_since: the changes after a version of the snapshot; None: anything may have changed.
    """

    def __init__(self, changes_since: Callable[[int], Iterable[Change] | None]) -> None:
        self._tally = Tally(Topic.CLAIM, changes_since, lambda snapshot: snapshot.claims, _label)

    def count(self, snapshot: Snapshot) -> Mapping[_Label, int]:
        """How many claims of each source are in each state."""
        counts = self._tally.count(snapshot)
        return {label: counts.get(label, 0) for label in product(ClaimState, ClaimSource)}


def _label(snapshot: Snapshot, key: ObjectKey) -> _Label | None:
    claim = snapshot.claims.get(key)
    return None if claim is None else (state_of_claim(claim, snapshot), _source(claim))


def _source(claim: ClaimObject) -> ClaimSource:
    if claim.special_of:
        return ClaimSource.EXTENDED_RESOURCE
    return ClaimSource.TEMPLATE if POD_CLAIM_NAME in claim.claim.annotations else ClaimSource.CLAIM
