"""Consumers of claims: pods, and PodGroups, whose pods use a claim together (gate DRAWorkloadResourceClaims)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

from allocator import Claim, Consumer, Features
from extender.cluster.indexes import NodeRequests
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.nodes import NodeObject
from extender.cluster.objects.pod_groups import PodGroup
from extender.cluster.objects.pods import GangKey, Pod, PodClaim
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.kube.resources import PODS


def claim_name(pod: Pod, entry: PodClaim) -> str | None:
    """The name of the claim of an entry of a pod; None if there is none, or none yet."""
    return entry.claim_name or pod.claim_statuses.get(entry.name)


def claim_keys(pod: Pod) -> tuple[ObjectKey, ...]:
    """The claims that a pod names, with the special claim, as far as their names are known."""
    names = [entry.claim_name or pod.claim_statuses.get(entry.name) for entry in pod.claims]
    if pod.extended_claim is not None:
        names.append(pod.extended_claim.claim_name)
    return tuple([ObjectKey(pod.namespace, name) for name in names if name])


def group_of(pod: Pod, claim: Claim, snapshot: Snapshot) -> Consumer | None:
    """The PodGroup for which a claim is reserved in place of a pod; None: it is reserved for the pod.

    Source: ``BindTo`` in k8s.io/dynamic-resource-allocation/resourceclaim (Kubernetes 1.37). The group has an entry
    that is equal to that of the pod.
    """
    if not (pod.pod_group and snapshot.has_group_claims):
        return None
    group = snapshot.objects(PodGroup).get(ObjectKey(pod.namespace, pod.pod_group))
    if group is None or not group.claims:
        return None
    is_of_group = any(entry in group.claims and claim_name(pod, entry) == claim.name for entry in pod.claims)
    return group.consumer if is_of_group else None


def consumer_of(pod: Pod, claim: Claim, snapshot: Snapshot) -> Consumer:
    """The consumer for whom a claim is reserved when a pod uses it: the pod, or its PodGroup."""
    return group_of(pod, claim, snapshot) or own_consumer(pod)


def own_consumer(pod: Pod) -> Consumer:
    """A pod as a consumer of claims."""
    return Consumer(PODS.plural, pod.name, pod.uid)


def has_other_consumers(pod: Pod, claim: Claim, snapshot: Snapshot) -> bool:
    """Whether a claim is reserved for anybody but a pod or its PodGroup."""
    own = {pod.uid, consumer_of(pod, claim, snapshot).uid}
    return any(consumer.uid not in own for consumer in claim.reserved_for)


def users_of(claim: Claim, snapshot: Snapshot) -> Iterator[Pod]:
    """The pods for which a claim is reserved, by themselves or by their PodGroup; a pod may come twice."""
    for consumer in claim.reserved_for:
        if consumer.is_pod_group:
            yield from pods_of(consumer, claim, snapshot)
        elif (pod := snapshot.pod(consumer.uid)) is not None:
            yield pod


def is_in_use(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether a pod that has a node, and is not finished, uses a claim."""
    for consumer in claim.reserved_for:
        if consumer.is_pod_group:
            members, key = _members(consumer, claim, snapshot), ObjectKey(claim.namespace, claim.name)
            if any(_is_running(pod) and key in claim_keys(pod) for pod in members):
                return True
        elif (user := snapshot.pod(consumer.uid)) is not None and _is_running(user):
            return True
    return False


def _is_running(pod: Pod) -> bool:
    return bool(pod.node_name) and not pod.is_finished


def pods_of(group: Consumer, claim: Claim, snapshot: Snapshot) -> Iterator[Pod]:
    """The pods of a PodGroup that name a claim."""
    key = ObjectKey(claim.namespace, claim.name)
    return (pod for pod in _members(group, claim, snapshot) if key in claim_keys(pod))


def _members(group: Consumer, claim: Claim, snapshot: Snapshot) -> Iterator[Pod]:
    """The pods with devices of a PodGroup of the claim's namespace."""
    members = snapshot.gangs.members.get(GangKey(claim.namespace, group.name, is_pod_group=True), ())
    return (pod for uid in members if (pod := snapshot.pod(uid)) is not None)


def holders_near(node: NodeObject, snapshot: Snapshot, features: Features) -> Iterator[Pod]:
    """The pods that hold devices of the pools that a node reaches, by uid. They may run on any node."""
    pools = snapshot.inventory.for_node(node.node, features)
    claims = (snapshot.claim(uid) for pool in pools for uid in snapshot.holders.get(pool.id, ()))
    users = (user.uid for claim in claims if claim is not None for user in claim.claim.reserved_for)
    for uid in sorted(set(users)):
        pod = snapshot.pod(uid)
        if pod is not None:
            yield pod


def without_pods(snapshot: Snapshot, pods: Iterable[Pod]) -> Snapshot:
    """The cluster once some pods are gone and the claims that only they used are released."""
    gone = {pod.uid for pod in pods}
    for pod in pods:
        for key in claim_keys(pod):
            claim = snapshot.claims.get(key)
            if claim is None or not any(c.uid in gone for c in claim.claim.reserved_for):
                continue
            left = tuple(c for c in claim.claim.reserved_for if c.uid not in gone)
            if not left and claim.claim.owner_uid in gone:
                snapshot = snapshot.without_claim(key)
                continue
            allocation = claim.claim.allocation if left else None
            released = replace(claim.claim, reserved_for=left, allocation=allocation)
            snapshot = snapshot.with_claim(replace(claim, claim=released))
        snapshot = snapshot.without_pod(pod.key)
    return snapshot


def after_departures(snapshot: Snapshot, node: NodeObject, features: Features) -> Snapshot:
    """The cluster once pods that are gone or terminating have released what they have of a node and its devices."""
    if snapshot.node_requests is not None:
        leaving = (pod.key for pod in snapshot.pods_on(node.name) if pod.deleting)
        snapshot = snapshot._replace(node_requests=reduce(NodeRequests.without_pod, leaving, snapshot.node_requests))
    for found in left_behind(snapshot, node, features):
        released = replace(found.claim, allocation=None, reserved_for=())
        snapshot = snapshot.with_claim(replace(found, claim=released))
    return snapshot


def left_behind(snapshot: Snapshot, node: NodeObject, features: Features) -> Sequence[ClaimObject]:
    """The claims that have devices which a node reaches, and whose users are all gone or terminating."""
    pools = snapshot.inventory.for_node(node.node, features)
    uids = dict.fromkeys(uid for pool in pools for uid in snapshot.holders.get(pool.id, ()))
    claims = (snapshot.claim(uid) for uid in uids if uid not in snapshot.assumed)
    return [each for each in claims if each is not None and is_left(each.claim, snapshot)]


def is_left(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether all users of the claim are gone or terminating, so that its devices will be released."""
    if any(consumer.resource != "pods" for consumer in claim.reserved_for):
        return False
    users = [consumer.uid for consumer in claim.reserved_for] or ([claim.owner_uid] if claim.owner_uid else [])
    pods = [snapshot.pod(uid) for uid in users]
    return bool(pods) and all(pod is None or pod.deleting or pod.is_finished for pod in pods)
