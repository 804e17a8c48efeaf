"""Requests of a claim by device class and count, and those for a group resource: one for each of its members."""

import re
from collections.abc import Iterable
from typing import Final

from allocator import ConstraintKind, ConstraintSpec, DeviceRequest, GroupResource, Request

_NOT_IN_LABELS: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 30
"""Characters of a class in the name of a request, which has 63."""


def group_requests(group: GroupResource, prefix: str = "") -> tuple[tuple[Request, ...], tuple[ConstraintSpec, ...]]:
    """The requests for one group resource, and the constraint over them if its devices have to match.

    Each request is named by its class: ``prefix`` and the name, with ``-`` for what no request name can have.
    """
    requests: list[Request] = []
    for number, (device_class, count) in enumerate(group.members):
        label = f"{prefix}{_NOT_IN_LABELS.sub('-', device_class)[:_LONGEST].strip('-')}"
        name = label if all(each.name != label for each in requests) else f"{label}-{number}"
        requests.append(Request(name, (DeviceRequest(device_class=device_class, count=count),)))
    if not group.match_attribute:
        return tuple(requests), ()
    names = tuple(each.name for each in requests)
    return tuple(requests), (ConstraintSpec(ConstraintKind.MATCH, group.match_attribute, names),)


def devices_json(requests: Iterable[Request], constraints: Iterable[ConstraintSpec]) -> dict[str, object]:
    """``spec.devices`` of a claim with these requests."""
    found: dict[str, object] = {
        "requests": [
            {"name": each.name, "exactly": {"deviceClassName": way.device_class, "count": way.count}}
            for each in requests
            for way in each.alternatives
        ]
    }
    rules = [{"requests": [*each.requests], "matchAttribute": each.attribute} for each in constraints]
    return {**found, "constraints": rules} if rules else found
