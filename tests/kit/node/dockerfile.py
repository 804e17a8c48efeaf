"""The steps of a Dockerfile, as far as ours has them: FROM, ARG, WORKDIR, COPY, RUN, ENV, USER and ENTRYPOINT."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

_VARIABLE: Final = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_FROM: Final = "--from="


class DockerfileError(Exception):
    """A line that this reader does not know."""


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY.

    Attributes:
        sources: paths in the context, or, with ``stage``, in the files of that stage.
    """

    sources: tuple[str, ...]
    target: str
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """RUN: a script for ``/bin/sh -c``, or else a command that needs no shell."""

    script: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkDir:
    """WORKDIR: a folder, made if it is not there."""

    path: str


Step = Copy | Run | WorkDir


@dataclass(slots=True)
class Stage:
    """One FROM with what follows it.

    Attributes:
        base: the image that it begins with.
        environment: of its RUN steps from then on, and of the image's containers.
    """

    name: str
    base: str
    steps: list[Step] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: tuple[str, ...] = ()


def read(text: str, base_environment: Mapping[str, str]) -> list[Stage]:
    """The stages of a Dockerfile.

    Args:
        base_environment: of the base image, for variables in ENV.

    Raises:
        DockerfileError: it has what this reader does not know.
    """
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for word, rest in _instructions(text):
        if word == "ARG" and not stages:
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif word == "FROM":
            stages.append(_stage(_filled(rest, arguments), len(stages)))
        elif stages:
            _add(stages[-1], word, rest, base_environment)
        else:
            raise DockerfileError(f"{word} before the first FROM")
    return stages


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def _stage(text: str, number: int) -> Stage:
    match text.split():
        case [base]:
            return Stage(str(number), base)
        case [base, "AS" | "as", name]:
            return Stage(name, base)
        case _:
            raise DockerfileError(f"FROM {text}")


def _add(stage: Stage, word: str, rest: str, base_environment: Mapping[str, str]) -> None:
    match word:
        case "WORKDIR":
            stage.steps.append(WorkDir(rest))
        case "RUN":
            stage.steps.append(Run(command=tuple(orjson.loads(rest))) if rest.startswith("[") else Run(rest))
        case "COPY":
            stage.steps.append(_copy(rest))
        case "ENV":
            known = {**base_environment, **stage.environment}
            stage.environment |= dict(_filled(each, known).split("=", 1) for each in shlex.split(rest))
        case "USER":
            stage.user = rest
        case "ENTRYPOINT":
            stage.entrypoint = tuple(orjson.loads(rest))
        case _:
            raise DockerfileError(f"{word} {rest}")


def _copy(rest: str) -> Copy:
    words = rest.split()
    flags = [word for word in words if word.startswith("--")]
    *sources, target = (word for word in words if not word.startswith("--"))
    if any(not flag.startswith(_FROM) for flag in flags) or len(flags) > 1:
        raise DockerfileError(f"COPY {rest}")
    return Copy(tuple(sources), target, flags[0].removeprefix(_FROM) if flags else "")


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], ""), text)
