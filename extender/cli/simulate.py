"""`dra-extender simulate`: gives the pending pods of manifests their nodes and devices."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from extender.cli.answer import ExplanationJson, print_answer
from extender.cli.messages import FOUND_PROBLEMS, fail, note, print_data, print_lines, say, stdout, warn
from extender.cli.options import (
    ConfigOption,
    ManifestsOption,
    MorePathsArgument,
    PictureOption,
    PlacementOutput,
    PlacementOutputOption,
    PolicyOption,
    command_app,
    examples,
)
from extender.cli.progress import shown_progress
from extender.cli.reading import check_given, check_pod_name, settings_of
from extender.config.settings import Settings
from extender.explain.document import as_json
from extender.observe.device_states import DeviceStates
from extender.observe.tables.terminal import TextTable, print_table
from extender.pictures.clusters import fleet_of
from extender.pictures.fleet import WaitingPod, fleet_picture
from extender.planning.templates.node_templates import TemplateError
from extender.serving.garbage import undisturbed
from extender.simulation.cluster import Cluster, UnknownPodError, UnreadableFilesError
from extender.simulation.placement import Placement
from extender.simulation.workloads.expand import Skipped
from extender.tools import logs

app = command_app()

_MOST_NAMES: Final = 10
"""The most names that a message has."""


@app.command(
    epilog=examples(
        "dra-extender simulate config/example",
        "dra-extender simulate cluster.yaml jobs.yaml --policy best-fit -o wide",
        "helm template . | dra-extender simulate cluster/ - --fail-on-pending",
        "dra-extender simulate config/example --picture devices.svg",
        "dra-extender simulate config/example --explain demo/training-3",
    )
)
def simulate(
    paths: MorePathsArgument = None,
    manifests: ManifestsOption = None,
    config: ConfigOption = None,
    policy: PolicyOption = None,
    explain: Annotated[
        str, typer.Option(metavar="[NAMESPACE/]POD", help="Schedule only the pods before this one, and explain it.")
    ] = "",
    output: PlacementOutputOption = PlacementOutput.TABLE,
    picture: PictureOption = None,
    *,
    fail_on_pending: Annotated[
        bool, typer.Option("--fail-on-pending", help="Exit with 1 if a pod stays pending.")
    ] = False,
) -> None:
    """Schedule the pending pods of the manifests by priority, then oldest first; print each node, or why there is none.

    Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs (one run) and JobSets get their pods first.

    A node is rejected because of its devices, its taints, its labels, or what its device plugins have left, or because
    it is unschedulable. A warning names conditions of pods with devices that are ignored, such as CPU. An object with
    errors is named and left out.
    """
    settings = settings_of(config, {"scheduling.policy": policy})
    given = [*(paths or ()), *(manifests or ())]
    check_given("simulate", given)
    if explain and picture:
        fail("--explain and --picture: only one of them")
    if explain:
        check_pod_name(explain)
    if settings.log.level == "debug":
        logs.configure(settings.log)
    problems: list[str] = []
    with shown_progress() as bar, undisturbed():
        cluster = _read(given, settings, problems)
        placements = () if explain else cluster.schedule(progress=bar.advance)
    _say_what_is_left_out(cluster, problems)
    if explain:
        _explain(cluster, explain, output)
    else:
        print_placements(cluster, placements, output)
        _say_who_may_preempt(cluster, placements)
        if picture:
            draw(cluster, placements, picture)
    is_pending = any(not placement.node for placement in placements)
    if problems or (fail_on_pending and is_pending):
        raise typer.Exit(FOUND_PROBLEMS)


def _read(paths: Sequence[Path], settings: Settings, problems: list[str]) -> Cluster:
    """The cluster of some manifests; problems of objects are added to a list."""
    try:
        return Cluster.from_manifests(paths, settings=settings, refused=problems.append)
    except UnreadableFilesError as error:
        fail(*error.problems)


def _say_what_is_left_out(cluster: Cluster, problems: Sequence[str]) -> None:
    """Not while the progress is shown: it would be written over."""
    say(*problems)
    if cluster.ignored:
        warn(f"ignored: {', '.join(cluster.ignored)}")
    say_skipped(cluster.skipped)


def say_skipped(skipped: Iterable[Skipped]) -> None:
    """Workloads that make no pods, each with the reason; and objects that a simulation has no use for, by kind."""
    unused: dict[str, list[str]] = {}
    for each in skipped:
        if each.reason:
            warn(f"skipped: {each}")
        else:
            unused.setdefault(each.kind, []).append(each.name)
    for kind, names in unused.items():
        note(f"skipped: {kind} {_listed(names)}")


def _say_who_may_preempt(cluster: Cluster, placements: Iterable[Placement]) -> None:
    """Pending pods for which a running dra-extender looks for victims; the simulation does not."""
    waiting = {placement.pod for placement in placements if placement.lacks_devices}
    pods = cluster.pods if waiting and cluster.settings.scheduling.preemption else ()
    holders = (pod for pod in pods if pod.node_name and pod.needs_devices and not pod.is_finished)
    least = min((pod.priority for pod in holders), default=None)
    candidates = [pod for pod in pods if str(pod) in waiting and pod.may_preempt and not pod.node_name]
    names = [str(pod) for pod in candidates if least is not None and pod.priority > least]
    if names:
        note(
            f"no pod was evicted, but dra-extender may evict pods of lower priority for {_listed(names)}; see --explain"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _explain(cluster: Cluster, pod: str, output: PlacementOutput) -> None:
    """Explain a pod at its turn."""
    try:
        cluster.schedule(before=pod)
        answer = ExplanationJson(as_json(cluster.explain(pod)))
    except UnknownPodError as error:
        fail(str(error))
    except TemplateError as error:
        fail(*error.problems)
    print_answer(answer, output)


def draw(cluster: Cluster, placements: Sequence[Placement], file: Path) -> None:
    """Write a picture of the nodes, their devices and pods; ends the command if the file cannot be written."""
    waiting = [WaitingPod(each.pod, each.reason) for each in placements if not each.node]
    states = DeviceStates(cluster.settings.features)
    found = fleet_picture(fleet_of(cluster.snapshot, states, "Devices after the simulation", waiting))
    try:
        file.write_bytes(found)
    except OSError as error:
        fail(f"{file}: {error.strerror}")


def print_placements(cluster: Cluster, placements: Sequence[Placement], output: PlacementOutput) -> None:
    """Print where pods go, or that there is nothing to do."""
    if not placements:
        note(_nothing_to_do(cluster))
    if output is PlacementOutput.NAME:
        print_lines(placement.pod for placement in placements)
    elif output in {PlacementOutput.JSON, PlacementOutput.YAML}:
        print_data([placement.as_json() for placement in placements], output)
    elif placements:
        print_table(_wide(placements) if output is PlacementOutput.WIDE else _table(placements), stdout())


def _nothing_to_do(cluster: Cluster) -> str:
    pods = cluster.pods
    bound = sum(bool(pod.node_name) for pod in pods)
    others = len(pods) - bound
    counts = [
        f"{count} {'is' if count == 1 else 'are'} {what}"
        for count, what in ((bound, "bound"), (others, "finished or being deleted"))
        if count
    ]
    found = f"of the pods, {' and '.join(counts)}" if counts else "the manifests have no pods"
    return f"there is nothing to schedule: {found}"


def _table(placements: Iterable[Placement]) -> TextTable:
    rows = [
        (placement.pod, placement.node or "-", placement.reason or ", ".join(_what(placement)) or "-")
        for placement in placements
    ]
    return TextTable(("pod", "node", "devices or reason"), rows)


def _what(placement: Placement) -> Iterator[str]:
    """The devices of a pod, and the optional requests that have none."""
    yield from map(str, placement.devices)
    yield from (f"without optional {each.request}" for each in placement.left_out)


def _wide(placements: Iterable[Placement]) -> TextTable:
    """One line for each device, and for each optional request without one."""
    rows = []
    for placement in placements:
        start = (placement.pod, placement.node or "-")
        rows += [(*start, each.claim, each.asked, str(each), "-") for each in placement.devices]
        rows += [(*start, each.claim, each.request, "-", "optional: left out") for each in placement.left_out]
        if not placement.devices and not placement.left_out:
            rows.append((*start, "-", "-", "-", placement.reason or "-"))
    return TextTable(("pod", "node", "claim", "request", "device", "reason"), rows)
