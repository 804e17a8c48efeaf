"""Explanations from a snapshot, or from a running service."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import httpx

from allocator import printable
from extender.decisions.solver import Solver
from extender.explain.document import as_json
from extender.explain.explaining import Explainer
from extender.explain.explanation import Verdict
from extender.kube.api import BUDGETS, RESOURCES, ObjectKey
from extender.state.snapshot import Snapshot

_SECONDS: Final = 60.0
_HEADERS: Final = {"accept": "application/json"}
_GOOD: Final = frozenset({Verdict.FITS.value, Verdict.BOUND.value, Verdict.NEEDS_NOTHING.value})

EXPLAINED: Final = tuple(resource for resource in RESOURCES.values() if resource != BUDGETS)
"""The kinds that an explanation reads."""


class InquiryError(Exception):
    """There is no explanation; the text says why."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The pod to explain, and on which nodes (None: all)."""

    pod: ObjectKey
    nodes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An explanation as JSON."""

    document: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text for people, made printable: the service may send any characters."""
        return "\n".join(map(printable, str(self.document["text"]).split("\n")))

    @property
    def is_good(self) -> bool:
        """The pod is bound, fits on a node, or needs no devices."""
        return self.document["verdict"] in _GOOD


def explained(inquiry: Inquiry, snapshot: Snapshot, solver: Solver, schedulers: Collection[str] = ()) -> Answer:
    """The explanation of a pod of a snapshot.

    Args:
        inquiry: what to explain.
        snapshot: the cluster.
        solver: the allocator.
        schedulers: names of the schedulers that call the service; empty: not known.

    Raises:
        InquiryError: there is no such pod.
    """
    pod = snapshot.pods.get(inquiry.pod)
    if pod is None:
        raise InquiryError(f"pod {inquiry.pod} does not exist, or it needs no devices")
    return Answer(as_json(Explainer.alone(snapshot, solver, schedulers).explain(pod, inquiry.nodes)))


def asked(inquiry: Inquiry, server: str, transport: httpx.BaseTransport | None = None) -> Answer:
    """The explanation of a running service.

    Args:
        inquiry: what to explain.
        server: URL of the service.
        transport: of the HTTP client; None: the network.

    Raises:
        InquiryError: the service cannot be reached, or cannot answer.
    """
    path = f"{server.rstrip('/')}/explain/{quote(inquiry.pod.namespace)}/{quote(inquiry.pod.name)}"
    try:
        with httpx.Client(timeout=_SECONDS, transport=transport) as client:
            response = client.get(path, params={"node": list(inquiry.nodes or ())}, headers=_HEADERS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise InquiryError(f"{path}: {error}") from error
    try:
        document = response.json()
        if response.status_code == HTTPStatus.OK:
            return Answer({**document, "verdict": document["verdict"], "text": document["text"]})
        problem = str(document["error"])
    except (ValueError, KeyError, TypeError):
        problem = f"status {response.status_code} and no explanation: is this a dra-extender?"
    raise InquiryError(f"{path}: {problem}")
