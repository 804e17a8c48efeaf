"""`dra-extender explain`: why a pod fits where it fits, or nowhere."""

import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer

from extender.assembly import make_solver
from extender.autoscaler.scale_up.suggested_nodes import SuggestedNodes
from extender.cli.answer import ExplanationJson, print_answer
from extender.cli.audit import listed
from extender.cli.messages import FOUND_PROBLEMS, fail, say, warn
from extender.cli.options import (
    CaCertOption,
    CertOption,
    ConfigOption,
    ContextOption,
    ExplainOutput,
    ExplainOutputOption,
    KeyOption,
    KubeconfigOption,
    ManifestsOption,
    TokenFileOption,
    command_app,
    examples,
)
from extender.cli.reading import check_pod_name, settings_of, settings_on
from extender.cli.remote import Remote, RemoteError
from extender.cluster.live.live_cluster import connect
from extender.cluster.objects.pods import parse_pod
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.decisions.solver import Solver
from extender.explain.claim_admission import read_admission
from extender.explain.document import as_json
from extender.explain.explain_claim import explain_claim, unknown_claim
from extender.explain.explain_pod import Explainer
from extender.explain.explanation import unknown_pod
from extender.kube.api import ObjectKey
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.errors import ApiError, ConnectError, OutcomeUnknownError
from extender.kube.raw import key_of
from extender.kube.resources import BUDGETS, PODS, RESOURCES
from extender.planning.templates.catalog import read_catalog
from extender.planning.templates.node_templates import TemplateError
from extender.simulation.cluster import Cluster, UnknownClaimError, UnknownPodError, UnreadableFilesError
from extender.tools.logs import log_quietly

_CLAIM: Final = "claim"

EXPLAINED: Final = tuple(resource for resource in RESOURCES.values() if resource != BUDGETS)
"""The kinds that an explanation reads."""

app = command_app()


class InquiryError(Exception):
    """There is no explanation; the text says why."""


@dataclass(frozen=True, slots=True)
class ExplainedObject:
    """The pod or the claim to explain, and on which nodes (None: all)."""

    pod: ObjectKey
    nodes: tuple[str, ...] | None = None
    is_claim: bool = False

    @property
    def path(self) -> str:
        """The path at a running service."""
        what = "claims/" if self.is_claim else ""
        return f"/explain/{quote(self.pod.namespace)}/{what}{quote(self.pod.name)}"


@app.command(
    epilog=examples(
        "dra-extender explain demo/training-3 -m config/example",
        "dra-extender explain -m nodes.yaml slices.yaml claims.yaml my-pod --node gpu-east-1",
        "dra-extender explain demo/training-3 --server http://127.0.0.1:8888 -o json",
        "dra-extender explain demo/training-3 --server https://localhost:8443 --cacert ca.crt --token-file token",
        "dra-extender explain team-a/trainer --context production",
        "dra-extender explain claim team-a/fpga --context production",
    )
)
def explain(
    pod: Annotated[
        str, typer.Argument(metavar="[NAMESPACE/]POD", help="The pod; its namespace is default if none is given.")
    ] = "",
    claim: Annotated[
        str, typer.Argument(metavar="[NAMESPACE/]CLAIM", help="After the word claim: explain this claim.")
    ] = "",
    node: Annotated[list[str] | None, typer.Option(help="Explain this node only; can be repeated.")] = None,
    manifests: ManifestsOption = None,
    config: ConfigOption = None,
    server: Annotated[str, typer.Option(metavar="URL", help="Ask a running service, e.g. http://127.0.0.1:8888.")] = "",
    token_file: TokenFileOption = None,
    cacert: CaCertOption = None,
    cert: CertOption = None,
    key: KeyOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: ExplainOutputOption = ExplainOutput.TEXT,
) -> None:
    """Explain where a pod fits and why; or why it fits nowhere, and what would help. Nothing is written.

    After the word claim, the same for a claim: what it holds, or where it can be allocated.

    An object of the manifests with errors is named and left out, and the exit code is 1.

    The cluster is the one of the manifests, of a running service (--server), or the live one. A service uses its own
    settings; else they come from --config and the environment. Over manifests, controllers are asked, too.
    """
    if sum((bool(manifests), bool(server), bool(kubeconfig or context))) > 1:
        fail("--manifests, --server, and --kubeconfig or --context: only one of them")
    remote = _checked(Remote(server, token_file, cacert, cert, key), config)
    inquiry, paths = _inquiry(pod, claim, manifests or [], node)
    log_quietly()
    problems: list[str] = []
    try:
        if server:
            answer = asked(inquiry, remote)
        elif paths:
            answer = explained_in(_cluster(paths, settings_of(config, {}), problems), inquiry)
        else:
            origin = find_origin(kubeconfig, context, os.environ)
            answer = asyncio.run(explained_live(origin, settings_of(config, {}), inquiry))
    except (InquiryError, ApiError, OutcomeUnknownError) as error:
        fail(*problems, str(error))
    except (ConnectError, TemplateError) as error:
        fail(*error.problems)
    say(*problems)
    print_answer(answer, output)
    if problems:
        raise typer.Exit(FOUND_PROBLEMS)


def _checked(remote: Remote, config: Path | None) -> Remote:
    """A running service. Without a URL, no other option for it may be given; with a URL, no settings."""
    if remote.url and config:
        fail("--config: a running service (--server) has its own settings")
    if not remote.url and remote != Remote(""):
        fail("--token-file, --cacert, --cert and --key are for --server")
    return remote


def _inquiry(pod: str, claim: str, values: list[Path], node: list[str] | None) -> tuple[ExplainedObject, list[Path]]:
    """What is to be explained, and the manifests. In ``-m PATH... claim CLAIM``, all are values of -m."""
    if claim and pod != _CLAIM:
        fail(f"explain {pod} {claim}: write explain claim {claim}, or name one pod")
    is_claim = bool(claim)
    if not pod and values[:-1] and str(values[-2]) == _CLAIM:
        is_claim, values = True, [*values[:-2], values[-1]]
    name, paths = _told_apart(claim or pod, values)
    check_pod_name(name)
    namespace, _, own = name.rpartition("/")
    return ExplainedObject(ObjectKey(namespace or "default", own), tuple(node) if node else None, is_claim), paths


def explained_in(cluster: Cluster, inquiry: ExplainedObject) -> ExplanationJson:
    """The explanation in a cluster in memory. Raises InquiryError: there is no such pod or claim."""
    try:
        explain = cluster.explain_claim if inquiry.is_claim else cluster.explain
        return ExplanationJson(as_json(explain(str(inquiry.pod), inquiry.nodes)))
    except (UnknownPodError, UnknownClaimError) as error:
        raise InquiryError(str(error)) from error


def _told_apart(pod: str, values: list[Path]) -> tuple[str, list[Path]]:
    """The pod and the manifests: in ``-m PATH... POD``, the pod is the last value of -m."""
    if pod:
        return pod, values
    if len(values) < 2 or values[-1].exists():
        fail("which pod? The command needs [NAMESPACE/]POD")
    return str(values[-1]), values[:-1]


def _cluster(paths: list[Path], settings: Settings, problems: list[str]) -> Cluster:
    """The cluster of some manifests; problems of objects, which are left out, are added to a list."""
    try:
        return Cluster.from_manifests(paths, settings=settings, refused=problems.append, warned=warn)
    except UnreadableFilesError as error:
        fail(*error.problems)


async def explained_live(origin: Origin, settings: Settings, inquiry: ExplainedObject) -> ExplanationJson:
    """The explanation of a pod of a live cluster as it is now.

    Raises:
        InquiryError: there is no such pod.
        TemplateError: the node templates of the settings cannot be used.
        ConnectError: there is no usable API server.
        ApiError, OutcomeUnknownError: the objects cannot be read.
    """
    async with connect(origin, random=random.random, listing=EXPLAINED) as cluster:
        snapshot = await listed(cluster.api, EXPLAINED)
        if inquiry.is_claim:
            solver = make_solver(await settings_on(cluster.api, settings))
            return _of_claim(inquiry, snapshot, solver)
        pod = snapshot.pods.get(inquiry.pod)
        if pod is None:  # A snapshot does not keep pods without devices.
            pods = {key_of(raw): raw for raw in (await cluster.api.list(PODS)).items}
            if inquiry.pod not in pods:
                raise InquiryError(unknown_pod(inquiry.pod, pods))
            pod = parse_pod(pods[inquiry.pod])
        admission = await read_admission(pod, snapshot, cluster.api)
        settings = await settings_on(cluster.api, settings)
    scheduling = settings.scheduling
    explainer = Explainer.alone(
        snapshot,
        make_solver(settings),
        scheduling.scheduler_names,
        preempts=scheduling.preemption,
        suggest=(SuggestedNodes(read_catalog(settings)),),  # PodDisruptionBudgets are not read, so no pod is to move
    )
    return ExplanationJson(as_json(explainer.explain(pod, inquiry.nodes, admission)))


def _of_claim(inquiry: ExplainedObject, snapshot: Snapshot, solver: Solver) -> ExplanationJson:
    found = snapshot.claims.get(inquiry.pod)
    if found is None:
        raise InquiryError(unknown_claim(inquiry.pod, snapshot.claims))
    return ExplanationJson(as_json(explain_claim(found, Explainer.alone(snapshot, solver), inquiry.nodes)))


def asked(inquiry: ExplainedObject, remote: Remote) -> ExplanationJson:
    """The explanation of a running service.

    Raises:
        InquiryError: the service cannot be asked, or does not answer.
    """
    try:
        document = remote.get(inquiry.path, {"node": inquiry.nodes or ()})
    except RemoteError as error:
        raise InquiryError(str(error)) from error
    if not {"verdict", "text"} <= document.keys():
        raise InquiryError(
            f"{remote.url.rstrip('/')}{inquiry.path}: status 200 and no explanation: is this a dra-extender?"
        )
    return ExplanationJson(document)
