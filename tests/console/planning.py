"""An autoscaler that plans in sessions, over the example cluster with node templates."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from tests.console.service import Served, over_manifests
from tests.kit.places import ROOT

NEW_NODES: Final = 2


@contextmanager
def over_templates(folder: Path) -> Iterator[Served]:
    """The example cluster with its node templates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRA_EXTENDER__AUTOSCALER__NODE_TEMPLATES", str(ROOT / "config" / "node-templates.yaml"))
        with over_manifests(folder, ROOT / "config" / "example") as served:
            yield served


def call(served: Served, verb: str, body: Any, session: str = "", agent: str = "test-autoscaler/1.0") -> Any:
    """What a verb for autoscalers answers."""
    headers = {"user-agent": agent, **({"session": session} if session else {})}
    reply = httpx.post(f"{served.url}/autoscaler/{verb}", json=body, headers=headers, trust_env=False, timeout=30)
    found = reply.json()
    assert "Error" not in found, found
    return found


def planned(served: Served, agent: str = "test-autoscaler/1.0") -> str:
    """A session with a pod booked on each of two new nodes, and a plan for eight pods; its id."""
    groups = yaml.safe_load((ROOT / "config" / "scale-up" / "groups.yaml").read_text())["nodeGroups"]
    pods = [each for each in yaml.safe_load_all((ROOT / "config" / "scale-up" / "pods.yaml").read_text()) if each]
    session = str(call(served, "start", {}, agent=agent)["Session"])
    for number, pod in enumerate(pods[:NEW_NODES], start=1):
        template = groups[0]["template"]
        node = {**template, "metadata": {**template["metadata"], "name": f"falcon-made-up-{number}"}}
        call(served, "NodeSelected", {"Pod": pod, "Node": node}, session)
    wanted = [{"Name": each["name"], "Template": each["template"], "Limit": each["limit"]} for each in groups]
    call(served, "estimate", {"Pods": {"items": pods[NEW_NODES:]}, "NodeGroups": wanted}, session)
    return session
