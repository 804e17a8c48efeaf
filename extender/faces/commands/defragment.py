"""`dra-extender defragment`: which few pods to move, so that pending pods get devices."""

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from extender.answers.defragmentation.advice import Advice, ShapeAdvice
from extender.answers.defragmentation.defragment import MOVES, SECONDS, SearchBounds, defragment, why_not
from extender.cluster.live import connect
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.faces.assembly import make_solver
from extender.faces.commands.audit import listed
from extender.faces.commands.options import (
    ConfigOption,
    KubeconfigOptions,
    ManifestsOptions,
    PolicyOption,
    WideOutput,
    WideOutputOption,
    check_one_cluster,
    command,
)
from extender.faces.commands.output import FOUND_PROBLEMS, fail, first_of, note, print_result, say, warn
from extender.faces.commands.progress import Bar, shown_progress
from extender.faces.commands.reading import check_pod_name, settings_of, settings_on
from extender.faces.serving.memory import undisturbed
from extender.faces.simulation.cluster import Cluster
from extender.kube.api import ObjectKey
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.resources import RESOURCES
from extender.tools.logs import log_quietly
from extender.tools.table import TextTable

DEFRAGMENTED: Final = tuple(RESOURCES.values())
"""The kinds that a defragmentation reads."""

_MOST_NAMES: Final = 5
"""Pods that are named in one note."""


@command(
    "dra-extender defragment --context production",
    "dra-extender defragment cluster.yaml -o wide",
    "dra-extender defragment --pod team-a/trainer --max-moves 5 -o json",
    "kubectl get nodes,pods,pdb,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates -A -o yaml | "
    "dra-extender defragment -",
)
def defragment_command(
    *,
    manifests: ManifestsOptions,
    kubeconfig: KubeconfigOptions,
    config: ConfigOption = None,
    policy: PolicyOption = None,
    pod: Annotated[
        str, typer.Option(metavar="[NAMESPACE/]POD", help="Only for this pending pod, and those that ask for the same.")
    ] = "",
    max_moves: Annotated[
        int, typer.Option(metavar="N", min=1, max=16, help="The most pods that one proposal moves.")
    ] = MOVES,
    seconds: Annotated[float, typer.Option(metavar="N", min=0, help="The most time for the search.")] = SECONDS,
    output: WideOutputOption = WideOutput.TABLE,
) -> None:
    """Say which few pods to move, so that pending pods get devices that are free now in pieces. Nothing is written.

    Each proposal is tried out on a copy of the cluster: the moved pods find other nodes, and the pending pods get their
    devices. It is for the cluster as it is now, without the other proposals.

    The cluster is the one of the manifests, whose pending pods are scheduled first, or the live one.
    """
    check_one_cluster(manifests, kubeconfig)
    if pod:
        check_pod_name(pod)
    settings = settings_of(config, {"scheduling.policy": policy})
    log_quietly()
    problems: list[str] = []
    with shown_progress("reading manifests" if manifests else "reading the cluster") as bar:
        with undisturbed():
            if manifests:
                snapshot = _simulated(manifests, settings, problems, bar)
            else:
                snapshot, settings = asyncio.run(_read_live(find_origin(*kubeconfig, os.environ), settings))
        only = _key(pod, snapshot, settings) if pod else None
        advice = _advice(snapshot, settings, only, SearchBounds(max_moves, seconds), bar)
    say(*problems)
    _print(advice, only, output)
    if problems or (only is not None and not (advice.proposals or advice.fitting)):
        raise typer.Exit(FOUND_PROBLEMS)


def _simulated(paths: Sequence[Path], settings: Settings, problems: list[str], bar: Bar) -> Snapshot:
    """The cluster of some manifests after its pending pods were scheduled; problems of objects are added to a list."""
    cluster = Cluster.from_manifests(paths, settings=settings, refused=problems.append)
    cluster.schedule(progress=bar.advance)
    return cluster.snapshot


async def _read_live(origin: Origin, settings: Settings) -> tuple[Snapshot, Settings]:
    """The live cluster as it is now, and the settings with the feature gates of its API server."""
    async with connect(origin, random=random.random, listing=DEFRAGMENTED) as cluster:
        return await listed(cluster.api, DEFRAGMENTED, has_whole_pods=True), await settings_on(cluster.api, settings)


def _key(pod: str, snapshot: Snapshot, settings: Settings) -> ObjectKey:
    """The key of a pending pod; ends the command if the pod needs no advice."""
    namespace, _, name = pod.rpartition("/")
    key = ObjectKey(namespace or "default", name)
    if problem := why_not(key, snapshot, settings.scheduling.scheduler_names):
        if key not in snapshot.pods:
            note("pods that need no devices are not looked at")
        fail(problem)
    return key


def _advice(snapshot: Snapshot, settings: Settings, only: ObjectKey | None, bounds: SearchBounds, bar: Bar) -> Advice:
    names = settings.scheduling.scheduler_names
    progress = partial(bar.advance, what="searching moves for shapes of pods")
    try:
        return defragment(
            snapshot, make_solver(settings), only=only, bounds=bounds, schedulers=names, progress=progress
        )
    except TimeoutError:
        fail(f"{bounds.seconds:g} seconds were not enough to look at the pending pods: raise --seconds")


# --- output -------------------------------------------------------------------------------------------------


def _print(advice: Advice, only: ObjectKey | None, output: WideOutput) -> None:
    if not advice.shapes:
        note(_nothing_to_do(advice, only))
    print_result(
        output,
        names=lambda: (str(move.pod) for proposal in advice.proposals[:1] for move in proposal.moves),
        data=advice.as_json,
        table=lambda: _wide(advice) if output is WideOutput.WIDE else advice.table,
    )
    if output in {WideOutput.TABLE, WideOutput.WIDE} and advice.shapes:
        for each in advice.spared:
            note(f"not moved: {first_of(each.names, _MOST_NAMES)}: {each.reason}")
    if advice.unmodeled:
        warn(f"kube-scheduler also checks what is not looked at here: {', '.join(advice.unmodeled)}")


def _nothing_to_do(advice: Advice, only: ObjectKey | None) -> str:
    if only is not None:
        node = dict(advice.fitting).get(str(only), "")
        return f"pod {only} fits on node {node} without any move"
    if advice.fitting:
        return "every pending pod with devices fits without any move"
    return "no pod with devices is pending"


def _wide(advice: Advice) -> TextTable:
    """One line for each pod that makes room."""
    columns = ("pods", "ask for", "room on", "placed", "pod", "controller", "priority", "from", "to", "reason")
    return TextTable(columns, [row for each in advice.shapes for row in _rows(each)])


def _rows(advice: ShapeAdvice) -> Iterator[tuple[str, ...]]:
    for move in advice.proposal.moves if advice.proposal else ():
        pod = move.pod
        moved = (str(pod), str(pod.controller), str(pod.priority), pod.node_name, move.to or "(evicted)", "-")
        yield *advice.start, *moved
    if advice.proposal is None:
        yield *advice.start, "-", "-", "-", "-", "-", advice.reason
