"""`explain` of both programs, and `kubectl dra why-not`: why a pod fits where it fits, or nowhere."""

import asyncio
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from allocator.tools import printable
from extender.answers.explain.explainer import Explainer, explain_claim, unknown_claim
from extender.answers.explain.explanation import Conclusion, as_json, unknown_pod
from extender.answers.explain.pod_claims import read_admission
from extender.autoscaler.scale_up.new_nodes import SuggestedNodes
from extender.cluster.cluster_state import ClusterState
from extender.cluster.live import connect
from extender.cluster.objects.claims import ClaimObject
from extender.cluster.objects.pods import Pod, parse_whole_pod
from extender.cluster.snapshot import Snapshot
from extender.config.settings import Settings
from extender.faces.assembly import Surroundings, make_extender, make_solver
from extender.faces.commands.answer_source import AnswerSource, NamedPlaceOptions, Place, SourceError, run
from extender.faces.commands.audit import listed_state
from extender.faces.commands.options import (
    ConfigOption,
    ExplainOutput,
    ExplainOutputOption,
    KubeconfigOptions,
    ManifestsOption,
    command,
)
from extender.faces.commands.output import FOUND_PROBLEMS, fail, print_data, say, warn
from extender.faces.commands.own_namespace import told_in_namespace
from extender.faces.commands.reading import EXPLAINED, check_pod_name, settings_of, settings_on
from extender.faces.commands.remote import Remote, RemoteError, RemoteOptions
from extender.faces.simulation.cluster import Cluster, UnknownClaimError, UnknownPodError
from extender.framework.decisions.solver import Solver
from extender.framework.pods.claims import stand_in
from extender.kube.api import Api, ConnectError, ObjectKey, key_of
from extender.kube.connection.credentials import Origin, find_origin
from extender.kube.resources import PODS
from extender.planning.templates import read_catalog
from extender.tools.logs import log_quietly
from extender.tools.user_error import UserError

_CLAIM_WORDS: Final = frozenset({"claim", "claims", "resourceclaim", "resourceclaims"})
_POD_WORDS: Final = frozenset({"pod", "pods", "po"})
_KIND_WORDS: Final = _CLAIM_WORDS | _POD_WORDS

_GOOD: Final = frozenset(
    {Conclusion.FITS.value, Conclusion.BOUND.value, Conclusion.NEEDS_NOTHING.value, Conclusion.ALLOCATED.value}
)


@dataclass(frozen=True, slots=True)
class ExplanationJson:
    """An explanation as JSON."""

    document: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The text for people, made printable: the service may send any characters."""
        return "\n".join(map(printable, str(self.document["text"]).split("\n")))

    @property
    def is_good(self) -> bool:
        """The pod is bound, fits on a node, or needs no devices; the claim is allocated, or fits on a node."""
        return self.document["verdict"] in _GOOD


def print_explanation(answer: ExplanationJson, form: StrEnum) -> None:
    """Print an explanation; ends the command with 1 if the pod fits nowhere."""
    if form.value in {"json", "yaml"}:
        print_data(answer.document, form)
    else:
        typer.echo(answer.text, nl=False)
    if not answer.is_good:
        raise typer.Exit(FOUND_PROBLEMS)


class InquiryError(UserError):
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
        return f"/explain/{quote(self.pod.namespace, safe='')}/{what}{quote(self.pod.name, safe='')}"


@command(
    "dra-extender explain demo/training-3 -m config/example",
    "dra-extender explain -m nodes.yaml slices.yaml claims.yaml my-pod --node gpu-east-1",
    "dra-extender explain demo/training-3 --server http://127.0.0.1:8888 -o json",
    "dra-extender explain demo/training-3 --server https://localhost:8443 --cacert ca.crt --token-file token",
    "dra-extender explain team-a/trainer --context production",
    "dra-extender explain claim/team-a/fpga --context production",
)
def explain(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[TYPE/][NAMESPACE/]NAME",
            help="A pod, or claim/NAME; its namespace is default if none is given. pod/claim/NAME is a pod in a "
            "namespace that is called claim.",
        ),
    ] = "",
    own: Annotated[str, typer.Argument(metavar="[NAMESPACE/]NAME", help="The name, after the word claim or pod.")] = "",
    node: Annotated[list[str] | None, typer.Option(help="Explain this node only; can be repeated.")] = None,
    manifests: ManifestsOption = None,
    config: ConfigOption = None,
    server: Annotated[str, typer.Option(metavar="URL", help="Ask a running service, e.g. http://127.0.0.1:8888.")] = "",
    remote: RemoteOptions,
    kubeconfig: KubeconfigOptions,
    output: ExplainOutputOption = ExplainOutput.TEXT,
) -> None:
    """Explain where a pod fits and why; or why it fits nowhere, and what would help. Nothing is written.

    For a claim: what it holds, or where it can be allocated.

    An object of the manifests with errors is named and left out, and the exit code is 1.

    The cluster is the one of the manifests, of a running service (--server), or the live one. A service uses its own
    settings; else they come from --config and the environment. Controllers of the settings are asked, also without a
    service: those at a URL. What others have written into PodSchedulingContexts counts, and nothing is written.
    """
    _refuse_several_clusters(kubeconfig, server=server, has_manifests=bool(manifests), has_config=bool(config))
    remote = remote.at(server)
    inquiry, paths = _inquiry([each for each in (name, own) if each], manifests or [], node)
    log_quietly()
    problems: list[str] = []
    try:
        if server:
            answer = asked(inquiry, remote)
        elif paths:
            cluster = Cluster.from_manifests(paths, settings=settings_of(config), refused=problems.append, warned=warn)
            answer = explained_in(cluster, inquiry)
        else:
            origin = find_origin(*kubeconfig, os.environ)
            answer = asyncio.run(explained_live(origin, settings_of(config), inquiry))
    finally:
        say(*problems)
    print_explanation(answer, output)
    if problems:
        raise typer.Exit(FOUND_PROBLEMS)


def _refuse_several_clusters(
    kubeconfig: KubeconfigOptions, *, server: str, has_manifests: bool, has_config: bool
) -> None:
    """Refuse options that name more than one cluster, or settings that would not count."""
    if sum((has_manifests, bool(server), kubeconfig.is_given)) > 1:
        fail("--manifests, --server, and --kubeconfig or --context: only one of them")
    if server and has_config:
        fail("--config: a running service (--server) has its own settings")


@command("kubectl dra explain training-3 -n demo", "kubectl dra explain claim/fpga -n demo")
def explain_at_place(
    *,
    name: Annotated[str, typer.Argument(metavar="[TYPE/]NAME", help="A pod, or claim/NAME.")],
    own: Annotated[str, typer.Argument(metavar="NAME", help="The name, after the word claim or pod.")] = "",
    node: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Explain this node only; can be repeated.")
    ] = None,
    output: ExplainOutputOption = ExplainOutput.TEXT,
    place: NamedPlaceOptions,
) -> None:
    """Where a pod or a claim fits and why; or why it fits nowhere, and what would help."""
    _explain(place, [each for each in (name, own) if each], node or (), output)


@command("kubectl dra why-not gpu-east-1 training-3 -n demo")
def why_not(
    *,
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node.")],
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod.")],
    output: ExplainOutputOption = ExplainOutput.TEXT,
    place: NamedPlaceOptions,
) -> None:
    """Why a pod does not fit on one node, device for device, and what would help there."""
    _explain(place, [pod], (node,), output)


def _inquiry(words: list[str], values: list[Path], node: list[str] | None) -> tuple[ExplainedObject, list[Path]]:
    """What is to be explained, and the manifests. In ``-m PATH... claim CLAIM``, all are values of -m."""
    if not words:
        at = -2 if values[-2:-1] and str(values[-2]).lower() in _KIND_WORDS and not values[-2].exists() else -1
        words, values = [*map(str, values[at:])], values[:at]
        if not values or not words or Path(words[-1]).exists():
            fail("which pod? The command needs [NAMESPACE/]POD")
    is_claim, name = _named(words)
    check_pod_name(name)
    namespace, _, own = name.rpartition("/")
    return ExplainedObject(ObjectKey(namespace or "default", own), tuple(node) if node else None, is_claim), values


def _named(words: Sequence[str]) -> tuple[bool, str]:
    """Whether ``TYPE NAME``, ``TYPE/NAME`` or ``NAME`` means a claim, and the name."""
    kind, _, name = words[0].partition("/") if len(words) == 1 else (words[0], "", words[1])
    if kind.lower() in _KIND_WORDS and name:
        return kind.lower() in _CLAIM_WORDS, name
    if len(words) > 1:
        fail(f"explain {' '.join(words)}: write explain claim {name}, or name one pod")
    return False, words[0]


def explained_in(cluster: Cluster, inquiry: ExplainedObject) -> ExplanationJson:
    """The explanation in a cluster in memory. Raises InquiryError: there is no such pod or claim."""
    try:
        explain = cluster.explain_claim if inquiry.is_claim else cluster.explain
        return ExplanationJson(as_json(explain(str(inquiry.pod), inquiry.nodes)))
    except (UnknownPodError, UnknownClaimError) as error:
        raise InquiryError(str(error)) from error


async def explained_live(origin: Origin, settings: Settings, inquiry: ExplainedObject) -> ExplanationJson:
    """The explanation of a pod of a live cluster as it is now.

    Raises:
        InquiryError: there is no such pod.
        TemplateError: the node templates of the settings cannot be used.
        ConnectError: there is no usable API server.
        ApiError, OutcomeUnknownError: the objects cannot be read.
    """
    async with connect(origin, random=random.random, listing=EXPLAINED) as cluster:
        state = await listed_state(cluster.api, EXPLAINED, has_whole_pods=True)
        settings = await settings_on(cluster.api, settings)
        solver = make_solver(settings)
        if inquiry.is_claim:
            claim = _claim_of(inquiry, state.snapshot)
            await _ask_controllers(stand_in(claim.claim), cluster.api, state, solver, settings)
            explainer = Explainer.alone(state.snapshot, solver)
            return ExplanationJson(as_json(explain_claim(claim, explainer, inquiry.nodes)))
        pod = state.snapshot.pods.get(inquiry.pod) or await _plain(inquiry, cluster.api)
        admission = await read_admission(pod, state.snapshot, cluster.api)
        await _ask_controllers(pod, cluster.api, state, solver, settings)
    scheduling = settings.scheduling
    explainer = Explainer.alone(
        state.snapshot,
        solver,
        scheduling.scheduler_names,
        preempts=scheduling.preemption,
        suggest=(SuggestedNodes(read_catalog(settings)),),  # PodDisruptionBudgets are not read, so no pod is to move
    )
    return ExplanationJson(as_json(explainer.explain(pod, inquiry.nodes, admission)))


async def _plain(inquiry: ExplainedObject, api: Api) -> Pod:
    """A pod without devices, which a snapshot does not keep. Raises InquiryError: there is no such pod."""
    pods = {key_of(raw): raw for raw in (await api.list(PODS)).items}
    if inquiry.pod not in pods:
        raise InquiryError(unknown_pod(inquiry.pod, pods))
    return parse_whole_pod(pods[inquiry.pod])


async def _ask_controllers(pod: Pod, api: Api, state: ClusterState, solver: Solver, settings: Settings) -> None:
    """Ask the controllers of the settings about all nodes for a pod or a stand-in; the state has their answers then."""
    if not state.snapshot.controllers:
        return
    extender = make_extender(api, state, solver, settings, around=Surroundings(simulation=True))
    try:
        await extender.negotiation.look(pod)
    finally:
        await extender.service.close()


def _claim_of(inquiry: ExplainedObject, snapshot: Snapshot) -> ClaimObject:
    """The claim to explain. Raises InquiryError: there is no such claim."""
    found = snapshot.claims.get(inquiry.pod)
    if found is None:
        raise InquiryError(unknown_claim(inquiry.pod, snapshot.claims.values()))
    return found


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


def _explain(place: Place, words: Sequence[str], nodes: Sequence[str], output: ExplainOutput) -> None:
    is_claim, name = _named(words)
    if "/" in name or not name:
        fail(f"{'/'.join(words)}: expected POD, pod/POD or claim/CLAIM; the namespace is the option -n")
    key = ObjectKey(place.namespace, name)
    path = ExplainedObject(key, is_claim=is_claim).path

    async def ask(source: AnswerSource) -> Mapping[str, Any]:
        document = await source.get(path, {"node": nodes} if nodes else {})
        if not {"verdict", "text"} <= document.keys():
            raise RemoteError(f"{source.name}: {path}: no explanation: is this a dra-extender?")
        return document

    try:
        document = run(place, ask)
    except SourceError as error:
        if place.origin is None or nodes:
            raise
        told = told_in_namespace(place.origin, key, is_claim=is_claim, unseen=error.problems)
        try:
            document = asyncio.run(told)
        except ConnectError:
            raise error from None
    print_explanation(ExplanationJson(document), output)
