"""Services for the browser to look at, and kube-scheduler's calls to them."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from tests.kit.places import ROOT
from tests.kit.process import Process, answers, free_port
from tests.kit.service import extender

_START_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Served:
    """A service that runs.

    Attributes:
        url: its address.
        pods: the manifests of its pods, by namespace and name.
        nodes: names of its nodes, if they are in manifests.
        process: the program.
    """

    url: str
    pods: Mapping[tuple[str, str], Any]
    nodes: Sequence[str]
    process: Process

    def table(self, path: str) -> list[Any]:
        """All rows of a table."""
        reply = httpx.get(f"{self.url}/{path}", headers={"accept": "application/json"}, trust_env=False, timeout=30)
        reply.raise_for_status()
        return list(reply.json()["items"])

    def call(self, verb: str, body: Any) -> Any:
        """What a verb answers."""
        reply = httpx.post(f"{self.url}/{verb}", json=body, trust_env=False, timeout=30)
        reply.raise_for_status()
        return reply.json()

    def filter(self, namespace: str, name: str) -> list[str]:
        """Ask about a pod as kube-scheduler does; the nodes that fit."""
        (row,) = [each for each in self.table(f"pods?namespace={namespace}") if each["pod"] == name]
        pod = self.pods[namespace, name]
        asked = {**pod, "metadata": {**pod["metadata"], "uid": row["uid"]}}
        return list(self.call("filter", {"Pod": asked, "NodeNames": self.nodes})["NodeNames"] or ())

    def bind(self, namespace: str, name: str, node: str) -> None:
        """Bind a pod as kube-scheduler does."""
        (row,) = [each for each in self.table(f"pods?namespace={namespace}") if each["pod"] == name]
        body = {"PodName": name, "PodNamespace": namespace, "PodUID": row["uid"], "Node": node}
        assert self.call("bind", body) == {}


@contextmanager
def over_manifests(
    folder: Path, *manifests: Path, port: int = 0, environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """A service over manifests.

    Args:
        folder: its log is written there.
        manifests: files or folders.
        port: its port; 0: a free one.
        environment: variables that are set for it.
    """
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    sources = [argument for each in manifests for argument in ("--manifests", str(each))]
    variables = (f"{name}={value}" for name, value in (environment or {}).items())
    command = ("env", *variables, sys.executable, "-m", "extender", "serve", "--port", str(port), *sources)
    process = Process("dra-extender", command, answers(f"{url}/readyz"), folder / "log")
    process.start(within=_START_SECONDS)
    try:
        pods = {(each.get("namespace", "default"), each["name"]): found for each, found in _of("Pod", manifests)}
        yield Served(url, pods, sorted(each["name"] for each, _ in _of("Node", manifests)), process)
    finally:
        process.stop()


def _of(kind: str, manifests: tuple[Path, ...]) -> Iterator[tuple[Any, Any]]:
    """The objects of a kind, each after its metadata."""
    files = (file for each in manifests for file in (sorted(each.rglob("*.yaml")) if each.is_dir() else (each,)))
    for file in files:
        # BaseLoader builds only text, also of timestamps.
        for found in yaml.load_all(file.read_text(), Loader=yaml.BaseLoader):
            if found and found["kind"] == kind:
                yield found["metadata"], found


@contextmanager
def over_many_nodes(folder: Path) -> Iterator[Served]:
    """A service over an API server with 5,000 nodes, each with 8 devices. Half of these are allocated, 800 of them for
    pods on the first 100 nodes, and a pod waits."""
    sizes = {"nodes": 5000, "claims": 20_000, "pods": 800, "pods-with-claims": 800, "waiting": 1}
    options = (f"--{name}={number}" for name, number in sizes.items())
    program = [sys.executable, "-m", "tests.kit.servers.synthetic", *options]
    with subprocess.Popen(program, stdout=subprocess.PIPE, cwd=ROOT) as api:
        try:
            assert api.stdout is not None
            port = free_port()
            process = extender(folder, int(api.stdout.readline()), port)
            process.start(within=_START_SECONDS)
            try:
                yield Served(f"http://127.0.0.1:{port}", {}, (), process)
            finally:
                process.stop()
        finally:
            api.kill()
