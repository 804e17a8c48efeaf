"""What an API server does with writes to a ResourceClaim: a table that holds for the real one and for ours in memory.

`tests/cluster/test_api_rules.py` runs it against kube-apiserver, `tests/extender/lab/test_memory_rules.py` against
the one in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from extender.kube.api import Api, ApiError, RawObject
from extender.kube.resources import CLAIMS
from extender.lab.api import merge_patch
from tests.kit.controlplane.client import key_of
from tests.kit.objects.manifests import allocation, claim, consumer

FINALIZER: Final = "example.com/held"
MAX_CONSUMERS: Final = 256


class Refusal(NamedTuple):
    """How a write is refused; ``names`` is what the message must contain."""

    status: int
    reason: str
    names: str


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """One write to a claim, and what comes of it.

    Attributes:
        change: a merge patch (RFC 7386) of the claim as it is; an update sends the whole merged claim.
        before: the claim's status before.
        deleting: the claim has been deleted, and a finalizer keeps it.
        after: merged into the answer, this changes nothing: what the claim must be like then.
        refused: None where the write is accepted.
    """

    name: str
    verb: Literal["update", "update_status", "patch", "patch_status"]
    change: RawObject
    before: RawObject = field(default_factory=dict)
    deleting: bool = False
    after: RawObject = field(default_factory=dict)
    refused: Refusal | None = None


def _status(**fields: Any) -> RawObject:
    return {"status": fields}


def _consumers(count: int) -> list[RawObject]:
    return [consumer(f"pod-{number}") for number in range(count)]


def _device(name: str, **fields: Any) -> RawObject:
    """An entry of status.devices, for the driver and the pool that `allocation` has."""
    return {"driver": "gpu.example.com", "pool": "node-0", "device": name} | fields


_ONE: Final = consumer("one")
_TWO: Final = consumer("two")
_HELD: Final = allocation("gpu-0")
_RESERVED: Final = {"allocation": _HELD, "reservedFor": [_ONE]}
_FREED: Final = {"allocation": None, "reservedFor": None}

_IMMUTABLE: Final = Refusal(422, "Invalid", "status.allocation")
_NO_CONSUMERS: Final = Refusal(422, "Invalid", "status.reservedFor")
_MODIFIED: Final = Refusal(409, "Conflict", "the object has been modified")
_OTHER_UID: Final = Refusal(409, "Conflict", "UID in precondition")
# For a patch the uid is no precondition but a field like others.
_FIXED_UID: Final = Refusal(422, "Invalid", "metadata.uid")

_ALLOCATING: Final = (
    ClaimRule(
        "an allocation", "update_status", _status(allocation=_HELD), after=_status(**_FREED | {"allocation": _HELD})
    ),
    ClaimRule(
        "an allocation and a consumer at once", "update_status", _status(**_RESERVED), after=_status(**_RESERVED)
    ),
    ClaimRule(
        "no allocation for a request that the claim does not have",
        "update_status",
        _status(allocation={"devices": {"results": [{"request": "nic", **_device("nic-0")}]}}),
        refused=_IMMUTABLE,
    ),
    ClaimRule(
        "the same allocation again", "update_status", _status(**_RESERVED), before=_RESERVED, after=_status(**_RESERVED)
    ),
    ClaimRule(
        "no other device while allocated",
        "update_status",
        _status(allocation=allocation("gpu-1")),
        before=_RESERVED,
        refused=_IMMUTABLE,
    ),
    ClaimRule(
        "no other time of allocation",
        "update_status",
        _status(allocation={"allocationTimestamp": "2026-01-02T03:04:05Z"}),
        before={"allocation": _HELD},
        refused=_IMMUTABLE,
    ),
    ClaimRule(
        "freed with its last consumer", "update_status", _status(**_FREED), before=_RESERVED, after=_status(**_FREED)
    ),
    ClaimRule(
        "not freed while there is a consumer",
        "update_status",
        _status(allocation=None),
        before=_RESERVED,
        refused=_NO_CONSUMERS,
    ),
    ClaimRule(
        "status of a device that is allocated",
        "update_status",
        _status(devices=[_device("gpu-0")]),
        before=_RESERVED,
        after=_status(devices=[_device("gpu-0")]),
    ),
    ClaimRule(
        "no status of a device that is not",
        "update_status",
        _status(devices=[_device("gpu-1")]),
        before=_RESERVED,
        refused=Refusal(422, "Invalid", "status.devices[0]"),
    ),
    ClaimRule(
        "status of a device goes with its allocation",
        "update_status",
        _status(**_FREED),
        before=_RESERVED | {"devices": [_device("gpu-0")]},
        after=_status(devices=None, **_FREED),
    ),
)

_RESERVING: Final = (
    ClaimRule("no consumer without an allocation", "update_status", _status(reservedFor=[_ONE]), refused=_NO_CONSUMERS),
    ClaimRule(
        "one more consumer",
        "update_status",
        _status(reservedFor=[_ONE, _TWO]),
        before=_RESERVED,
        after=_status(allocation=_HELD, reservedFor=[_ONE, _TWO]),
    ),
    ClaimRule(
        "one consumer less",
        "update_status",
        _status(reservedFor=[_TWO]),
        before=_RESERVED | {"reservedFor": [_ONE, _TWO]},
        after=_status(allocation=_HELD, reservedFor=[_TWO]),
    ),
    ClaimRule(
        "no consumer, and still allocated",
        "update_status",
        _status(reservedFor=None),
        before=_RESERVED,
        after=_status(allocation=_HELD, reservedFor=None),
    ),
    ClaimRule(
        "256 consumers",
        "update_status",
        _status(reservedFor=_consumers(MAX_CONSUMERS)),
        before={"allocation": _HELD},
        after=_status(reservedFor=_consumers(MAX_CONSUMERS)),
    ),
    ClaimRule(
        "not 257",
        "update_status",
        _status(reservedFor=_consumers(MAX_CONSUMERS + 1)),
        before={"allocation": _HELD},
        refused=_NO_CONSUMERS,
    ),
    ClaimRule(
        "no consumer twice",
        "update_status",
        _status(reservedFor=[_ONE, _ONE]),
        before={"allocation": _HELD},
        refused=_NO_CONSUMERS,
    ),
    ClaimRule(
        "consumers by a patch",
        "patch_status",
        _status(reservedFor=[_ONE, _TWO]),
        before=_RESERVED,
        after=_status(allocation=_HELD, reservedFor=[_ONE, _TWO]),
    ),
)

_DELETING: Final = (
    ClaimRule(
        "no more consumers once deleted",
        "update_status",
        _status(reservedFor=[_ONE, _TWO]),
        before=_RESERVED,
        deleting=True,
        refused=_NO_CONSUMERS,
    ),
    ClaimRule(
        "fewer consumers once deleted",
        "update_status",
        _status(reservedFor=[_ONE]),
        before=_RESERVED | {"reservedFor": [_ONE, _TWO]},
        deleting=True,
        after=_status(reservedFor=[_ONE]),
    ),
    ClaimRule(
        "freed once deleted",
        "update_status",
        _status(**_FREED),
        before=_RESERVED,
        deleting=True,
        after=_status(**_FREED),
    ),
    ClaimRule(
        "allocated once deleted: the API server does not mind",
        "update_status",
        _status(allocation=_HELD),
        deleting=True,
        after=_status(allocation=_HELD),
    ),
    ClaimRule(
        "no new finalizer once deleted",
        "update",
        {"metadata": {"finalizers": [FINALIZER, "example.com/other"]}},
        deleting=True,
        refused=Refusal(422, "Invalid", "metadata.finalizers"),
    ),
)

_METADATA: Final = (
    ClaimRule(
        "no other specification",
        "update",
        {"spec": {"devices": {"requests": [{"name": "other", "exactly": {"deviceClassName": "other"}}]}}},
        refused=Refusal(422, "Invalid", "spec"),
    ),
    ClaimRule(
        "a status takes no metadata or specification with it",
        "update_status",
        {
            "metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/other"]},
            "spec": {"devices": {"requests": None}},
            **_status(**_RESERVED),
        },
        after={"metadata": {"labels": None, "finalizers": [FINALIZER]}, **_status(**_RESERVED)},
    ),
    ClaimRule(
        "an update takes no status with it",
        "update",
        {"metadata": {"labels": {"a": "b"}}, "status": None},
        before=_RESERVED,
        after={"metadata": {"labels": {"a": "b"}}, **_status(**_RESERVED)},
    ),
    ClaimRule(
        "a patch takes no status with it",
        "patch",
        {"metadata": {"labels": {"a": "b"}}, "status": None},
        before=_RESERVED,
        after={"metadata": {"labels": {"a": "b"}}, **_status(**_RESERVED)},
    ),
)


def _preconditions() -> tuple[ClaimRule, ...]:
    """Versions and uids that are not those of the claim; each way of writing heeds them, or has none."""
    allocating = _status(allocation=_HELD)
    labelling: RawObject = {"metadata": {"labels": {"a": "b"}}}
    changes: Sequence[tuple[Literal["update", "update_status", "patch", "patch_status"], RawObject]] = (
        ("update", labelling),
        ("update_status", allocating),
        ("patch", labelling),
        ("patch_status", allocating),
    )
    rules = []
    for verb, change in changes:
        uid_refusal = _OTHER_UID if verb.startswith("update") else _FIXED_UID
        for field_, value, refusal in (("resourceVersion", "987654321", _MODIFIED), ("uid", "other", uid_refusal)):
            wrong = merge_patch(change, {"metadata": {field_: value}})
            assert isinstance(wrong, dict)
            rules.append(ClaimRule(f"{verb} with another {field_}", verb, wrong, refused=refusal))
        free = merge_patch(change, {"metadata": {"resourceVersion": None, "uid": None}})
        assert isinstance(free, dict)
        rules.append(ClaimRule(f"{verb} without version and uid", verb, free, after=change))
    return tuple(rules)


CLAIM_RULES: Final = (*_ALLOCATING, *_RESERVING, *_DELETING, *_METADATA, *_preconditions())


async def deviations(api: Api, namespace: str, rule: ClaimRule) -> list[str]:
    """Bring a new claim to where a rule begins, and write. Returns how the server breaks the rule."""
    before = await _prepare(api, namespace, rule)
    try:
        answer = await _write(api, before, rule)
    except ApiError as refusal:
        return await _wrong_in_refusal(api, before, refusal, rule)
    if rule.refused is not None:
        return [f"accepted: {answer}"]
    stored = await api.get(CLAIMS, key_of(before))
    wanted = _without_empty(merge_patch(answer, rule.after))
    wrong = [] if answer == stored else [f"the answer is {answer}, and stored is {stored}"]
    return wrong if _without_empty(answer) == wanted else [*wrong, f"{answer} is not {wanted}"]


async def _wrong_in_refusal(api: Api, before: RawObject, refusal: ApiError, rule: ClaimRule) -> list[str]:
    if rule.refused is None:
        return [f"refused: {refusal}"]
    is_named = (refusal.status, refusal.reason) == rule.refused[:2] and rule.refused.names in refusal.message
    wrong = [] if is_named else [f"{refusal} is not {rule.refused}"]
    stored = await api.get(CLAIMS, key_of(before))
    return wrong if stored == before else [*wrong, f"refused, and changed all the same: {stored}"]


async def refusal_of(call: Any) -> ApiError:
    """The error of a call that has to be refused."""
    try:
        answer = await call
    except ApiError as error:
        return error
    raise AssertionError(f"accepted: {answer}")


async def _prepare(api: Api, namespace: str, rule: ClaimRule) -> RawObject:
    new = claim(namespace, "claim")
    new["metadata"]["finalizers"] = [FINALIZER]
    made = await api.create(CLAIMS, new)
    if rule.before:
        made = await api.update_status(CLAIMS, {**made, "status": rule.before})
    if rule.deleting:
        await api.delete(CLAIMS, key_of(made))
    return await api.get(CLAIMS, key_of(made))


async def _write(api: Api, before: RawObject, rule: ClaimRule) -> RawObject:
    key = key_of(before)
    if rule.verb == "patch":
        return await api.patch(CLAIMS, key, rule.change)
    if rule.verb == "patch_status":
        return await api.patch_status(CLAIMS, key, rule.change)
    merged = merge_patch(before, rule.change)
    assert isinstance(merged, dict)
    return await (api.update if rule.verb == "update" else api.update_status)(CLAIMS, merged)


def _without_empty(value: object) -> object:
    """Without empty maps, empty lists and managed fields: a real API server does not send them."""
    if isinstance(value, dict):
        kept = {name: _without_empty(each) for name, each in value.items() if name != "managedFields"}
        return {name: each for name, each in kept.items() if each not in ({}, [], None)}
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    return value
