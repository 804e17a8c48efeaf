"""Negotiated claims: claims with requests about which a controller decides, and what is left of them for us.

A request is negotiated if its device class names a controller. Our search serves the other requests of the claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from allocator import Claim, ClaimSpec, ConstraintSpec, DeviceClass, ParametersRef, Reason, Request, selector_matches
from allocator.model.json import ParametersRefError, parameters_ref
from allocator.model.optional import OPTIONAL_REQUESTS
from allocator.reason import Cause
from extender.cluster.indexes import ANY_NODE_SUITS, UNASKED, ControllerAnswer
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.snapshot import Snapshot

_AS_WRITTEN: Final = Cause("not-negotiable", "claim {claim}: {detail}")
_UNSUITABLE: Final = Cause("controller-class", "device class {detail}: the node is not suitable")
_REFUSED: Final = Cause("controller", "controller {detail}")
_AWAITED: Final = Cause("controller-awaited", "waiting for controller {detail}")
_NO_ANSWER: Final = Cause("controller-answer", "{detail}")


class NegotiationError(Exception):
    """A claim that no controller can decide about as it is written; the reason names the claim and the field."""

    def __init__(self, claim: Claim, problem: str) -> None:
        self.reason = Reason(_AS_WRITTEN, detail=problem, claim=claim.name)
        super().__init__(self.reason.in_words())


@dataclass(frozen=True, slots=True)
class NegotiatedClaim:
    """A claim without an allocation of which a controller serves some requests.

    Attributes:
        claim: the whole claim.
        rest: the claim with the other requests only.
        controller: the name of the controller.
        requests: the names of the negotiated requests, in the order of the claim.
        classes: their device classes, each once.
        answer: what the controller has said about nodes.
        parameters: the object that the claim names for the controller; None: it names none.
    """

    claim: ClaimObject
    rest: ClaimObject
    controller: str
    requests: tuple[str, ...]
    classes: tuple[DeviceClass, ...]
    answer: ControllerAnswer
    parameters: ParametersRef | None = None

    @property
    def uid(self) -> str:
        """The uid of the claim."""
        return self.claim.claim.uid

    @property
    def negotiated_spec(self) -> ClaimSpec:
        """The spec of the claim with the negotiated requests only."""
        spec = self.claim.claim.spec
        return replace(spec, requests=tuple(each for each in spec.requests if each.name in self.requests))

    def requests_of(self, class_name: str) -> tuple[str, ...]:
        """The negotiated requests of one of the classes."""
        asked = {each.name: each.alternatives[0].device_class for each in self.claim.claim.spec.requests}
        return tuple(name for name in self.requests if asked[name] == class_name)

    @property
    def has_rest(self) -> bool:
        """Whether devices have to be searched for the claim, too."""
        return bool(self.rest.claim.spec.requests)

    def is_for(self, node: NodeObject) -> bool:
        """Whether the classes let the controller allocate devices for a node."""
        selectors = (each.suitable_nodes for each in self.classes)
        return all(each is None or selector_matches(each, node.node) for each in selectors)

    @property
    def may_be_anywhere(self) -> bool:
        """Whether the classes let the controller allocate devices for each node."""
        return all(each.suitable_nodes is None for each in self.classes)

    def refusals(self, names: Sequence[str]) -> Mapping[Reason, Sequence[str]]:
        """The refused ones of some nodes, by reason; as `refusal`, for a claim that may be anywhere."""
        answer = self.answer
        if answer.problem is not None:
            return {answer.problem: names}
        by_text: dict[str, list[str]] = {}
        for name in names if answer.unsuitable else ():
            if text := answer.unsuitable.get(name):
                by_text.setdefault(text, []).append(name)
        found: dict[Reason, Sequence[str]] = {
            self._refused_by_controller(text): refused for text, refused in by_text.items()
        }
        if answer.asked is not None and (unasked := [name for name in names if name not in answer.asked]):
            found[awaited(self.controller)] = unasked
        return found

    def refusal(self, node: NodeObject) -> Reason | None:
        """Why the claim cannot be allocated for a node; None if it can, as far as is known."""
        if not self.is_for(node):
            names = ", ".join(each.name for each in self.classes if each.suitable_nodes is not None)
            return Reason(_UNSUITABLE, detail=names)
        answer = self.answer
        if answer.problem is not None:
            return answer.problem
        if text := answer.unsuitable.get(node.name):
            return self._refused_by_controller(text)
        return None if answer.asked is None or node.name in answer.asked else awaited(self.controller)

    def _refused_by_controller(self, text: str) -> Reason:
        """The controller's own reason against a node."""
        return Reason(_REFUSED, detail=f"{self.controller}: {text}")


def awaited(controller: str) -> Reason:
    """The reason for a node, or a claim, that a controller has not judged yet."""
    return Reason(_AWAITED, detail=controller)


def unanswered(text: str) -> Reason:
    """The reason for a claim about which there is no answer of a controller, in whole words."""
    return Reason(_NO_ANSWER, detail=text)


def negotiated(claim: ClaimObject, snapshot: Snapshot) -> NegotiatedClaim | None:
    """A claim without an allocation as a negotiated claim; None if no request of it is negotiated.

    Raises:
        NegotiationError: the claim cannot be negotiated as it is written.
    """
    spec = claim.claim.spec
    own = [each for each in spec.requests if _controllers(each, snapshot)]
    if not own:
        return None
    controllers = sorted({name for each in own for name in _controllers(each, snapshot)})
    if len(controllers) > 1:
        raise _error(claim, "spec.devices.requests", f"name several controllers: {', '.join(controllers)}")
    for each in own:
        if each.prioritized:
            text = "firstAvailable cannot name a device class with a controller"
            raise _error(claim, f"request {each.name}", text)
    try:
        parameters = parameters_ref(claim.claim.annotations)
    except ParametersRefError as error:
        raise NegotiationError(claim.claim, str(error)) from error
    names = tuple(each.name for each in own)
    rest = [each for each in spec.requests if each.name not in names]
    classes = dict.fromkeys(each.alternatives[0].device_class for each in own)
    return NegotiatedClaim(
        claim,
        replace(claim, claim=replace(claim.claim, spec=_spec_of(claim, rest, names))),
        controllers[0],
        names,
        tuple(snapshot.classes[name] for name in classes),
        snapshot.answers.get(claim.claim.uid, UNASKED),
        parameters,
    )


def ready_to_bind(claims: Sequence[NegotiatedClaim], snapshot: Snapshot) -> Snapshot:
    """The cluster for a bind: controllers are not asked about nodes any more, but to allocate."""
    for each in claims:
        snapshot = snapshot._replace(answers=snapshot.answers.set(each.uid, ANY_NODE_SUITS))
    return snapshot


def names_controller(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether a controller decides about a request of a claim."""
    return bool(snapshot.controllers) and any(_controllers(each, snapshot) for each in claim.spec.requests)


def _controllers(request: Request, snapshot: Snapshot) -> set[str]:
    names = (snapshot.controllers.get(each.device_class, "") for each in request.alternatives)
    return {name for name in names if name}


def _spec_of(claim: ClaimObject, requests: Sequence[Request], negotiated_names: Sequence[str]) -> ClaimSpec:
    """What the claim asks of our search. Its constraints cover the devices of these requests only."""
    spec, names = claim.claim.spec, {each.name for each in requests}
    for number, each in enumerate(spec.constraints):
        if named := _named(each, negotiated_names):
            text = f"names request {named}, about which a controller decides"
            raise _error(claim, f"spec.devices.constraints[{number}]", text)
    if both := [name for name in spec.optional if name in negotiated_names]:
        text = f"names request {both[0]}, about which a controller decides"
        raise _error(claim, f"metadata.annotations[{OPTIONAL_REQUESTS}]", text)
    constraints = spec.constraints if requests else ()
    configs = tuple(
        each
        for each in spec.configs
        if requests and (not each.requests or any(name.partition("/")[0] in names for name in each.requests))
    )
    return replace(spec, requests=tuple(requests), constraints=constraints, configs=configs)


def _named(constraint: ConstraintSpec, names: Sequence[str]) -> str:
    return next((name for name in constraint.requests if name.partition("/")[0] in names), "")


def _error(claim: ClaimObject, field: str, text: str) -> NegotiationError:
    return NegotiationError(claim.claim, f"{field}: {text}")
