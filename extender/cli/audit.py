"""The allocator's audit of a cluster, and its findings as a table or JSON."""

import random
from collections.abc import Collection, Iterable

from allocator import Evidence, Finding, Selectors, audit
from extender.kube.api import CLAIMS, CLASSES, NODES, SLICES, Api, Listing, Resource
from extender.kube.credentials import Origin
from extender.kube.discovery import NotServedError
from extender.observe.tables.terminal import Table
from extender.state.live import connect
from extender.state.snapshot import Snapshot
from extender.state.state import ClusterState

AUDITED = (NODES, SLICES, CLASSES, CLAIMS)
"""The kinds that the audit reads."""


async def listed(api: Api, resources: Iterable[Resource] = AUDITED) -> Snapshot:
    """The objects of some kinds, listed once. An optional kind that is not served has no objects.

    Raises:
        ApiError, OutcomeUnknownError: they cannot be read.
    """
    state = ClusterState()
    for resource in resources:
        try:
            listing = await api.list(resource)
        except NotServedError:
            if not resource.optional:
                raise
            listing = Listing((), 0)
        state.replace(resource, listing.items, listing.revision)
    return state.snapshot


async def listed_live(origin: Origin, resources: Collection[Resource] = AUDITED) -> Snapshot:
    """As `listed`, of a live cluster.

    Raises:
        ConnectError: there is no usable API server.
        ApiError, OutcomeUnknownError: the objects cannot be read.
    """
    async with connect(origin, random=random.random, listing=resources) as cluster:
        return await listed(cluster.api, resources)


def audit_snapshot(snapshot: Snapshot) -> tuple[Finding, ...]:
    """All rules that allocated claims of a cluster break."""
    evidence = Evidence(
        slices=tuple(snapshot.inventory.slices.values()),
        classes=snapshot.classes,
        claims=tuple(snapshot.claims[key].claim for key in sorted(snapshot.claims)),
        nodes={name: node.node for name, node in snapshot.nodes.items()},
    )
    return audit(evidence, Selectors())


def finding_table(findings: Iterable[Finding]) -> Table:
    """A row per finding."""
    rows = [(f.rule.value, ", ".join(f.claims), str(f.device or "-"), f.message) for f in findings]
    return Table(("rule", "claims", "device", "what is wrong"), rows)


def finding_json(finding: Finding) -> dict[str, object]:
    """A finding for programs."""
    return {
        "rule": finding.rule.value,
        "claims": list(finding.claims),
        "device": finding.device and finding.device._asdict(),
        "message": finding.message,
    }
