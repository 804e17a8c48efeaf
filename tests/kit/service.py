"""The extender as a process over an API server without TLS."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from tests.kit.process import Process, answers

_TOKEN: Final[Mapping[str, object]] = {"token": "fake"}


def kubeconfig(folder: Path, url: str, user: Mapping[str, object] = _TOKEN) -> Path:
    """A kubeconfig file in the folder, with one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "fake", "user": user}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }
    path = folder / "kubeconfig"
    path.write_bytes(orjson.dumps(config))
    return path


def extender(folder: Path, api_port: int, port: int) -> Process:
    """The extender, ready once it knows the cluster; its kubeconfig and its log are files in the folder."""
    config = kubeconfig(folder, f"http://127.0.0.1:{api_port}")
    command = (sys.executable, "-m", "extender", "serve", "--port", str(port), "--kubeconfig", str(config))
    return Process("dra-extender", command, answers(f"http://127.0.0.1:{port}/readyz"), folder / f"log-{port}")
