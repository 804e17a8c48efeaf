"""Plays a Cluster Autoscaler: pods that wait and node groups in, the scale-up plan out.

``python -m loadtest.autoscaler --url http://127.0.0.1:8888 PATH...`` reads manifests (Nodes that are there, Pods that
wait, and ``nodeGroups``), and asks a running service, in one session: each pod is booked on the best of the nodes that
are there; for the rest a plan is made. Nothing is changed, neither in the cluster nor in what scales it.
"""

import argparse
import ssl
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
from rich.console import Console
from rich.progress import Progress

from extender.client import TIMEOUT_SECONDS, AutoscalerClient, AutoscalerError, NodeGroup, Plan, Session
from extender.tools.table import TextTable, print_table
from extender.tools.yamltext import SyntaxProblem, documents

RawObject: TypeAlias = Mapping[str, Any]


class InputError(Exception):
    """A file that can't be used."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What an autoscaler knows: nodes that are there, pods that wait, groups that can grow."""

    nodes: tuple[RawObject, ...]
    pods: tuple[RawObject, ...]
    groups: tuple[NodeGroup, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Pods that fit on nodes that are there (namespace/name to node), and the plan for the rest."""

    placed: Mapping[str, str]
    plan: Plan


def read(paths: Iterable[Path]) -> Situation:
    """The situation in some files; of folders all YAML files are read, by name.

    Raises:
        InputError: a file that can't be read, or a node group that lacks something.
    """
    nodes, pods, groups = [], [], []
    for document in (each for path in paths for file in _files(path) for each in _documents(file)):
        match document.get("kind"):
            case "Node":
                nodes.append(document)
            case "Pod":
                pods.append(document)
            case _:
                groups += [_group(entry) for entry in document.get("nodeGroups") or ()]
    return Situation(tuple(nodes), tuple(pods), tuple(groups))


def scale_up(session: Session, situation: Situation, expander: str, progress: Progress) -> Outcome:
    """Book what fits, and ask for a plan for the rest.

    Raises:
        AutoscalerError: the service refuses, or is not there.
    """
    placed: dict[str, str] = {}
    waiting = []
    for pod in progress.track(situation.pods, description="Pods on nodes that are there"):
        node = _best(session, pod, situation.nodes)
        if node is None:
            waiting.append(pod)
        else:
            session.book(pod, node)
            placed[_name(pod)] = node["metadata"]["name"]
    task = progress.add_task(f"A plan for {len(waiting)} pods and {len(situation.groups)} node groups", total=None)
    plan = session.estimate(waiting, situation.groups, expander=expander)
    progress.update(task, total=1, completed=1)
    return Outcome(placed, plan)


def tables(outcome: Outcome) -> tuple[TextTable, TextTable]:
    """Which groups grow, and where each pod goes."""
    groups = [(each.group, str(len(each.nodes)), each.devices or "-") for each in outcome.plan.groups]
    return (
        TextTable(("node group", "add", "what its nodes bring"), groups),
        TextTable(("pod", "node or reason"), list(_pod_rows(outcome))),
    )


def _pod_rows(outcome: Outcome) -> Iterator[tuple[str, str]]:
    yield from outcome.placed.items()
    for group in outcome.plan.groups:
        for number, pods in enumerate(group.nodes, start=1):
            yield from ((pod, f"new {group.group} {number}") for pod in pods)
    for pod, reason in outcome.plan.failed.items():
        yield pod, f"no group helps: {reason}"


def _best(session: Session, pod: RawObject, nodes: Sequence[RawObject]) -> RawObject | None:
    """The node with the highest score; None if none will do."""
    passed = set(session.filter(pod, nodes).passed)
    candidates = [node for node in nodes if node["metadata"]["name"] in passed]
    if not candidates:
        return None
    scores = session.prioritize(pod, candidates)
    return max(candidates, key=lambda node: scores[node["metadata"]["name"]])


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.yaml")) if path.is_dir() else [path]


def _documents(file: Path) -> Iterator[RawObject]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    for document in documents(text, is_json=file.suffix == ".json"):
        if isinstance(document, SyntaxProblem):
            raise InputError(f"{file}: {document}")
        if document is not None:
            if not isinstance(document, dict):
                raise InputError(f"{file}: expected objects")
            yield document


def _group(entry: RawObject) -> NodeGroup:
    try:
        return NodeGroup(entry["name"], entry["template"], entry["limit"], entry.get("priority", 0))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"a node group needs name, template and limit, not {entry!r}") from error


def _name(pod: RawObject) -> str:
    metadata = pod["metadata"]
    return f"{metadata.get('namespace') or 'default'}/{metadata['name']}"


def connected(url: str, ca_file: Path | None, token_file: Path | None) -> AutoscalerClient:
    """A client of the service.

    Args:
        url: where the service is.
        ca_file: who is trusted for TLS, in PEM; None: the authorities of this machine.
        token_file: a token that says who calls; None: nobody says it.

    Raises:
        InputError: a file that can't be used.
    """
    file = token_file
    try:
        headers = {"Authorization": f"Bearer {token_file.read_text().strip()}"} if token_file else {}
        file = ca_file
        verify = ssl.create_default_context(cafile=ca_file) if ca_file else True
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    return AutoscalerClient(httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, verify=verify, headers=headers))


def main() -> None:
    """Read, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8888", help="where the service is")
    parser.add_argument("--ca-file", type=Path, help="certificates of authorities that are trusted for TLS, in PEM")
    parser.add_argument("--token-file", type=Path, help="a token that says who calls (docs/how-to/off-the-node.md)")
    parser.add_argument("--expander", default="least-waste", help="least-waste, least-nodes or priority")
    arguments = parser.parse_args()
    errors = Console(stderr=True)
    try:
        situation = read(arguments.paths)
        with (
            connected(arguments.url, arguments.ca_file, arguments.token_file) as client,
            Progress(console=errors, disable=not errors.is_terminal) as progress,
        ):
            outcome = scale_up(client.start(), situation, arguments.expander, progress)
    except (InputError, AutoscalerError) as error:
        sys.exit(f"error: {error}")
    for number, table in enumerate(tables(outcome)):
        if number:
            print()
        print_table(table, sys.stdout)


if __name__ == "__main__":
    main()
