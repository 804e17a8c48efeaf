"""The signature of claims: what they ask for, without names. Claims with equal signatures get equal verdicts."""

from collections.abc import Hashable, Mapping, Sequence

from allocator import Claim, DeviceClass, Policy


def signature_of(claims: Sequence[Claim], classes: Mapping[str, DeviceClass], policy: Policy) -> Hashable:
    """Equal for claims that get the same answer from every node, with the same merit.

    Requests keep their names, which constraints refer to and reasons mention; configuration decides nothing.
    """
    asked = tuple(claim.spec.asked for claim in claims)
    names = {a.device_class for requests, _, _ in asked for request in requests for a in request.alternatives}
    if policy.weighs_classes:
        names = set(classes)
    return (
        policy.name,
        policy.reads,
        asked,
        frozenset((name, found.selectors) for name in names if (found := classes.get(name)) is not None),
    )
