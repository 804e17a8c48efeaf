"""The commands of README, tutorial and a how-to, run as they are written: what a page shows is what they print."""

import asyncio
import doctest
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.places import ROOT

DOCS = ROOT / "docs"
README, TUTORIAL = ROOT / "README.md", DOCS / "tutorial" / "schedule-a-pod.md"
PAGES = (README, DOCS / "how-to" / "defragment.md", *sorted((DOCS / "tutorial").glob("*.md")))
MAKEFILE = (ROOT / "Makefile").read_text()
ADDRESS = "127.0.0.1:8888"
SHELL = shutil.which("sh") or ""
COMPARE = doctest.OutputChecker()


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page and the output that it shows; ``...`` in it stands for anything."""

    command: str
    output: str


def blocks(language: str, page: Path) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def steps(block: str) -> Iterator[Step]:
    """``$`` starts a command, a backslash at its end continues it; the rest, up to the next ``$``, is its output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:.*\\\n)*.*\n", part)
        assert command
        yield Step(command.group(), part[command.end() :])


@asynccontextmanager
async def service(environment: Mapping[str, str]) -> AsyncIterator[str]:
    """What `make serve` starts, on a free port; yields its address. Stopped by its process id."""
    options = ("--port", "0", "--manifests", "config/example")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extender", "serve", *options),
        cwd=ROOT,
        env={**environment, **dict(re.findall(r"(DRA_EXTENDER__\w+)=(\S+)", MAKEFILE))},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr
    try:
        async with asyncio.timeout(60):
            log = [json.loads(line) async for line in until_serving(process.stderr)]
        yield log[-1]["url"].removeprefix("http://")
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


async def until_serving(lines: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a log, up to the one that says where the service listens."""
    async for line in lines:
        yield line
        if b'"event": "serving"' in line:
            return


async def run(command: str, environment: Mapping[str, str]) -> str:
    """What a command prints, on both of its outputs."""
    process = await asyncio.create_subprocess_exec(
        *(SHELL, "-c", command),
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        printed, _ = await process.communicate()
    return printed.decode()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As in the virtual environment that `make serve` makes: this Python, and `dra-extender` on it."""
    script = tmp_path / "dra-extender"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m extender "$@"\n')
    script.chmod(0o755)
    paths = (str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"])
    return {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT)}


@pytest.mark.skipif(not (SHELL and shutil.which("curl")), reason="there is no shell or no curl")
@pytest.mark.parametrize(
    "pages",
    [*((page,) for page in PAGES), (README, TUTORIAL)],
    ids=lambda pages: ", then ".join(page.name for page in pages),
)
async def test_commands_print_what_the_page_shows(pages: Sequence[Path], environment: Mapping[str, str]) -> None:
    """README and tutorial are read in this order, with one service: no question may change an answer of the next."""
    async with service(environment) as address:
        for step in (step for page in pages for block in blocks("console", page) for step in steps(block)):
            printed = await run(step.command.replace(ADDRESS, address), environment)
            printed = printed.replace(address, ADDRESS)
            example = doctest.Example(step.command, step.output)
            if not COMPARE.check_output(example.want, printed, doctest.ELLIPSIS):
                pytest.fail(step.command + COMPARE.output_difference(example, printed, doctest.ELLIPSIS))


def test_there_are_commands() -> None:
    commands = [step.command for page in PAGES for block in blocks("console", page) for step in steps(block)]
    for name in (
        "/filter",
        "/prioritize",
        "/bind",
        "/explain",
        "dra-extender validate",
        "dra-extender simulate",
        "dra-extender audit",
        "dra-extender defragment",
        "loadtest.autoscaler",
    ):
        assert any(name in command for command in commands), name


def test_make_has_the_targets_that_are_shown() -> None:
    shown = "".join(block for page in PAGES for block in blocks("sh", page))
    used = set(re.findall(r"^make ([a-z-]+)", shown, re.MULTILINE))
    assert {"serve", "test"} <= used
    assert used <= set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
