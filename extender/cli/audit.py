"""The allocator's audit over a cluster, and how its findings are shown."""

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
"""What the audit looks at."""


async def listed(api: Api, resources: Iterable[Resource] = AUDITED) -> Snapshot:
    """What an API server has of some kinds, read once; of one that it need not serve and does not, nothing.

    Raises:
        ApiError, OutcomeUnknownError: it can't be read.
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
    """The same of the API server of a kubeconfig.

    Raises:
        ConnectError: there is no API server there that we can work with.
        ApiError, OutcomeUnknownError: it can't be read.
    """
    async with connect(origin, random=random.random, listing=resources) as cluster:
        return await listed(cluster.api, resources)


def audit_snapshot(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Every rule that the allocated claims of a cluster break."""
    evidence = Evidence(
        slices=tuple(snapshot.inventory.slices.values()),
        classes=snapshot.classes,
        claims=tuple(snapshot.claims[key].claim for key in sorted(snapshot.claims)),
        nodes={name: node.node for name, node in snapshot.nodes.items()},
    )
    return audit(evidence, Selectors())


def finding_table(findings: Iterable[Finding]) -> Table:
    """A row for each rule that is broken."""
    rows = [(f.rule.value, ", ".join(f.claims), str(f.device or "-"), f.message) for f in findings]
    return Table(("rule", "claims", "device", "what is wrong"), rows)


def finding_json(finding: Finding) -> dict[str, object]:
    """For people's programs."""
    return {
        "rule": finding.rule.value,
        "claims": list(finding.claims),
        "device": finding.device and finding.device._asdict(),
        "message": finding.message,
    }
