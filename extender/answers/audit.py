"""The allocator's audit of a cluster: which rules its claims and pods break."""

from collections.abc import Iterable

from allocator import Selectors
from allocator.audit import Evidence, Finding, audit
from allocator.tools import JSON
from extender.cluster.snapshot import Snapshot
from extender.framework.pods.claims import bound_pod
from extender.tools.table import Item, Rows, TextTable


def audit_snapshot(snapshot: Snapshot) -> tuple[Finding, ...]:
    """All rules that claims and pods of a cluster break."""
    return audit(evidence_of(snapshot), Selectors())


def evidence_of(snapshot: Snapshot) -> Evidence:
    """The evidence for an audit of a cluster."""
    bound = map(bound_pod, (snapshot.pods[key] for key in sorted(snapshot.pods)))
    return Evidence(
        slices=tuple(snapshot.inventory.slices.values()),
        classes=snapshot.classes,
        claims=tuple(snapshot.claims[key].claim for key in sorted(snapshot.claims)),
        nodes={name: node.node for name, node in snapshot.nodes.items()},
        pods=tuple(pod for pod in bound if pod is not None and (pod.claims or pod.unmade)),
    )


def rows_of(findings: Iterable[Finding]) -> Rows:
    """A row for each finding."""
    found = tuple(findings)
    cells = [(f.rule.value, ", ".join(f.claims) or "-", str(f.device or "-"), f.message) for f in found]
    return Rows(map(_item, found), TextTable(("rule", "claims", "device", "what is wrong"), cells))


def _item(finding: Finding) -> Item:
    device: JSON = None if finding.device is None else {**finding.device._asdict()}
    claims: list[JSON] = [*finding.claims]
    return {"rule": finding.rule.value, "claims": claims, "device": device, "message": finding.message}
