"""Claims, and what has become of them."""

from collections.abc import Iterator
from functools import partial

from extender.observe.states import ClaimState, state_of_claim
from extender.observe.tables.table import Item, Row, View, matches
from extender.state.consumers import claim_keys
from extender.state.objects import ClaimObject
from extender.state.snapshot import Snapshot


def claims(snapshot: Snapshot, *, namespace: str = "", state: str = "", pod: str = "", claim: str = "") -> View:
    """The claims: of one namespace, in one state, of one name, or of a pod that names, owns or has reserved them."""
    columns = ("namespace", "claim", "state", "devices", "reservedFor")

    def rows() -> Iterator[Row]:
        named = [each for key, each in snapshot.pods.items() if key.name == pod]
        keys = {key for each in named for key in claim_keys(each)}
        uids = {each.uid for each in named}
        for key in sorted(key for key in snapshot.claims if matches(namespace, key.namespace) and matches(claim, key.name)):
            found = snapshot.claims[key]
            its_state = state_of_claim(found, snapshot)
            is_of_pod = not pod or key in keys or found.claim.owner_uid in uids or _is_reserved(found, pod)
            if matches(state, its_state.value) and is_of_pod:
                yield Row(key, partial(_item, found, its_state, snapshot))

    return View(columns, rows())


def _is_reserved(claim: ClaimObject, pod: str) -> bool:
    return any(user.resource == "pods" and user.name == pod for user in claim.claim.reserved_for)


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
