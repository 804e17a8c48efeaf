"""Claims, and what has become of them."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from extender.answers.observe.tables.constraints import constraints, constraints_text
from extender.cluster.consumers import claim_keys
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.snapshot import Snapshot
from extender.framework.pod_and_claim_states import ClaimState, state_of_claim
from extender.tools.table import Item, Row, TableView, matches

_COLUMNS: Final = ("namespace", "claim", "state", "devices", "reservedFor")
_CELLS: Final = {"constraints": constraints_text}


def claims(
    snapshot: Snapshot, *, namespace: str = "", state: str = "", pod: str = "", claim: str = "", wide: bool = False
) -> TableView:
    """The claims: of one namespace, in one state, of one name, or of a pod that names, owns or has reserved them.

    A ``wide`` table also has what the claims' constraints say about the devices.
    """

    def rows() -> Iterator[Row]:
        named = [each for key, each in snapshot.pods.items() if key.name == pod]
        keys = {key for each in named for key in claim_keys(each)}
        uids = {each.uid for each in named}
        for key in sorted(
            key for key in snapshot.claims if matches(namespace, key.namespace) and matches(claim, key.name)
        ):
            found = snapshot.claims[key]
            its_state = state_of_claim(found, snapshot)
            is_of_pod = not pod or key in keys or found.claim.owner_uid in uids or _is_reserved(found, pod)
            if matches(state, its_state.value) and is_of_pod:
                yield Row(key, partial(_wide_item if wide else _item, found, its_state, snapshot))

    return TableView(_COLUMNS + (("constraints",) if wide else ()), rows(), _CELLS)


def _is_reserved(claim: ClaimObject, pod: str) -> bool:
    return any(user.resource == "pods" and user.name == pod for user in claim.claim.reserved_for)


def _wide_item(claim: ClaimObject, state: ClaimState, snapshot: Snapshot) -> Item:
    return {**_item(claim, state, snapshot), "constraints": constraints(claim, snapshot)}


def _item(claim: ClaimObject, state: ClaimState, snapshot: Snapshot) -> Item:
    held = snapshot.held_by(claim.claim.uid)
    return {
        "namespace": claim.key.namespace,
        "claim": claim.key.name,
        "uid": claim.claim.uid,
        "created": claim.created,
        "state": state.value,
        "devices": [str(result.device) for allocation in held for result in allocation.results],
        "reservedFor": [str(user) if user.is_pod_group else user.name for user in claim.claim.reserved_for],
    }
