"""The extender as a process over an API server of tests."""

import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from tests.kit.process import Process, answers

_TOKEN: Final[Mapping[str, object]] = {"token": "fake"}


def kubeconfig(folder: Path, url: str, user: Mapping[str, object] = _TOKEN, authority: bytes = b"") -> Path:
    """A kubeconfig file in the folder, with one context, and in PEM the authority that is trusted for HTTPS."""
    trusted = {"certificate-authority-data": b64encode(authority).decode()} if authority else {}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url, **trusted}}],
        "users": [{"name": "fake", "user": user}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }
    path = folder / "kubeconfig"
    path.write_bytes(orjson.dumps(config))
    return path


def extender(folder: Path, api_port: int, port: int, authority: bytes = b"") -> Process:
    """The extender, ready once it knows the cluster; its kubeconfig and its log are files in the folder.

    Args:
        authority: in PEM, who is trusted for HTTPS to the API server; empty: HTTP.
    """
    config = kubeconfig(folder, f"{'https' if authority else 'http'}://127.0.0.1:{api_port}", authority=authority)
    command = (sys.executable, "-m", "extender", "serve", "--port", str(port), "--kubeconfig", str(config))
    return Process("dra-extender", command, answers(f"http://127.0.0.1:{port}/readyz"), folder / f"log-{port}")
