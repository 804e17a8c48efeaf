"""DeviceQuotas that are over their limit: the limit was lowered, or claims were allocated by others."""

from collections.abc import Iterator

from extender.framework.problem import Look, Problem
from extender.kube.api import ObjectKey
from extender.kube.resources import DEVICE_QUOTAS
from extender.plugins.quota.limit_use import quota_use


def problems(look: Look) -> Iterator[Problem]:
    """One for each amount that is over its limit. A loan of the cohort is within the quota."""
    for use in quota_use(look.snapshot, look.solver):
        look.pause()
        quota = look.snapshot.device_quotas[ObjectKey(use.namespace, use.quota)]
        if use.used > use.hard and not quota.cohort:
            text = f"limit {use.limit}: {use.used:g} of {use.hard:g} {use.counts} are in use"
            cost = "no pod of the namespace gets more devices of the limit"
            advice = "raise the limit, or delete pods"
            yield Problem("quota", DEVICE_QUOTAS.kind, ObjectKey(use.namespace, use.quota), text, cost, advice)
