"""`simulate` of both programs: gives pending pods their nodes and devices, over manifests or in the live cluster."""

import asyncio
import random
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from extender.answers.explain.explanation import as_json
from extender.answers.observe.device_states import DeviceStates
from extender.answers.pictures import WaitingPod, fleet_of, fleet_picture
from extender.cluster.live import connect
from extender.config.settings import Settings
from extender.faces.commands.answer_source import ClusterPlaceOptions
from extender.faces.commands.explain import ExplanationJson, print_explanation
from extender.faces.commands.options import (
    ConfigOption,
    ManifestsOptions,
    PolicyOption,
    WideOutput,
    WideOutputOption,
    command,
    parse_path,
)
from extender.faces.commands.output import FOUND_PROBLEMS, fail, first_of, note, print_result, say, warn
from extender.faces.commands.progress import shown_progress
from extender.faces.commands.reading import (
    EXPLAINED,
    check_given,
    check_pod_name,
    manifests_of,
    settings_of,
    settings_on,
)
from extender.faces.serving.memory import undisturbed
from extender.faces.simulation.cluster import Cluster, UnknownPodError
from extender.faces.simulation.scheduling import Placement, Placements
from extender.faces.simulation.workloads import Skipped
from extender.kube.api import ApiError, RawObject
from extender.kube.connection.credentials import Origin
from extender.kube.resources import NAMESPACES, PRIORITY_CLASSES, QUOTAS
from extender.lab.manifests import ManifestObject
from extender.tools import logs
from extender.tools.table import TextTable

_MOST_NAMES: Final = 10
"""The most names that a message has."""

PictureOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.svg", parser=parse_path, help="Draw the nodes with their devices and pods."),
]


@command(
    "dra-extender simulate config/example",
    "dra-extender simulate cluster.yaml jobs.yaml --policy best-fit -o wide",
    "helm template . | dra-extender simulate cluster/ - --fail-on-pending",
    "dra-extender simulate config/example --picture devices.svg",
    "dra-extender simulate config/example --explain demo/training-3",
)
def simulate(
    *,
    manifests: ManifestsOptions,
    config: ConfigOption = None,
    policy: PolicyOption = None,
    explain: Annotated[
        str, typer.Option(metavar="[NAMESPACE/]POD", help="Schedule only the pods before this one, and explain it.")
    ] = "",
    output: WideOutputOption = WideOutput.TABLE,
    picture: PictureOption = None,
    fail_on_pending: Annotated[
        bool, typer.Option("--fail-on-pending", help="Exit with 1 if a pod stays pending.")
    ] = False,
) -> None:
    """Schedule the pending pods of the manifests by priority, then oldest first; print each node, or why there is none.

    Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs (one run) and JobSets get their pods first.

    A node is rejected because of its devices, or for one of kube-scheduler's own reasons, such as taints, CPU, or
    affinity between pods. A warning names the pods with devices whose volumes are ignored. An object with errors is
    named and left out.
    """
    settings = settings_of(config, {"scheduling.policy": policy})
    check_given("simulate", manifests)
    if explain and picture:
        fail("--explain and --picture: only one of them")
    if explain:
        check_pod_name(explain)
    if settings.log.level == "debug":
        logs.configure(settings.log)
    problems: list[str] = []
    with shown_progress() as bar, undisturbed():
        cluster = Cluster.from_manifests(manifests, settings=settings, refused=problems.append)
        placements = () if explain else cluster.schedule(progress=bar.advance)
    _say_what_is_left_out(cluster, problems)
    if explain:
        _explain(cluster, explain, output)
    else:
        _print_placements(cluster, placements, output)
        _say_who_may_preempt(cluster, placements, "--explain")
        if picture:
            _draw(cluster, placements, picture)
        _say_summary(placements, output)
    is_pending = any(not placement.node for placement in placements)
    if problems or (fail_on_pending and is_pending):
        raise typer.Exit(FOUND_PROBLEMS)


@command("kubectl dra simulate -f job.yaml", "helm template . | kubectl dra simulate -f -")
def simulate_live(
    *,
    filename: Annotated[
        list[Path],
        typer.Option(
            "--filename", "-f", metavar="PATH", help="A file or a folder; - is standard input. Can be repeated."
        ),
    ],
    fail_on_pending: Annotated[
        bool, typer.Option("--fail-on-pending", help="Exit with 1 if a pod of the manifests stays pending.")
    ] = False,
    output: WideOutputOption = WideOutput.TABLE,
    picture: PictureOption = None,
    place: ClusterPlaceOptions,
) -> None:
    """Where the pods of manifests would get a node and devices in this cluster. Nothing is written.

    The pending pods of the cluster have their turn by priority and age, as in the scheduler. An object of the
    manifests that the cluster has already is not read: the one of the cluster counts. What kube-scheduler checks
    counts, except volumes. The settings of dra-extender are those of --config.
    """
    logs.log_quietly()
    namespace = place.namespace
    loaded = manifests_of(filename, namespace)
    problems = list(loaded.problems)
    objects, settings = asyncio.run(_listed(place.origin, place.settings))
    cluster, there = _in_memory(objects, settings)
    known = {str(pod) for pod in cluster.pods}
    cluster.add(*_missing_in_cluster(loaded.documents, there, namespace), refused=problems.append)
    with shown_progress() as bar:
        placements = cluster.schedule(progress=bar.advance)
    say(*problems)
    _say_skipped(cluster.skipped)
    ours = [each for each in placements if each.pod not in known]
    _note_others([each for each in placements if each.pod in known])
    if ours:
        _print_placements(cluster, ours, output)
        _say_who_may_preempt(cluster, ours, "kubectl dra what-if")
    else:
        note("the manifests bring no pod that the cluster does not have")
    if picture:
        _draw(cluster, placements, picture)
    _say_summary(ours, output)
    if problems or (fail_on_pending and any(not each.node for each in ours)):
        raise typer.Exit(FOUND_PROBLEMS)


def _say_what_is_left_out(cluster: Cluster, problems: Sequence[str]) -> None:
    """Not while the progress is shown: it would be written over."""
    say(*problems)
    if cluster.ignored:
        warn(f"ignored: {', '.join(cluster.ignored)}")
    _say_skipped(cluster.skipped)
    if freed := [str(each) for each in cluster.freed]:
        whose = "1 claim gave its" if len(freed) == 1 else f"{len(freed)} claims gave their"
        note(f"{whose} devices back, reserved for no pod of the manifests: {first_of(freed, _MOST_NAMES)}")


def _say_skipped(skipped: Iterable[Skipped]) -> None:
    """Workloads that make no pods, each with the reason; and objects that a simulation has no use for, by kind."""
    unused: dict[str, list[str]] = {}
    for each in skipped:
        if each.reason:
            warn(f"skipped: {each}")
        else:
            unused.setdefault(each.kind, []).append(each.name)
    for kind, names in unused.items():
        note(f"skipped: {kind} {first_of(names, _MOST_NAMES)}")


def _say_who_may_preempt(cluster: Cluster, placements: Iterable[Placement], further: str) -> None:
    """Pending pods for which a running dra-extender looks for victims; the simulation does not."""
    waiting = {placement.pod for placement in placements if placement.lacks_devices}
    pods = cluster.pods if waiting and cluster.settings.scheduling.preemption else ()
    holders = (pod for pod in pods if pod.node_name and pod.needs_devices and not pod.is_finished)
    least = min((pod.priority for pod in holders), default=None)
    never = cluster.snapshot.never_preempts
    candidates = [pod for pod in pods if str(pod) in waiting and not pod.node_name and not never(pod)]
    names = [str(pod) for pod in candidates if least is not None and pod.priority > least]
    if names:
        waiting_names = first_of(names, _MOST_NAMES)
        note(
            f"no pod was evicted, but dra-extender may evict pods of lower priority for {waiting_names}; see {further}"
        )


def _explain(cluster: Cluster, pod: str, output: WideOutput) -> None:
    """Explain a pod at its turn."""
    try:
        cluster.schedule(before=pod)
        answer = ExplanationJson(as_json(cluster.explain(pod)))
    except UnknownPodError as error:
        fail(str(error))
    print_explanation(answer, output)


def _draw(cluster: Cluster, placements: Sequence[Placement], file: Path) -> None:
    """Write a picture of the nodes, their devices and pods; ends the command if the file cannot be written."""
    waiting = [WaitingPod(each.pod, each.reason) for each in placements if not each.node]
    states = DeviceStates(cluster.settings.features)
    found = fleet_picture(fleet_of(cluster.snapshot, states, "Devices after the simulation", waiting))
    try:
        file.write_bytes(found)
    except OSError as error:
        fail(f"{file}: {error.strerror}")


def _print_placements(cluster: Cluster, placements: Sequence[Placement], output: WideOutput) -> None:
    """Print where pods go, or that there is nothing to do."""
    if not placements:
        note(_nothing_to_do(cluster))
    print_result(
        output,
        names=lambda: (placement.pod for placement in placements),
        data=lambda: [placement.as_json() for placement in placements],
        table=lambda: _wide(placements) if output is WideOutput.WIDE else Placements(placements).table,
    )


def _say_summary(placements: Collection[Placement], output: WideOutput) -> None:
    """Say at the end of a table what came out. Programs count for themselves."""
    if placements and output in (WideOutput.TABLE, WideOutput.WIDE):
        note(Placements(placements).summary)


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


# --- the live cluster ----------------------------------------------------------------------------------------


def _in_memory(objects: Sequence[RawObject], settings: Settings) -> tuple[Cluster, Collection[tuple[str, str, str]]]:
    """The live cluster in memory, and kind, namespace and name of each of its objects."""
    left_out: list[str] = []
    cluster = Cluster.from_objects(objects, settings=settings, refused=left_out.append)
    if left_out:
        note(f"objects of the cluster that cannot be used are left out: {'; '.join(left_out)}")
    return cluster, {_identity(each) for each in objects}


async def _listed(origin: Origin, settings: Settings) -> tuple[list[RawObject], Settings]:
    """The objects that decide about devices, and the settings with the feature gates of the API server.

    Raises:
        ConnectError: there is no usable API server, or a right is missing.
        ApiError, OutcomeUnknownError: objects cannot be read.
    """
    objects: list[RawObject] = []
    async with connect(origin, random=random.random, listing=EXPLAINED) as cluster:
        for resource in (*EXPLAINED, NAMESPACES, PRIORITY_CLASSES, QUOTAS):
            if resource.kind not in cluster.api.served.versions:
                continue
            try:
                objects += (await cluster.api.list(resource)).items
            except ApiError as error:
                if resource in EXPLAINED:
                    raise
                note(f"{resource.plural} are not considered: {error}")
        return objects, await settings_on(cluster.api, settings)


def _missing_in_cluster(
    documents: Sequence[ManifestObject], there: Collection[tuple[str, str, str]], namespace: str
) -> list[dict[str, Any]]:
    """The objects that the cluster does not have; those without a namespace get that of the command, as in kubectl."""
    found = []
    for each in documents:
        metadata: Any = each.data.get("metadata") or {}
        own = {} if each.is_used else {"namespace": namespace}  # of workloads, the reader completes nothing
        data = {**each.data, "metadata": {**own, **metadata}}
        if _identity(data) in there:
            note(f"{each} exists already: the one of the cluster counts")
        else:
            found.append(data)
    return found


def _identity(obj: RawObject) -> tuple[str, str, str]:
    metadata = obj.get("metadata") or {}
    return str(obj.get("kind")), metadata.get("namespace") or "", metadata.get("name") or ""


def _note_others(placements: Sequence[Placement]) -> None:
    if placements:
        placed = sum(bool(each.node) for each in placements)
        note(f"of {len(placements)} pending pods of the cluster, {placed} get a node in the simulation")
