"""Which objects need not be decoded, by their bytes: most pods of a cluster use no devices."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from extender.kube.resources import PODS

_EVENT: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:ADDED|MODIFIED|DELETED)"')
_RESOURCE_WITH_DOMAIN: Final = re.compile(rb'"(?:limits|requests)"\s*:\s*\{[^}]*/')
_REVISION: Final = re.compile(rb'"resourceVersion"\s*:\s*"(\d{1,20})"')

Relevance = Callable[[bytes], bool]
"""Whether an object may matter, by its JSON; False only if it certainly does not."""


def pod_may_need_devices(pod: bytes) -> bool:
    """Whether a pod's JSON has claims or a PodGroup, or requests a resource whose name has a domain.

    Extended resources have such names, and a PodGroup counts all its pods.

    JSON inside a string, as in annotations, has escaped quotes and does not match.
    """
    is_named = b'"resourceClaims"' in pod or b'"schedulingGroup"' in pod
    return is_named or _RESOURCE_WITH_DOMAIN.search(pod) is not None


RELEVANCE: Final[Mapping[str, Relevance]] = {PODS.kind: pod_may_need_devices}
"""The kinds with objects that need not be decoded. All objects of other kinds matter."""


def passed_revision(line: bytes, may_matter: Relevance) -> int:
    """The revision of a watch event whose object does not matter; 0 if the event must be decoded."""
    if _EVENT.match(line) is None or may_matter(line):
        return 0
    found = _REVISION.search(line)
    return int(found[1]) if found else 0
