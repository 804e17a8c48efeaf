"""Questions to controllers, made from pods, claims and nodes of the cluster, with the parameters of the claims.

Parameters are objects that claims and classes name. They are read and handed over as they are. Source: KEP-3063,
``parametersRef`` of ResourceClass and ResourceClaim.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from allocator import FROM_CLAIM, FROM_CLASS, AllocatedConfig, AllocationResult, ParametersRef, allocation_to_json
from allocator.tools import JSON
from extender.cluster.controller_marks import Mark
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.config.settings import ParameterKind
from extender.framework.pods.negotiated_claims import NegotiatedClaim
from extender.kube.api import Api, ApiError, ObjectKey, OutcomeUnknownError
from extender.kube.encoding import loads
from extender.kube.resources import Resource
from extender.plugins.negotiation.protocol import DEALLOCATE, ClaimAsk, NegotiatedQuestion, NodeName, Object, PodName

_SECONDS: Final = 1.0
"""For one object. Filter waits for it."""


class ParametersError(Exception):
    """Parameters cannot be handed over; the text names the object."""


class ParameterReader:
    """Reads the parameters for one controller, anew for each question.

    Args:
        api: the API server.
        kinds: those that may be read.
    """

    def __init__(self, api: Api, kinds: Iterable[ParameterKind]) -> None:
        self._api = api
        self._kinds = {(each.group, each.kind): resource_of(each) for each in kinds}

    async def of(self, claim: NegotiatedClaim) -> tuple[Mapping[str, JSON], ...]:
        """The parameters of a claim and of its classes, in the form of the protocol.

        Raises:
            ParametersError: an object is missing, or may not be read.
        """
        value, own = claim.claim.claim, claim.parameters
        named = [(each.parameters, FROM_CLASS, claim.requests_of(each.name)) for each in claim.classes]
        if own is not None:
            named.append((replace(own, namespace=value.namespace), FROM_CLAIM, claim.requests))
        try:
            return tuple(
                [await self._read(ref, source, requests) for ref, source, requests in named if ref is not None]
            )
        except ParametersError as error:
            raise ParametersError(f"claim {value.name}: {error}") from error

    async def _read(self, ref: ParametersRef, source: str, requests: Sequence[str]) -> Mapping[str, JSON]:
        resource = self._resource(ref)
        if resource.namespaced != bool(ref.namespace):
            wrong = "the namespace is missing" if resource.namespaced else "the kind has no namespace"
            raise ParametersError(f"parameters {ref}: {wrong}")
        try:
            async with asyncio.timeout(_SECONDS):
                found = await self._api.get(resource, ObjectKey(ref.namespace, ref.name))
        except ApiError as error:
            why = "there is no such object" if error.is_missing else f"cannot be read: {error}"
            raise ParametersError(f"parameters {ref}: {why}") from error
        except (OutcomeUnknownError, TimeoutError) as error:
            raise ParametersError(f"parameters {ref}: cannot be read: no answer in time") from error
        return {"source": source, "requests": list(requests), "object": found}

    def _resource(self, ref: ParametersRef) -> Resource:
        found = self._kinds.get((ref.api_group, ref.kind))
        if found is None:
            raise ParametersError(f"parameters {ref}: the controller's settings do not name this kind")
        return found


def resource_of(kind: ParameterKind) -> Resource:
    """The API resource of a kind that the settings name."""
    group, _, version = kind.api_version.rpartition("/")
    return Resource(kind.kind, kind.resource, group, (version,), namespaced=kind.namespaced, is_foreign=True)


def pod_name(pod: Pod) -> PodName:
    """A pod in a question."""
    return PodName(pod.namespace, pod.name, pod.uid)


def node_name(node: NodeObject, labels: Iterable[str]) -> NodeName:
    """A node in a question, with some of its labels."""
    known = node.node.labels
    return NodeName(node.name, {each: known[each] for each in labels if each in known} if labels else {})


def claim_ask(claim: NegotiatedClaim, attempt: int, parameters: tuple[Mapping[str, JSON], ...]) -> ClaimAsk:
    """A claim in a question: its negotiated requests as they are written, its configuration, and its parameters."""
    raw = loads(claim.claim.raw)
    written = {each["name"]: each for each in raw["spec"]["devices"]["requests"]}
    value = claim.claim.claim
    return ClaimAsk(
        value.namespace,
        value.name,
        value.uid,
        attempt,
        # v1beta1 has no exactly.
        tuple({"name": name, **written[name].get("exactly", written[name])} for name in claim.requests),
        tuple(_config(claim)),
        parameters,
    )


def release(claim: ClaimObject, mark: Mark) -> NegotiatedQuestion:
    """The question to release a claim."""
    key = claim.key
    return NegotiatedQuestion(DEALLOCATE, (ClaimAsk(key.namespace, key.name, claim.claim.uid, mark.attempt),))


def _config(claim: NegotiatedClaim) -> tuple[Object, ...]:
    """What class and claim configure for the negotiated requests, as it would stand in the claim's allocation."""
    spec = claim.claim.claim.spec
    found: list[AllocatedConfig] = []
    for each in claim.classes:
        found += [AllocatedConfig(FROM_CLASS, opaque, claim.requests_of(each.name)) for opaque in each.configs]
    for config in spec.configs:
        names = tuple(name for name in claim.requests if not config.requests or name in config.requests)
        found += [AllocatedConfig(FROM_CLAIM, config.opaque, names)] if names else []
    devices: Object = allocation_to_json(AllocationResult(configs=tuple(found)))["devices"]  # type: ignore[assignment]
    return tuple(devices.get("config", ()))
