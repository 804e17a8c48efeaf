"""A controller of the kit as a process, which answers by PodSchedulingContexts; a file has its orders.

python -m tests.kit.controlplane.context_controller NAME FOLDER KUBECONFIG
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from allocator.tools import JSON
from extender.controllers import ClaimAsk, Held, NodeName, RefusedError, serve_contexts
from tests.kit.controlplane.access import ADMIN
from tests.kit.controlplane.components import START_SECONDS, ControlPlane
from tests.kit.process import Process

_ORDERS: Final = "orders.json"
_OUTSIDE: Final = "outside.json"


class Orders:
    """Does what a file says: which nodes do not suit, for which nodes allocations are refused, and when it dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def unsuitable_nodes(self, claim: ClaimAsk, nodes: Sequence[NodeName], held: Sequence[Held]) -> Mapping[str, str]:
        kept = {each.node.name for each in held if each.claim.uid == claim.uid}
        refused = {*self._orders().get("unsuitable", ())} - kept
        return {each.name: "no device" for each in nodes if each.name in refused}

    def allocate(
        self, claim: ClaimAsk, node: NodeName, held: Sequence[Held], *, simulation: bool
    ) -> Mapping[str, JSON]:
        orders = self._orders()
        others = [each for each in held if each.claim.uid == claim.uid and each.node != node]
        if others or simulation or node.name in (*orders.get("unsuitable", ()), *orders.get("refuses", ())):
            raise RefusedError("no device")
        self._write({**outside(self._folder), claim.uid: node.name})
        if orders.get("dies"):
            os._exit(1)
        here = [{"key": "metadata.name", "operator": "In", "values": [node.name]}]
        return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": here}]}}  # type: ignore[dict-item]

    def deallocate(self, held: Held) -> None:
        self._write({uid: node for uid, node in outside(self._folder).items() if uid != held.claim.uid})

    def _orders(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = _read(self._folder / _ORDERS)
        return found

    def _write(self, found: Mapping[str, str]) -> None:
        _replace(self._folder / _OUTSIDE, found)


@dataclass(frozen=True, slots=True)
class Fabric:
    """A running controller.

    Attributes:
        folder: has its files.
    """

    name: str
    folder: Path
    process: Process

    def order(self, **orders: object) -> None:
        """What it does from now on."""
        _replace(self.folder / _ORDERS, orders)

    @property
    def outside(self) -> Mapping[str, str]:
        """What is allocated outside: by uid of the claim, the node."""
        return outside(self.folder)

    def start(self) -> None:
        """Start it, also after it has died."""
        self.process.kill()
        self.process.start(within=START_SECONDS)


@contextmanager
def context_controller(plane: ControlPlane, name: str) -> Iterator[Fabric]:
    """A controller of that name, in a process of its own."""
    (folder := plane.folder / name).mkdir()
    command = (sys.executable, "-m", __name__, name, str(folder), str(plane.kubeconfig(ADMIN)))
    found = Fabric(name, folder, Process(name, command, lambda: True, plane.logs / f"{name}.log"))
    found.order()
    found.start()
    try:
        yield found
    finally:
        found.process.stop()


def outside(folder: Path) -> Mapping[str, str]:
    """What a controller has allocated outside: by uid of the claim, the node."""
    found: Mapping[str, str] = _read(folder / _OUTSIDE)
    return found


def _read(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else {}


def _replace(path: Path, found: Mapping[str, object]) -> None:
    (new := path.with_suffix(".new")).write_text(json.dumps(found))
    new.replace(path)


if __name__ == "__main__":
    called, place, config = sys.argv[1:]
    serve_contexts(Orders(Path(place)), Path(place) / "store.json", called, kubeconfig=Path(config))
