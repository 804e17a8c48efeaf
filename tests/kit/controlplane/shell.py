"""The commands of a page, as a reader types them: by a real kubectl and a real Helm, before an API server of a test."""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from tests.kit.places import ROOT

_SECONDS: Final = 120
_HEADING: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_BLOCK: Final = re.compile(r"^ *```sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the docs.

    Attributes:
        sections: by heading, the blocks of commands, each with its lines.
    """

    sections: Mapping[str, Sequence[Sequence[str]]]

    @classmethod
    def read(cls, path: Path) -> "Page":
        """The commands of a file."""
        parts = _HEADING.split(path.read_text())
        return cls({head: [*_blocks(text)] for head, text in zip(parts[1::2], parts[2::2], strict=True)})

    @property
    def commands(self) -> set[str]:
        """All commands of the page."""
        return set(chain.from_iterable(chain.from_iterable(self.sections.values())))


def _blocks(text: str) -> Iterator[list[str]]:
    for block in _BLOCK.findall(text):
        yield [line.split("  #")[0].strip() for line in block.splitlines() if line.strip()]


@dataclass(slots=True)
class Shell:
    """Runs commands in the folder of the project.

    Attributes:
        tools: folder with kubectl and helm.
        kubeconfig: of an administrator.
        done: the commands that were run.
    """

    page: Page
    tools: Path
    kubeconfig: Path
    done: set[str] = field(default_factory=set)

    def block(self, section: str, number: int = 0) -> str:
        """Run a block of a section of the page. What its commands print."""
        lines = self.page.sections[section][number]
        self.done.update(lines)
        return "".join(map(self.run, lines))

    def run(self, line: str) -> str:
        """Run a command. What it prints."""
        found = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=ROOT,
            env={"PATH": f"{self.tools}:/usr/bin:/bin", "HOME": str(self.tools), "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        assert found.returncode == 0, f"{line}\n{found.stdout}{found.stderr}"
        return found.stdout
