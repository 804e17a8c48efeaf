"""The resources that a pod needs at its peak: the sum over containers that the scheduler reserves.

Source: k8s.io/component-helpers/resource, Kubernetes 1.36.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class ContainerNeeds(NamedTuple):
    """A container's requests: amounts by resource; ``restarts`` says that its restartPolicy is Always."""

    amounts: Mapping[str, int]
    is_init: bool
    restarts: bool


def peak(containers: Iterable[ContainerNeeds]) -> Counter[str]:
    """Amounts by resource, for containers in the order of their start.

    Sidecars run beside everything that starts after them. Other init containers run one by one, before all else.
    """
    running: Counter[str] = Counter()
    starting: Counter[str] = Counter()
    for each in containers:
        if each.is_init and not each.restarts:
            starting |= running + Counter(each.amounts)
        else:
            running += Counter(each.amounts)
    return running | starting
