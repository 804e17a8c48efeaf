"""How long `dra-extender simulate` takes for a big cluster, and what its parts take.

2,000 nodes with 8 devices each, and 500 pods with a claim from a template, in one JSON file and in one YAML file. The
command runs in a process of its own, with compiled modules as after an installation: medians of the seconds that pass
and that it computes. The parts run in this process.
Beside them stands a calibration of the same run: a fixed loop of plain Python, so that figures of different machines
can be set in relation.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson
import yaml
from rich.console import Console
from rich.table import Table

from extender import Cluster
from extender.faces.serving.memory import undisturbed
from extender.kube.claim_rules import check_expression
from extender.lab.manifests import load
from loadtest.allocate_bench import calibration, median_micros
from tests.kit.objects.parts import api_object
from tests.kit.objects.worlds import NAMESPACE, Machine, Wish, waiting_pod, world

NODES: Final = 2000
PODS: Final = 500
GOAL_SECONDS: Final = 3.0
RUNS: Final = 5


def objects(nodes: int, pods: int) -> list[dict[str, Any]]:
    """A cluster without allocated claims, and the pods that wait."""
    there = world(nodes, Machine(), Wish(), in_use=0)
    spec = {"spec": there["pending"][0]["spec"]}
    template = api_object("ResourceClaimTemplate", "gpu", namespace=NAMESPACE, spec=spec)
    waiting = [waiting_pod(f"pod-{number}") for number in range(pods)]
    for each in waiting:
        each["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return [*there["nodes"], *there["slices"], *there["classes"], template, *waiting]


def command(file: Path, modules: Path) -> tuple[float, float]:
    """Seconds that pass and that are computed until the command has printed its table; a folder has its modules."""
    wall, before = time.perf_counter(), _computed()
    arguments = [sys.executable, "-m", "extender", "simulate", str(file), "--fail-on-pending"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(modules)
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - wall, _computed() - before


def _computed() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def parts(file: Path) -> dict[str, float]:
    """Seconds that each part computes, in this process."""
    times = [time.process_time()]
    with undisturbed():
        load([file], check_expression)
        times.append(time.process_time())
        cluster = Cluster.from_manifests([file])
    times.append(time.process_time())
    cluster.schedule()
    times.append(time.process_time())
    read, made, scheduled = (after - before for before, after in pairwise(times))
    return {
        "read and check the manifests": read,
        "the same, and make the cluster": made,
        "schedule the pods": scheduled,
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--pods", type=int, default=PODS)
    size = parser.parse_args()
    title = f"simulate, {size.nodes} nodes, {size.nodes * Machine().gpus} devices, {size.pods} pods"
    table = Table("file", "passed, s", "computed, s", f"goal {GOAL_SECONDS:g} s", title=title)
    with tempfile.TemporaryDirectory() as name:
        made = objects(size.nodes, size.pods)
        as_json, as_yaml = Path(name, "cluster.json"), Path(name, "cluster.yaml")
        as_json.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
        as_yaml.write_text(yaml.dump_all(made, Dumper=yaml.CSafeDumper))
        for file in (as_json, as_yaml):
            runs = [command(file, Path(name, "modules")) for _ in range(1 + RUNS)][1:]
            wall, cpu = map(median, zip(*runs, strict=True))
            table.add_row(file.suffix[1:], f"{wall:.2f}", f"{cpu:.2f}", "met" if wall <= GOAL_SECONDS else "MISSED")
        of_parts = Table("part, of the JSON file", "computed, s")
        for part, seconds in parts(as_json).items():
            of_parts.add_row(part, f"{seconds:.2f}")
    Console().print(table, of_parts)
    Console().print(f"calibration: 10,000 rounds of a plain loop take {median_micros(calibration):.0f} us")


if __name__ == "__main__":
    main()
