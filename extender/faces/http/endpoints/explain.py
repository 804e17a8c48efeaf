"""Explanations on HTTP: text for terminals, JSON for clients that accept it. Nothing is written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Final, NamedTuple

import yaml
from anyio.to_thread import run_sync
from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from allocator.tools import JSON, Fields
from extender.answers.explain.explanation import Explanation, as_json
from extender.answers.explain.explanation_service import Explanations
from extender.cluster.objects.pods import Pod, parse_whole_pod
from extender.cluster.priority_classes import CLASS_NAME
from extender.faces.http.bodies import Bodies, Body, from_yaml, is_yaml
from extender.faces.http.callers import MAY, caller_of
from extender.faces.http.replies import Format, error_reply, format_for
from extender.framework import wire
from extender.framework.wire import WireError, as_pod, optional, root_of
from extender.kube.api import ObjectKey


class Nodes(BaseModel):
    """Which nodes. Unknown parameters are refused, because they are misspelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: list[str] | None = Field(
        default=None, description="Look at this node only; may be given several times.", min_length=1
    )


NodesQuery = Annotated[Nodes, Query()]

_EXAMPLE: Final[JSON] = {
    "metadata": {"name": "plain", "namespace": "default"},
    "spec": {"containers": [{"name": "main", "image": "example.com/app"}]},
}
_BODY: Final[Mapping[str, object]] = {
    "application/json": {"example": _EXAMPLE},
    "application/yaml": {"example": yaml.safe_dump(_EXAMPLE, sort_keys=False)},
}
_TEXT: Final = "pod default/plain needs no devices: its devices do not restrict the choice of a node\n"
_ANSWERS: Final[dict[int | str, dict[str, object]]] = {
    200: {
        "description": "The explanation: text, or JSON where that is accepted.",
        "content": {"text/plain": {"example": _TEXT}, "application/json": {}},
    },
    400: {"description": "A parameter that is unknown, or a body that can't be read."},
    404: {"description": "There is no such pod or claim, or the pod needs no devices: the error says which."},
    406: {"description": "Neither text nor JSON is accepted."},
    429: {"description": "The caller, or all callers together, ask for too much."},
    503: {"description": "The service does not know the cluster well enough."},
}


def add_explain(app: FastAPI, explanations: Explanations, bodies: Bodies) -> None:
    """``/explain``, for a pod or a claim of the cluster and for any other pod."""
    _add_claims(app, explanations)

    @app.get(
        "/explain/{namespace}/{pod}",
        tags=["explain"],
        summary="Why does a pod of the cluster fit nowhere, and what would change that? Or: where does it fit?",
        responses=_ANSWERS,
        response_class=Response,
    )
    async def explain_known(request: Request, namespace: str, pod: str, query: NodesQuery) -> Response:
        form = format_for(request)
        within = await _only(request, namespace)
        caller = caller_of(request.scope)
        key = ObjectKey(namespace, pod)
        return await _reply(form, await explanations.of_pod(key, query.node, within=within, caller=caller))

    @app.post(
        "/explain",
        tags=["explain"],
        summary="The same for a pod as it might be: a Pod, or what kube-scheduler sends to filter.",
        responses={code: answer for code, answer in _ANSWERS.items() if code != 404},
        response_class=Response,
        openapi_extra={"requestBody": {"required": True, "content": _BODY}},
    )
    async def explain_any(request: Request, query: NodesQuery) -> Response:
        form = format_for(request)
        caller = caller_of(request.scope)
        with Body(bodies, caller=caller) as body:
            # A body with whole nodes, or in YAML, takes long to decode.
            content_type = request.headers.get("content-type", "")
            sent = await bodies.decoded(caller, _decoded, await body.read(request.receive), content_type)
            within = await _only(request, sent.pod.namespace)
            explanation = await explanations.explain(
                sent.pod, query.node or sent.names, priority_class=sent.priority_class, within=within, caller=caller
            )
            return await _reply(form, explanation)


def _add_claims(app: FastAPI, explanations: Explanations) -> None:
    @app.get(
        "/explain/{namespace}/claims/{claim}",
        tags=["explain"],
        summary="What does a claim hold? Or: where can it be allocated, or why nowhere?",
        responses=_ANSWERS,
        response_class=Response,
    )
    async def explain_claim(request: Request, namespace: str, claim: str, query: NodesQuery) -> Response:
        form = format_for(request)
        within = await _only(request, namespace)
        caller = caller_of(request.scope)
        key = ObjectKey(namespace, claim)
        return await _reply(form, await explanations.of_claim(key, query.node, within=within, caller=caller))


async def _only(request: Request, namespace: str) -> str | None:
    """The only namespace whose objects the caller may read by name; None: all, as everybody on loopback may.

    Who may read the table of all pods may read all names. Of the explained pod, or of the pod in a body, the caller
    reads the names of its namespace if it may read the explanations there; if not, it reads no name.
    """
    may = request.scope.get(MAY)
    if may is None or await may("get", "/pods"):
        return None
    return namespace if await may("get", f"/explain/{namespace}/-") else ""


class _SentPod(NamedTuple):
    """A pod of a body; ``names`` of nodes, None: all; ``priority_class``: None if it has its priority."""

    pod: Pod
    names: Sequence[str] | None
    priority_class: str | None


def _decoded(body: bytes, content_type: str) -> _SentPod:
    """A Pod as kubectl prints it, or ExtenderArgs with names of nodes. Without names all nodes are meant."""
    if not body or body.isspace():
        raise WireError("", "the body is empty: expected a Pod as JSON or YAML")
    if is_yaml(body, content_type):
        body = from_yaml(body, content_type)
    root = root_of(body)
    if optional(root, "Pod", dict) is None and "Pod" not in root:
        _check_case(root)
        return _SentPod(_with_uid(as_pod(root, "", parse_whole_pod)), None, _class_name(root))
    args = wire.decode_whole(body)
    names = args.names if optional(root, "NodeNames", list) is not None else None
    return _SentPod(_with_uid(args.pod), names, None)


_NAMES: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_SPEC_NAMES: Final = (
    "affinity",
    "containers",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    CLASS_NAME,
    "resourceClaims",
    "resources",
    "schedulerName",
    "schedulingGates",
    "schedulingGroup",
    "tolerations",
)
_CLAIM_NAMES: Final = ("name", "resourceClaimName", "resourceClaimTemplateName")
_LISTED: Final = 256
"""Claims of a pod whose fields are looked at; an API server takes fewer."""


def _check_case(pod: Mapping[str, JSON]) -> None:
    """Refuse a pod with a field that differs from a known one in upper and lower case: it would count for nothing."""
    _check_names(pod, _NAMES, "")
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    _check_names(spec, _SPEC_NAMES, "spec.")
    claims = spec.get("resourceClaims")
    for number, each in enumerate(claims[:_LISTED] if isinstance(claims, list) else ()):
        if isinstance(each, dict):
            _check_names(each, _CLAIM_NAMES, f"spec.resourceClaims[{number}].")


def _check_names(fields: Mapping[str, JSON], known: Sequence[str], at: str) -> None:
    by_lower = {name.lower(): name for name in known}
    for name in fields:
        meant = by_lower.get(name.lower(), name) if name not in known else name
        if meant != name:
            raise WireError(f"{at}{name}", f"unknown field; did you mean {meant}?")


def _class_name(pod: Mapping[str, JSON]) -> str | None:
    """The priority class of a pod that no API server has admitted; None if the pod has its priority."""
    spec = Fields(pod, "", []).child("spec")
    return None if spec.has("priority") else spec.text(CLASS_NAME)


def _with_uid(pod: Pod) -> Pod:
    """The pod with a uid. A pod that no API server has seen has none."""
    return pod if pod.uid else replace(pod, uid=f"of {pod}")


async def _reply(form: Format, explanation: Explanation | str) -> Response:
    """The explanation, written in a thread: names from a request may be a megabyte of text to escape.

    A text says why there is none.
    """
    if isinstance(explanation, str):
        return error_reply(HTTPStatus.NOT_FOUND, explanation)
    if form is Format.JSON:
        return Response(await run_sync(_as_json, explanation), media_type="application/json")
    return Response(await run_sync(str, explanation), media_type="text/plain")


def _as_json(explanation: Explanation) -> bytes:
    return wire.as_line(as_json(explanation))
