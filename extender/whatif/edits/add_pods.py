"""``pods``: pods that do not exist."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from allocator import Claim, ClaimSpec, Problem
from allocator.tools import JSON, Fields, dns_label, dns_subdomain, shown
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod, PodClaim
from extender.kube.api import ObjectKey
from extender.kube_scheduler import DEFAULT_SCHEDULER
from extender.whatif.edits.edit import Edit, read_count, refuse_unknown
from extender.whatif.edits.request_values import VALUES, read_spec
from extender.whatif.fork import Fork

_FIELDS: Final = frozenset({"name", "namespace", "priority", "count", "requests"})
_REQUEST: Final = VALUES | {"name"}
_INT32: Final = 2**31


@dataclass(frozen=True, slots=True)
class AddPods(Edit):
    """Equal pods that do not exist, each with a claim of its own.

    Attributes:
        at: path of the edit in the question.
        name: of the pod; of several pods, the beginning of the name.
        count: of the pods.
    """

    field: ClassVar[str] = "pods"
    words: ClassVar[str] = "pods that do not exist"
    example: ClassVar[JSON] = {
        "namespace": "demo",
        "name": "trainer",
        "requests": [{"name": "gpu", "deviceClassName": "gpu.example.com", "count": 2}],
    }

    at: str
    namespace: str
    name: str
    priority: int
    count: int
    spec: ClaimSpec

    @classmethod
    def read(cls, question: Fields) -> Sequence[Self]:
        """An edit for each entry."""
        return [cls._read(each) for each in question.children(cls.field)]

    @classmethod
    def _read(cls, fields: Fields) -> Self:
        refuse_unknown(fields, _FIELDS)
        name, namespace = fields.text("name") or "what-if", fields.text("namespace") or "default"
        for field, wrong in (("name", dns_subdomain(name)), ("namespace", dns_label(namespace))):
            if wrong:
                fields.problem(field, f"{shown(fields.text(field))} {wrong}")
        requests = fields.children("requests")
        for each in requests:
            refuse_unknown(each, _REQUEST)
        if not requests:
            fields.problem("requests", "is required: the devices that each of the pods asks for")
        priority = fields.integer("priority")
        if not -_INT32 <= priority < _INT32:
            fields.problem("priority", f"{priority} is not a whole number of 32 bits")
        spec = read_spec(requests, fields.at("requests"))
        return cls(fields.path, namespace, name, priority, read_count(fields), spec)

    @property
    def number(self) -> int:
        """The pods."""
        return self.count

    @property
    def names(self) -> Sequence[str]:
        """The name in the question."""
        return (f"pod {self.namespace}/{self.name}",)

    def apply(self, fork: Fork) -> None:
        """Add the pods and their claims."""
        names = [self.name] if self.count == 1 else [f"{self.name}-{index + 1}" for index in range(self.count)]
        keys = [ObjectKey(self.namespace, name) for name in names]
        there = next((key for key in keys if key in fork.snapshot.pods or key in fork.snapshot.claims), None)
        if there is not None:
            fork.problems.append(Problem(f"{self.at}.name", f"pod or claim {there} exists already"))
            return
        scheduler = fork.schedulers[0] if fork.schedulers else DEFAULT_SCHEDULER
        for key in keys:
            fork.snapshot = fork.snapshot.with_claim(_claim(key, self.spec)).with_pod(
                Pod(
                    *key,
                    uid=f"what-if/{key}",
                    priority=self.priority,
                    phase="Pending",
                    scheduler_name=scheduler,
                    claims=(PodClaim(key.name, key.name),),
                    created=fork.now,
                )
            )
        fork.new += keys


def _claim(key: ObjectKey, spec: ClaimSpec) -> ClaimObject:
    claim = Claim(*key, uid=f"what-if/{key}/claim", spec=spec)
    return ClaimObject(claim, resource_version="", created="", raw=b"{}")
