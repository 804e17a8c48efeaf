"""Commands over the cluster of a stage as manifests: simulate, explain, defragment and audit."""

from pathlib import Path
from typing import Any, Final

import orjson
from typer.testing import CliRunner

from extender.faces.commands.main import app
from extender.lab.cluster import EmbeddedCluster
from extender.lab.manifests import LOADED
from tests.corpus.machines import GROUP
from tests.corpus.recording import Entry
from tests.corpus.stage import Stage
from tests.corpus.workloads import workloads
from tests.kit import virtualtime

_RUNNER: Final = CliRunner()
_OUTPUTS: Final = ("table", "wide", "json", "yaml", "name")


def simulations(stage: Stage, number: int, folder: Path) -> list[Entry]:
    """The entries of some commands."""
    objects = [*virtualtime.run(_objects(stage.cluster)), *(workloads(stage.draw) if stage.draw(0.6) else [])]
    manifests = folder / "cluster.json"
    manifests.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    config = folder / "config.json"
    config.write_bytes(orjson.dumps(_config(stage.world.settings)))
    return [_entry(stage, index, _command(stage), manifests, config) for index in range(number)]


async def _objects(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    return [each for resource in LOADED.values() for each in (await cluster.api.list(resource)).items]


def _config(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of the stage, without controllers, which a command would ask."""
    return {**settings, "controllers": [], "autoscaler": {"learnFromLabel": GROUP}}


def _command(stage: Stage) -> list[str]:
    draw, pods = stage.draw, [str(pod) for pod in stage.pending()]
    output = draw.of(_OUTPUTS)
    kind = draw.number(0, 9)
    if kind < 4 or not pods:
        return ["simulate", "-o", output]
    if kind < 5:
        return ["explain", draw.of(pods)]
    if kind < 7:
        return ["defragment", "-o", draw.of(["table", "json"])]
    if kind < 8:
        return ["template", draw.of(["falcon", "eagle", "crow"]), "-o", draw.of(["yaml", "json", "settings"])]
    if kind < 9:
        return ["audit", "-o", draw.of(["table", "json"])]
    return ["simulate", "--explain", draw.of(pods)]


def _entry(stage: Stage, index: int, command: list[str], manifests: Path, config: Path) -> Entry:
    by = [] if command[0] == "audit" else ["-c", str(config)]
    result = _RUNNER.invoke(app, [*command, "-m", str(manifests), *by])
    text = f"{result.output}\nexit {result.exit_code}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    place = f"{stage.world.name}/{len(stage.entries) + index:02}"
    body = text.replace(str(manifests.parent), "FOLDER")
    return Entry(place, " ".join(command), " ".join(command), 200, {}, body)
