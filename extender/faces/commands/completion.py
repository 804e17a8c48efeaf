"""``kubectl_complete-dra``, which kubectl's completion runs: the words that may come next.

The answer has the form of Cobra: a candidate a line, with a tab before its help, and at last a directive
(`k8s.io/kubectl/pkg/cmd/plugin_completion.go`). For names of objects, kubectl itself is asked: it knows the cluster.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from typer.main import get_command

from allocator.checks import DeviceState
from extender.faces.commands.main import kubectl_app
from extender.faces.commands.options import ExplainOutput, WideOutput
from extender.framework.pod_and_claim_states import ClaimState
from extender.plugins.gangs.gang import GangState

NO_FILES: Final = ":4"
"""The directive of Cobra: the shell does not complete names of files."""

FILES: Final = ":0"

_SECONDS: Final = 5.0

_OBJECTS: Final = {
    "--class": ("deviceclasses",),
    "--node": ("nodes",),
    "--pod": ("pods",),
    "--context": ("pods", "--context"),
    "--namespace": ("pods", "--namespace"),
    "-n": ("pods", "--namespace"),
}
"""What kubectl is asked to complete for the value of an option: a kind, or after it an option of its own."""

_NAMES: Final = {"explain": ("pods",), "why-not": ("nodes", "pods")}
"""The kinds of objects that a command names, in the order of its arguments."""

_WORDS: Final = {"claim": "resourceclaims", "pod": "pods"}
"""The words after which explain takes a name of their kind."""

_STATES: Final = {
    "devices": [state.value for state in DeviceState],
    "claims": [state.value for state in ClaimState],
    "gangs": [state.value for state in GangState],
}

_OUTPUTS: Final[Mapping[str, type[StrEnum]]] = {
    "explain": ExplainOutput,
    "why-not": ExplainOutput,
    "what-if": ExplainOutput,
}
"""The values of --output; those of the other commands are `WideOutput`."""

_PLACE: Final = ("-n", "--namespace", "--context", "--kubeconfig")
"""Options that kubectl needs, too, to find the objects."""

Ask = Callable[[Sequence[str]], Sequence[str]]
"""Asks kubectl for the lines of a completion; no lines if it does not answer."""


def main() -> None:
    """The entry point of the console script."""
    sys.stdout.write("".join(f"{line}\n" for line in complete(sys.argv[1:], _ask_kubectl)))


def complete(arguments: Sequence[str], ask: Ask) -> Sequence[str]:
    """The candidates for the last argument, which is not complete yet, and the directive."""
    commands: Mapping[str, Any] = getattr(get_command(kubectl_app), "commands", {})
    *before, word = arguments or [""]
    name = before[0] if before else ""
    if not before:
        return _fitting(word, {each: command.get_short_help_str() for each, command in commands.items()})
    if name not in commands:
        return [NO_FILES]
    options = {flag: each for each in commands[name].params for flag in each.opts if flag.startswith("-")}
    taking = options.get(before[-1])
    if taking is not None and not getattr(taking, "is_flag", False):
        return _value(name, before, word, ask)
    if word.startswith("-"):
        return _fitting(word, {flag: each.help or "" for flag, each in options.items() if flag.startswith("--")})
    return _argument(name, before[1:], word, options, ask)


def _value(name: str, before: Sequence[str], word: str, ask: Ask) -> Sequence[str]:
    """The candidates for the value of an option."""
    asked = _OBJECTS.get(before[-1])
    if asked is not None:
        kind, *own = asked
        return ask(["get", kind, *_place(before[:-1]), *own, word]) or [NO_FILES]
    choices: Sequence[str] | None = None
    if before[-1] == "--state":
        choices = _STATES[name]
    elif before[-1] in {"-o", "--output"}:
        choices = [each.value for each in _OUTPUTS.get(name, WideOutput)]
    return [FILES] if choices is None else _fitting(word, dict.fromkeys(choices, ""))


def _argument(name: str, before: Sequence[str], word: str, options: dict[str, Any], ask: Ask) -> Sequence[str]:
    """The candidates for an argument that is the name of an object."""
    kinds, skip = _NAMES.get(name, ()), False
    given: list[str] = []
    for each in before:
        option = options.get(each.partition("=")[0])
        given += [each] if not skip and option is None else []
        skip = option is not None and "=" not in each and not getattr(option, "is_flag", False)
    if name == "explain" and given and given[0] in _WORDS:
        kinds = (given[0], _WORDS[given[0]])
    if len(given) >= len(kinds):
        return [NO_FILES]
    kind, prefix = kinds[len(given)], ""
    if kind == "pods" and word.startswith("claim/"):
        kind, prefix = "resourceclaims", "claim/"
    found = ask(["get", kind, *_place(before), word.removeprefix(prefix)]) or [NO_FILES]
    return [each if each.startswith(":") else f"{prefix}{each}" for each in found]


def _place(before: Sequence[str]) -> list[str]:
    """The options of the line that say where objects are."""
    pairs = pairwise(before)
    joined = [each for each in before if each.startswith(tuple(f"{flag}=" for flag in _PLACE))]
    return [*(part for pair in pairs if pair[0] in _PLACE for part in pair), *joined]


def _fitting(word: str, candidates: dict[str, str]) -> list[str]:
    found = [f"{each}\t{text}" if text else each for each, text in candidates.items() if each.startswith(word)]
    return [*found, NO_FILES]


def _ask_kubectl(arguments: Sequence[str]) -> Sequence[str]:
    try:
        found = subprocess.run(  # noqa: S603 - arguments are passed one by one, to no shell
            ["kubectl", "__complete", *arguments],  # noqa: S607 - kubectl has called us: it is on the PATH
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return found.stdout.splitlines()
