"""What the documentation of several verbs shares: the header of a session, and an example of a node."""

from collections.abc import Mapping
from typing import Final

from allocator.tools import JSON
from extender.autoscaler.sessions.peers import SESSION

OF_SESSION: Final[Mapping[str, str]] = {SESSION: "The id that start gave; without it the latest snapshot answers."}

EXAMPLE_NODE: Final[JSON] = {
    "metadata": {"name": "general-template", "labels": {"example.com/machine": "general"}},
    "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
}
