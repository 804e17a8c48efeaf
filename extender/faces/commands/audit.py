"""`dra-extender audit`: the allocator's audit of a cluster and a second engine's, as a table or JSON."""

import asyncio
import os
import random
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

import typer

from allocator import Selectors
from allocator.audit import Evidence
from extender.answers.audit import audit_snapshot, evidence_of, rows_of
from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import connect
from extender.cluster.snapshot import Snapshot
from extender.faces.commands.options import (
    KubeconfigOptions,
    ManifestsOptions,
    Output,
    OutputOption,
    check_one_cluster,
    command,
)
from extender.faces.commands.output import FOUND_PROBLEMS, print_result
from extender.faces.commands.reading import one_cluster
from extender.kube.api import Api, ApiError, Listing, OutcomeUnknownError, key_of
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.discovery import NotServedError
from extender.kube.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, SLICES, Resource
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import parse_namespace
from extender.plugins.second_opinion.task import SecondLooks, Tally

AUDITED = (NODES, SLICES, CLASSES, PODS, CLAIMS)
"""The kinds that the audit reads: pods before claims, because a pod that has a node has had its claims before."""

SECOND_OPINION_SECONDS: Final = 60.0
"""How long the second engine may look at devices. Those that it does not get to are counted as not checked."""

_MOST_REASONS: Final = 5
"""The most reasons why devices were not checked that are printed."""


@command(
    "dra-extender audit config/example",
    "dra-extender audit --context production -o json",
    "kubectl get nodes,resourceslices,deviceclasses,resourceclaims -A -o yaml | dra-extender audit -",
)
def audit_command(
    *, manifests: ManifestsOptions, kubeconfig: KubeconfigOptions, output: OutputOption = Output.TABLE
) -> None:
    """Check allocated claims, and pods on nodes: which of them break which rule? Of manifests, or of a live cluster."""
    check_one_cluster(manifests, kubeconfig)
    if manifests:
        snapshot = EmbeddedCluster(one_cluster("audit", manifests).objects).state.snapshot
    else:
        snapshot = asyncio.run(listed_live(find_origin(*kubeconfig, os.environ)))
    second = second_opinion(snapshot)
    findings, judged = (*audit_snapshot(snapshot), *second.findings), _judged(evidence_of(snapshot))
    rows = rows_of(findings)
    print_result(
        output,
        names=lambda: sorted({claim for finding in findings for claim in finding.claims}),
        data=lambda: [*rows],
        table=lambda: rows.table,
    )
    if output is Output.TABLE:
        typer.echo(judged if findings else f"every rule holds; {judged}")
    for line in second_lines(second):
        typer.echo(line, err=output is not Output.TABLE)
    if findings:
        raise typer.Exit(FOUND_PROBLEMS)


async def listed(api: Api, resources: Iterable[Resource] = AUDITED, *, has_whole_pods: bool = False) -> Snapshot:
    """The objects of some kinds, as `listed_state` has them."""
    return (await listed_state(api, resources, has_whole_pods=has_whole_pods)).snapshot


async def listed_state(api: Api, resources: Iterable[Resource], *, has_whole_pods: bool) -> ClusterState:
    """The objects of some kinds, listed once. An optional kind that is not served has no objects.

    Args:
        api: has them.
        resources: the kinds.
        has_whole_pods: with what kube-scheduler compares of all pods, and with the labels of namespaces.

    Raises:
        ApiError, OutcomeUnknownError: they cannot be read.
    """
    state = ClusterState(has_whole_pods=has_whole_pods)
    for resource in resources:
        try:
            listing = await api.list(resource)
        except NotServedError:
            if not resource.optional:
                raise
            listing = Listing((), 0)
        state.replace(resource, listing.items, listing.revision)
    if has_whole_pods:
        await note_namespaces(api, state)
    return state


async def note_namespaces(api: Api, state: ClusterState) -> None:
    """Note the labels of namespaces, if they can be read: few pods select namespaces by these."""
    with suppress(ApiError, OutcomeUnknownError):
        namespaces = (await api.list(NAMESPACES)).items
        state.label_namespaces({key_of(each).name: parse_namespace(each) for each in namespaces})


async def listed_live(origin: Origin, resources: Collection[Resource] = AUDITED) -> Snapshot:
    """Like `listed`, of a live cluster.

    Raises:
        ConnectError: there is no usable API server.
        ApiError, OutcomeUnknownError: the objects cannot be read.
    """
    async with connect(origin, random=random.random, listing=resources) as cluster:
        return await listed(cluster.api, resources)


def second_opinion(snapshot: Snapshot, seconds: float = SECOND_OPINION_SECONDS) -> Tally:
    """What cel-python says of the selectors of all allocated devices."""
    from extender.plugins.second_opinion.engine import CelPython  # noqa: PLC0415 - few commands need cel-python

    found = Tally()
    claims = [claim for _, claim in sorted(snapshot.claims.items()) if claim.claim.allocation is not None]
    left = {str(claim.claim): claim for claim in claims}
    second = SecondLooks(Selectors(), CelPython(time.monotonic), time.monotonic)
    for claim, looks in second.at(claims, snapshot, seconds):
        del left[str(claim.claim)]
        for look in looks:
            found.add(look)
    devices = sum(len(claim.claim.allocation.results) for claim in left.values() if claim.claim.allocation)
    found.add_skipped(devices, f"{seconds:g} s were up")
    return found


def second_lines(second: Tally) -> Iterable[str]:
    """What the second engine has done, and why it has not checked some devices."""
    agree, disagree, not_checked = (second.results[each] for each in ("agree", "disagree", "not_checked"))
    if agree or disagree or not_checked:
        counts = f"{agree} agree, {disagree} differ, {not_checked} not checked"
        yield f"devices checked by a second engine (cel-python): {counts}"
    for why, devices in second.reasons.most_common(_MOST_REASONS):
        yield f"not checked by the second engine: {why} ({devices})"


def _judged(evidence: Evidence) -> str:
    allocated = sum(claim.allocation is not None for claim in evidence.claims)
    pods = f"{len(evidence.pods)} {'pod' if len(evidence.pods) == 1 else 'pods'} with claims on nodes"
    return f"judged: {allocated} allocated of {len(evidence.claims)} claims, {pods}"
