"""The command line: `dra-extender`.

Results go to standard output: tables for people on a terminal, plain aligned text in a pipe, JSON when asked for.
Errors and logs go to standard error.
"""

import asyncio
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, NoReturn

import typer
from rich.console import Console

from allocator import JSON, printable_lines
from extender import __version__
from extender.assembly import make_solver, read_catalog
from extender.autoscaler.templates import TemplateError
from extender.cli.audit import AUDITED, audit_snapshot, finding_json, finding_table, listed_live
from extender.cli.explain import EXPLAINED, Answer, Inquiry, InquiryError, asked, explained
from extender.cli.options import (
    ConfigOption,
    ContextOption,
    ExplainOutput,
    ExplainOutputOption,
    KubeconfigOption,
    ManifestsOption,
    MorePathsArgument,
    Output,
    OutputOption,
    PathsArgument,
    PolicyOption,
    spread,
)
from extender.cli.simulate import Placement, explained_at_turn, overlooked, simulate
from extender.cli.streams import OutputError, give_up_output, open_standard_streams
from extender.config.settings import Settings
from extender.config.sources import SettingsError
from extender.config.sources import load as load_settings
from extender.config.text_file import UnreadableError, read_text
from extender.fakekube.cluster import EmbeddedCluster, check_expression
from extender.fakekube.manifests import FileReport, Loaded, duplicates, unauthorized
from extender.fakekube.manifests import load as load_manifests
from extender.kube.api import ApiError, ConnectError, ObjectKey, OutcomeUnknownError, Resource
from extender.kube.credentials import find_origin
from extender.observe.tables.terminal import Table, print_table
from extender.serving import run as serving
from extender.state.snapshot import Snapshot
from extender.tracing.tracing import TracingError, open_tracing

OK, FOUND_PROBLEMS, USAGE = 0, 1, 2

_EXIT_CODES = (
    "Exit codes: 0 success; 1 the manifests have errors, the audit finds a broken rule, the explained pod fits "
    "nowhere, or `config check` finds an invalid setting; "
    "2 the command line or a setting is invalid, a file cannot be read, or standard output cannot be written."
)

_MARKUP: Final[Literal["rich"] | None] = "rich" if sys.stdout and sys.stdout.isatty() else None
"""Boxes around help only on a terminal."""

app = typer.Typer(
    name="dra-extender",
    help=f"A kube-scheduler extender that owns Dynamic Resource Allocation.\n\n{_EXIT_CODES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
)
config_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=_MARKUP, help=f"Print or check the settings.\n\n{_EXIT_CODES}"
)
app.add_typer(config_app, name="config")


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of the console script."""
    open_standard_streams()
    try:
        try:
            app(args=spread(sys.argv[1:] if arguments is None else arguments, "--manifests", "-m"))
        finally:
            sys.stdout.flush()
    except OutputError as error:
        give_up_output()
        if not error.reader_has_gone:
            _say(str(error))
        sys.exit(USAGE)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"dra-extender {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


@app.command()
def serve(
    manifests: ManifestsOption = None,
    config: ConfigOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    policy: PolicyOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
) -> None:
    """Answer the calls of a kube-scheduler for a live cluster or, with --manifests, for a cluster in memory."""
    settings = _settings(config, {"server.host": host, "server.port": port, "scheduling.policy": policy})
    if manifests and (kubeconfig or context):
        _fail(
            "--manifests names a cluster in memory, --kubeconfig and --context name a live one: give only one of them"
        )
    try:
        tracing = open_tracing(settings.tracing, os.environ)
        if manifests:
            cluster = EmbeddedCluster(_load_new_cluster("serve", manifests).objects)
            opening = serving.embedded(cluster)
        else:
            opening = serving.live(find_origin(kubeconfig, context, os.environ), settings, tracing)
        serving.run(opening, settings, tracing)
    except (serving.ListenError, TracingError) as error:
        _fail(str(error))
    except (ConnectError, TemplateError) as error:
        _fail(*error.problems)


@app.command()
def validate(paths: PathsArgument, output: OutputOption = Output.TABLE) -> None:
    """Read manifests and print for each file what is used, what is skipped, and what is wrong."""
    loaded = _load(paths)
    if output is Output.JSON:
        _print_json([_report_json(report) for report in loaded.files])
    else:
        rows = [
            (str(report.path), _counts(report.used), _counts(report.skipped), str(len(report.problems)))
            for report in loaded.files
        ]
        print_table(Table(("file", "used", "skipped", "errors"), rows), _stdout())
    for twice in duplicates(loaded.objects):
        _warn(f"not for one cluster: {twice}")
    _warn(*unauthorized(loaded.objects))
    _refuse(loaded.problems)


@app.command(name="simulate")
def simulate_command(
    paths: MorePathsArgument = None,
    manifests: ManifestsOption = None,
    config: ConfigOption = None,
    policy: PolicyOption = None,
    explain: Annotated[
        str, typer.Option(metavar="[NAMESPACE/]POD", help="Schedule only the pods before this one, and explain it.")
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Schedule every pending pod of the manifests, oldest first, and print its node or why it has none.

    A node is rejected because of its devices, its taints, its labels, or what its device plugins have left, or because
    it is unschedulable. A warning names conditions of pods with devices that are ignored, such as CPU.
    """
    settings = _settings(config, {"scheduling.policy": policy})
    loaded = _load_new_cluster("simulate", [*(paths or ()), *(manifests or ())])
    if ignored := overlooked(loaded.objects):
        _warn(f"ignored: {', '.join(ignored)}")
    cluster, schedulers = EmbeddedCluster(loaded.objects), settings.scheduling.scheduler_names
    if explain:
        job = partial(explained_at_turn, pod=_pod_key(explain), schedulers=schedulers)
        try:
            _print_explanation(serving.run_once(cluster, settings, job), in_json=output is Output.JSON)
        except InquiryError as error:
            _fail(str(error))
        return
    placements = serving.run_once(cluster, settings, partial(simulate, schedulers=schedulers))
    if output is Output.JSON:
        _print_json([placement.as_json() for placement in placements])
    else:
        print_table(_placement_table(placements), _stdout())


@app.command(name="audit")
def audit_command(
    paths: MorePathsArgument = None,
    manifests: ManifestsOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Check the allocated claims of manifests or of a live cluster: which claims break which rule?"""
    given = [*(paths or ()), *(manifests or ())]
    if given and (kubeconfig or context):
        _fail("manifests name a cluster in memory, --kubeconfig and --context name a live one: give only one of them")
    if given:
        snapshot = EmbeddedCluster(_load_one_cluster("audit", given).objects).state.snapshot
    else:
        snapshot = _listed(kubeconfig, context)
    findings = audit_snapshot(snapshot)
    if output is Output.JSON:
        _print_json([finding_json(finding) for finding in findings])
    elif findings:
        print_table(finding_table(findings), _stdout())
    else:
        typer.echo("every rule holds")
    if findings:
        raise typer.Exit(FOUND_PROBLEMS)


@app.command(name="explain")
def explain_command(
    pod: Annotated[
        str, typer.Argument(metavar="[NAMESPACE/]POD", help="The pod; its namespace is default if none is given.")
    ],
    node: Annotated[list[str] | None, typer.Option(help="Explain this node only; can be repeated.")] = None,
    manifests: ManifestsOption = None,
    server: Annotated[str, typer.Option(metavar="URL", help="Ask a running service, e.g. http://127.0.0.1:8888.")] = "",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
    output: ExplainOutputOption = ExplainOutput.TEXT,
) -> None:
    """Explain where a pod fits and why; or why it fits nowhere, and what would help. Nothing is written.

    The cluster is the one of the manifests, of a running service (--server), or the live one. A service uses its own
    settings; without a service, settings come from the environment.
    """
    if sum((bool(manifests), bool(server), bool(kubeconfig or context))) > 1:
        _fail("--manifests, --server, and --kubeconfig or --context: only one of them")
    inquiry = Inquiry(_pod_key(pod), tuple(node) if node else None)
    try:
        if server:
            answer = asked(inquiry, server)
        else:
            settings = _settings(None, {})
            snapshot = _snapshot("explain", manifests) if manifests else _listed(kubeconfig, context, EXPLAINED)
            answer = explained(inquiry, snapshot, make_solver(settings), settings.scheduling.scheduler_names)
    except InquiryError as error:
        _fail(str(error))
    _print_explanation(answer, in_json=output is ExplainOutput.JSON)


@config_app.command("print")
def config_print(config: ConfigOption = None) -> None:
    """Print the settings from file and environment, as a settings file."""
    typer.echo(_settings(config, {}).as_yaml(), nl=False)


@config_app.command("check")
def config_check(config: ConfigOption = None) -> None:
    """Check the settings from file and environment, and the node templates that they name."""
    try:
        read_catalog(_read_settings(config, {}))
    except (SettingsError, TemplateError) as error:
        for problem in error.problems:
            _say(problem)
        raise typer.Exit(FOUND_PROBLEMS) from error
    typer.echo("the settings are valid")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"dra-extender {__version__}")


def _settings(config: Path | None, flags: dict[str, JSON]) -> Settings:
    try:
        return _read_settings(config, flags)
    except SettingsError as error:
        _fail(*error.problems)


def _read_settings(config: Path | None, flags: dict[str, JSON]) -> Settings:
    try:
        text = read_text(config) if config else None
    except UnreadableError as error:
        _fail(f"{config}: {error}")
    return load_settings(text, file=str(config), environment=os.environ, flags=flags)


def _load(paths: Sequence[Path]) -> Loaded:
    loaded = load_manifests(paths, check_expression)
    if loaded.unreadable:
        _fail(*loaded.unreadable)
    return loaded


def _load_one_cluster(command: str, paths: Sequence[Path]) -> Loaded:
    """The objects of one cluster: ends the command if any are invalid or appear twice."""
    if not paths:
        _fail(f"{command} needs PATH... or --manifests PATH...")
    loaded = _load(paths)
    _refuse(loaded.problems + duplicates(loaded.objects))
    return loaded


def _load_new_cluster(command: str, paths: Sequence[Path]) -> Loaded:
    """As `_load_one_cluster`; also ends the command if an API server would refuse a claim in its namespace."""
    loaded = _load_one_cluster(command, paths)
    _refuse(unauthorized(loaded.objects))
    return loaded


def _snapshot(command: str, paths: Sequence[Path]) -> Snapshot:
    """The cluster of manifests, once its controllers have settled."""
    loaded = _load_one_cluster(command, paths)
    _warn(*unauthorized(loaded.objects))
    cluster = EmbeddedCluster(loaded.objects)
    asyncio.run(cluster.settle())
    return cluster.state.snapshot


def _listed(kubeconfig: Path | None, context: str, resources: Collection[Resource] = AUDITED) -> Snapshot:
    """The live cluster as it is now."""
    try:
        return asyncio.run(listed_live(find_origin(kubeconfig, context, os.environ), resources))
    except ConnectError as error:
        _fail(*error.problems)
    except (ApiError, OutcomeUnknownError) as error:
        _fail(str(error))


def _pod_key(pod: str) -> ObjectKey:
    namespace, _, name = pod.rpartition("/")
    if not name or "/" in namespace:
        _fail(f"{pod}: expected POD or NAMESPACE/POD")
    return ObjectKey(namespace or "default", name)


def _refuse(problems: Collection[str]) -> None:
    for problem in problems:
        _say(problem)
    if problems:
        raise typer.Exit(FOUND_PROBLEMS)


def _counts(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "-"


def _report_json(report: FileReport) -> dict[str, object]:
    return {
        "file": str(report.path),
        "used": dict(report.used),
        "skipped": dict(report.skipped),
        "errors": [str(problem) for problem in report.problems],
    }


def _print_explanation(answer: Answer, *, in_json: bool) -> None:
    if in_json:
        _print_json(answer.document)
    else:
        typer.echo(answer.text, nl=False)
    if not answer.is_good:
        raise typer.Exit(FOUND_PROBLEMS)


def _placement_table(placements: Iterable[Placement]) -> Table:
    rows = [
        (placement.pod, placement.node or "-", placement.reason or ", ".join(map(str, placement.devices)) or "-")
        for placement in placements
    ]
    return Table(("pod", "node", "devices or reason"), rows)


def _stdout() -> Console:
    return Console(file=sys.stdout)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))  # in ASCII: fit for every terminal, and every text can be written


def _warn(*messages: str) -> None:
    for message in messages:
        typer.echo(f"warning: {printable_lines(message)}", err=True)


def _say(message: str) -> None:
    typer.echo(f"error: {printable_lines(message)}", err=True)


def _fail(*messages: str) -> NoReturn:
    for message in messages:
        _say(message)
    raise typer.Exit(USAGE)
