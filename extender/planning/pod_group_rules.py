"""Rules of kube-scheduler for the pods of a PodGroup: it tries none of them as long as they contradict the group.

Source: validatePodGroup of kube-scheduler 1.37. A group without a priority is one of 1.36, which compares the names of
schedulers alone.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from extender.cluster.objects.pod_groups import NEVER, PodGroup
from extender.cluster.objects.pods import GangKey, Pod
from extender.cluster.snapshot import Snapshot
from extender.kube.api import ObjectKey
from extender.planning.kube_scheduler import DEFAULT_SCHEDULER, no_attempt

_POLICY: Final[Mapping[bool, str]] = {True: "PreemptLowerPriority", False: NEVER}


def contradiction(key: GangKey, snapshot: Snapshot) -> str:
    """Why kube-scheduler tries no pod of a PodGroup, by those of its pods that wait and need devices; empty: it does.

    Args:
        key: of any gang; of a group of annotations, nothing is demanded.
        snapshot: the cluster.
    """
    group = snapshot.objects(PodGroup).get(ObjectKey(key.namespace, key.name)) if key.is_pod_group else None
    if group is None:
        return ""
    pods = (pod for uid in snapshot.gangs.members.get(key, ()) if (pod := snapshot.pod(uid)) is not None)
    waiting = sorted((pod for pod in pods if pod.is_pending), key=lambda pod: pod.name)
    why = next(_contradictions(group, waiting), "")
    return f"kube-scheduler tries no pod of PodGroup {group.name}: {why}" if why else ""


class Attempts:
    """Which pods of one cluster a scheduler of ours tries. Each PodGroup is compared with its pods once.

    Args:
        snapshot: the cluster.
        schedulers: names of the schedulers that call the extender; empty: not known, so that any scheduler may be one.
    """

    def __init__(self, snapshot: Snapshot, schedulers: Collection[str]) -> None:
        self._snapshot = snapshot
        self._schedulers = schedulers
        self._groups: dict[GangKey, str] = {}

    def hindrance(self, pod: Pod) -> str:
        """Why no scheduler of ours tries a pod without a node, whatever its nodes have; empty if one does."""
        return no_attempt(pod, self._schedulers) or self._of_group(pod.gang_key)

    def _of_group(self, key: GangKey | None) -> str:
        if key is None or not key.is_pod_group:
            return ""
        if key not in self._groups:
            self._groups[key] = contradiction(key, self._snapshot)
        return self._groups[key]


def _contradictions(group: PodGroup, waiting: Sequence[Pod]) -> Iterator[str]:
    for each in waiting:
        first = waiting[0]
        if (each.scheduler_name or DEFAULT_SCHEDULER) != (first.scheduler_name or DEFAULT_SCHEDULER):
            yield f"pods {first.name} and {each.name} have different schedulerNames"
        if group.priority is None:
            continue
        own = each.priority if each.own_priority is None else each.own_priority
        if own != group.priority:
            yield (
                f"pod {each.name} has priority {own}, and the group has {group.priority}: give both the same "
                "priorityClassName"
            )
        if not group.policy and each.may_preempt != first.may_preempt:
            yield f"pods {first.name} and {each.name} have different preemptionPolicies"
        if group.policy and each.may_preempt != (group.policy != NEVER):
            yield f"pod {each.name} has preemptionPolicy {_POLICY[each.may_preempt]}, and the group has {group.policy}"
