"""`kubectl dra simulate`: where the pods of manifests would go in the live cluster. Nothing is written."""

import asyncio
import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from extender.cli.explain import EXPLAINED
from extender.cli.messages import FOUND_PROBLEMS, fail, note, say
from extender.cli.options import PictureOption, PlacementOutput, PlacementOutputOption, examples
from extender.cli.progress import shown_progress
from extender.cli.reading import manifests_of, settings_on
from extender.cli.simulate import draw, print_placements, say_skipped
from extender.cluster.live.live_cluster import connect
from extender.config.settings import Settings
from extender.fakekube.manifests import ManifestObject
from extender.kube.api import RawObject
from extender.kube.connection.credentials import Origin
from extender.kube.errors import ApiError, ConnectError, OutcomeUnknownError
from extender.kube.resources import NAMESPACES, QUOTAS
from extender.kubectl.place import Place, at_place
from extender.simulation.cluster import Cluster
from extender.simulation.placement import Placement
from extender.tools.logs import log_quietly


@at_place
def simulate(
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
    output: PlacementOutputOption = PlacementOutput.TABLE,
    picture: PictureOption = None,
    place: Place,
) -> None:
    """Where the pods of manifests would get a node and devices in this cluster. Nothing is written.

    The pending pods of the cluster have their turn by priority and age, as in the scheduler. An object of the
    manifests that the cluster has already is not read: the one of the cluster counts. CPU, memory and volumes are
    ignored. The settings of dra-extender are those of --config.
    """
    if place.origin is None:
        fail("simulate reads the objects of the API server: leave out --server")
    log_quietly()
    namespace = place.named("an object of the manifests without a namespace")
    loaded = manifests_of(filename, namespace)
    problems = list(loaded.problems)
    cluster, there = _live(place.origin, place.settings)
    known = {str(pod) for pod in cluster.pods}
    cluster.add(*_new(loaded.documents, there, namespace), refused=problems.append)
    with shown_progress() as bar:
        placements = cluster.schedule(progress=bar.advance)
    say(*problems)
    say_skipped(cluster.skipped)
    ours = [each for each in placements if each.pod not in known]
    _note_others([each for each in placements if each.pod in known])
    if ours:
        print_placements(cluster, ours, output)
    else:
        note("the manifests bring no pod that the cluster does not have")
    if picture:
        draw(cluster, placements, picture)
    if problems or (fail_on_pending and any(not each.node for each in ours)):
        raise typer.Exit(FOUND_PROBLEMS)


def add_command(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command(epilog=examples("kubectl dra simulate -f job.yaml", "helm template . | kubectl dra simulate -f -"))(
        simulate
    )


def _live(origin: Origin, settings: Settings) -> tuple[Cluster, Collection[tuple[str, str, str]]]:
    """The live cluster in memory, and kind, namespace and name of each of its objects."""
    try:
        objects, settings = asyncio.run(_listed(origin, settings))
    except ConnectError as error:
        fail(*error.problems)
    except (ApiError, OutcomeUnknownError) as error:
        fail(str(error))
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
        for resource in (*EXPLAINED, NAMESPACES, QUOTAS):
            if resource.kind not in cluster.api.served.versions:
                continue
            try:
                objects += (await cluster.api.list(resource)).items
            except ApiError as error:
                if resource in EXPLAINED:
                    raise
                note(f"{resource.plural} are not considered: {error}")
        return objects, await settings_on(cluster.api, settings)


def _new(
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
