"""What tests of the command line share: a small cluster as a file, and a runner of commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from tests.kit.clusters import GPU, Object, claim, local_slice, node, pod

RUNNER = CliRunner()
BROKEN = local_slice("b", capacity={"memory": {"value": "80Gx"}})


def written(path: Path, *objects: Object) -> Path:
    path.write_text(yaml.safe_dump_all(objects))
    return path


def small_cluster(path: Path) -> Path:
    """A device, and two pods that ask for one each."""
    return written(path, GPU, node("a"), local_slice("a"), claim("c"), claim("d"), pod("p", "c"), pod("q", "d"))


async def post_nothing(path: str, body: bytes) -> Mapping[str, Any]:
    """For a source that only lists are read from."""
    raise AssertionError((path, body))
