"""A controller of licenses that stand outside, written with the kit: a file in a folder for each that is taken.

As a program: ``python -m tests.kit.licensing --port 9377 --folder FOLDER --licenses 10``, or with ``--contexts-for``
instead of the port. The folder shows what is taken, whatever dies: nothing is in memory only.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from allocator.tools import JSON
from extender.controllers import ClaimAsk, Held, Listening, NodeName, RefusedError, serve, serve_contexts

NONE_LEFT = "no license is left"
NOT_FOR_SALE = "no license is for sale"
DRIVER = "licenses.example.com"
CLOSED = "closed"


class Licenses:
    """Some licenses; implements `extender.controllers.Controller`.

    While a file ``closed`` is beside the folder, no license is left.

    Args:
        folder: a taken license is a file with its number for a name, and the uid of its claim.
        number: of licenses.
        delay: seconds that each answer about nodes takes.
        refuses: it calls all nodes suitable, and allocates nothing.
    """

    def __init__(self, folder: Path, number: int, delay: float = 0.0, *, refuses: bool = False) -> None:
        self._folder = folder
        self._number = number
        self._delay = delay
        self._refuses = refuses
        self._uids = {uid: name for name, uid in taken(folder).items()}

    def unsuitable_nodes(self, claim: ClaimAsk, nodes: Sequence[NodeName], held: Sequence[Held]) -> Mapping[str, str]:
        time.sleep(self._delay)
        others = sum(each.claim.uid != claim.uid for each in held)
        is_closed = (self._folder.parent / CLOSED).exists()
        return {} if others < self._number and not is_closed else {each.name: NONE_LEFT for each in nodes}

    def allocate(self, claim: ClaimAsk, *_: object, simulation: bool) -> Mapping[str, JSON]:
        if simulation:
            return {}
        if self._refuses:
            raise RefusedError(NOT_FOR_SALE)
        if claim.uid not in self._uids:
            self._uids[claim.uid] = self._taken(claim)
        names: list[JSON] = [str(each["name"]) for each in claim.requests]
        opaque: JSON = {"driver": DRIVER, "parameters": {"license": self._uids[claim.uid]}}
        return {"devices": {"config": [{"source": "FromClaim", "requests": names, "opaque": opaque}]}}

    def deallocate(self, held: Held) -> None:
        name = self._uids.pop(held.claim.uid, None)
        if name is not None:
            (self._folder / name).unlink()

    def _taken(self, claim: ClaimAsk) -> str:
        """Take a license that nobody has. Its file appears with its content, or not at all."""
        used = set(self._uids.values())
        free = next((name for name in map(str, range(self._number)) if name not in used), None)
        if free is None:
            raise RefusedError(NONE_LEFT)
        draft = self._folder / f".{claim.uid}"
        draft.write_text(claim.uid)
        os.link(draft, self._folder / free)  # fails if the license is taken
        draft.unlink()
        return free


def taken(folder: Path) -> dict[str, str]:
    """The taken licenses, each with the uid of its claim. The controller may change them meanwhile."""
    found = {}
    for path in folder.iterdir():
        if not path.name.startswith("."):
            with suppress(FileNotFoundError):
                found[path.name] = path.read_text()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--port", type=int, help="it answers on HTTP")
    way.add_argument("--contexts-for", metavar="NAME", help="it is the controller NAME, and answers by contexts")
    parser.add_argument("--folder", type=Path, required=True, help="has the store, and taken licenses in taken/")
    parser.add_argument("--licenses", type=int, required=True, help="how many there are")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each answer about nodes takes")
    parser.add_argument("--refuses", action="store_true", help="all nodes are suitable, and nothing is allocated")
    parser.add_argument("--lease", default="", help="NAMESPACE/NAME of a Lease: it answers once it has the lease")
    parser.add_argument("--kubeconfig", type=Path, help="of the API server with the lease and the contexts")
    given = parser.parse_args()
    outside = given.folder / "taken"
    outside.mkdir(parents=True, exist_ok=True)
    licenses, store = Licenses(outside, given.licenses, given.delay, refuses=given.refuses), given.folder / "store.json"
    by = {"lease": given.lease, "kubeconfig": given.kubeconfig}
    if given.contexts_for:
        serve_contexts(licenses, store, given.contexts_for, **by)
    else:
        serve(licenses, store, Listening(port=given.port), **by)


if __name__ == "__main__":
    main()
