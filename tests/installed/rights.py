"""What the service account of dra-extender has asked for, by the API server's audit log, and what it may ask for."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from extender.kube.api import RawObject
from tests.installed.site import ACCOUNT

CHECKED_ONLY: Final = frozenset({"resourceclaims/binding", "pods/finalizers"})
"""Rights that the API server checks within another request, so that no request names them."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource (with its group and subresource) or on one path.

    Attributes:
        name: of the only object; empty: all.
        role: that has it, in what the chart renders.
    """

    verb: str
    group: str
    resource: str
    name: str = ""
    role: str = ""

    def __str__(self) -> str:
        where = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {where}{f' {self.name}' if self.name else ''}"


def requests_of(audit: Path, account: str = ACCOUNT) -> Iterator[RawObject]:
    """The account's requests in the audit log."""
    with audit.open("rb") as file:
        for line in file:
            event = orjson.loads(line)
            if event["user"].get("username") == account:
                yield event


def refused(audit: Path, account: str = ACCOUNT) -> list[str]:
    """The account's requests that it had no right to."""
    return [
        f"{event['verb']} {event['requestURI']}: {event.get('responseStatus', {}).get('message', '')}"
        for event in requests_of(audit, account)
        if event.get("responseStatus", {}).get("code") == 403
    ]


def credentials(audit: Path, pod: str) -> set[str]:
    """The tokens by which a pod has asked, by their ids."""
    return {
        token
        for event in requests_of(audit)
        if _extra(event, "pod-name") == [pod]
        for token in _extra(event, "credential-id")
    }


def _extra(event: RawObject, name: str) -> list[str]:
    found: list[str] = event["user"].get("extra", {}).get(f"authentication.kubernetes.io/{name}", [])
    return found


def asked(audit: Path, account: str = ACCOUNT) -> set[Right]:
    """What the account has asked for and got."""
    return {_asked(event) for event in requests_of(audit, account)}


def _asked(event: RawObject) -> Right:
    about = event.get("objectRef")
    if about is None:
        return Right(event["verb"], "", event["requestURI"].partition("?")[0])
    parts = (about["resource"], about.get("subresource", ""))
    return Right(event["verb"], about.get("apiGroup", ""), "/".join(filter(None, parts)), about.get("name", ""))


def granted(objects: Iterable[RawObject], account: str = ACCOUNT) -> Iterator[Right]:
    """What the chart's own roles give to the account."""
    known = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    for (kind, _), binding in known.items():
        if not kind.endswith("RoleBinding") or not _is_of(account, binding):
            continue
        role = known.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        for rule in (role or {}).get("rules", ()):
            yield from _rights(rule, binding["roleRef"]["name"])


def unused(objects: Iterable[RawObject], audit: Path, account: str = ACCOUNT) -> list[Right]:
    """What the account may do and has not done."""
    done = asked(audit, account)
    return sorted(
        right
        for right in set(granted(objects, account))
        if right.resource not in CHECKED_ONLY and not any(_covers(right, each) for each in done)
    )


def _covers(right: Right, done: Right) -> bool:
    return (right.verb, right.group, right.resource) == (done.verb, done.group, done.resource) and right.name in {
        "",
        done.name,
    }


def _is_of(account: str, binding: RawObject) -> bool:
    return any(
        each["kind"] == "ServiceAccount" and f"system:serviceaccount:{each['namespace']}:{each['name']}" == account
        for each in binding.get("subjects", ())
    )


def _rights(rule: RawObject, role: str) -> Iterator[Right]:
    names: list[Any] = rule.get("resourceNames") or [""]
    for verb in rule["verbs"]:
        for path in rule.get("nonResourceURLs", ()):
            yield Right(verb, "", path, role=role)
        for group in rule.get("apiGroups", ()):
            for resource in rule.get("resources", ()):
                for name in names:
                    yield Right(verb, group, resource, name, role)
