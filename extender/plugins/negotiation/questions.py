"""Questions to controllers, made from pods, claims and nodes of the cluster."""

from collections.abc import Iterable, Mapping

from allocator import FROM_CLAIM, FROM_CLASS, AllocatedConfig, AllocationResult, allocation_to_json
from allocator.tools import JSON
from extender.cluster.controller_marks import Mark
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pods import Pod
from extender.framework.pods.negotiated_claims import NegotiatedClaim
from extender.kube.encoding import loads
from extender.plugins.negotiation.protocol import DEALLOCATE, ClaimAsk, NegotiatedQuestion, NodeName, Object, PodName


def pod_name(pod: Pod) -> PodName:
    """A pod in a question."""
    return PodName(pod.namespace, pod.name, pod.uid)


def node_name(node: NodeObject, labels: Iterable[str]) -> NodeName:
    """A node in a question, with some of its labels."""
    known = node.node.labels
    return NodeName(node.name, {each: known[each] for each in labels if each in known} if labels else {})


def claim_ask(claim: NegotiatedClaim, attempt: int = 0, parameters: tuple[Mapping[str, JSON], ...] = ()) -> ClaimAsk:
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
