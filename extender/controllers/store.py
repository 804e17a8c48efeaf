"""The store of a controller: a file with a line of JSON for each change of an allocation, written before it counts.

A crash may leave a part of the last line, which is dropped: nobody was told of that change. The JSON of questions,
answers and stores has values of Python, of any depth. A number that Python cannot hold is a `Verbatim`: ``str`` gives
its text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from allocator.tools import JSON, jsontext
from extender.kube import encoding
from extender.plugins.negotiation.protocol import (
    ClaimAsk,
    NodeName,
    Object,
    ProtocolError,
    ask_of,
    ask_to_json,
    node_of,
    node_to_json,
)
from extender.tools.files import append_durably, replace_durably


def loads(text: bytes) -> Any:  # noqa: ANN401 - JSON has any type
    """The value of a JSON text. Raises ValueError: the text is not JSON."""
    return jsontext.plain(text.decode(errors="replace"))


def dumps(value: object) -> bytes:
    """The JSON text of a value, without line breaks. Raises TypeError: the value has something that JSON has not."""
    # A text that others have written may have line breaks between its values. Within strings, they are escaped.
    return encoding.dumps(value).replace(b"\r", b" ").replace(b"\n", b" ")


_MOST_RELEASED: Final = 10_000
"""Released claims that are remembered, the latest: an allocation that comes late is refused."""

_SPARE_LINES: Final = 100
"""The file is written anew when it has this many lines more than twice what there is to tell."""


_BEGIN: Final = '{"uid":"'
"""Each line begins so, perhaps with spaces."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A claim that is being allocated, or is allocated.

    Attributes:
        allocation: in the form of ``status.allocation``; None: it was begun, and has not ended.
    """

    claim: ClaimAsk
    node: NodeName
    allocation: Mapping[str, JSON] | None = None


@dataclass(slots=True)
class Store:
    """Allocations and releases.

    Attributes:
        path: the file.
        allocated: by uid of the claim.
        released: by uid of the claim, the attempt of its latest release.
    """

    path: Path
    allocated: dict[str, Entry] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)
    _lines: int = 0
    _is_torn: bool = False
    """The file may end amid a line."""

    @classmethod
    def open(cls, path: Path) -> "Store":
        """The store in a file, empty if there is no file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a file of a store.
        """
        found = cls(path)
        try:
            text = path.read_text()
        except FileNotFoundError:
            return found
        *lines, rest = text.split("\n")
        for number, line in enumerate(lines, 1):
            try:
                found._apply(loads(line.encode()))
            except (ValueError, KeyError, TypeError, ProtocolError) as error:
                raise ValueError(f"{path} is not a file of a store: line {number}: {error}") from error
        begin = rest.replace(" ", "")[: len(_BEGIN)]
        if begin != _BEGIN[: len(begin)]:
            raise ValueError(f"{path} is not a file of a store: line {len(lines) + 1} is no change")
        found._lines, found._is_torn = len(lines), bool(rest)
        return found

    def allocate(self, uid: str, entry: Entry) -> None:
        """Keep an allocation, or that one was begun."""
        self._write(_allocated(uid, entry))

    def release(self, uid: str, attempt: int) -> None:
        """Forget an allocation, and keep the attempt of the release."""
        self._write(_released(uid, attempt))

    def _apply(self, change: Mapping[str, Any]) -> None:
        uid = change["uid"]
        if "released" in change:
            self.allocated.pop(uid, None)
            self.released.pop(uid, None)
            self.released[uid] = int(change["released"])
            while len(self.released) > _MOST_RELEASED:
                del self.released[next(iter(self.released))]
        else:
            self.allocated[uid] = Entry(ask_of(change["claim"]), node_of(change["node"]), change["allocation"])

    def _write(self, change: Object) -> None:
        """Write a change, and apply it."""
        if self._is_torn or self._lines > 2 * (len(self.allocated) + len(self.released)) + _SPARE_LINES:
            self._rewrite()
        self._is_torn = True  # until the whole line is there
        append_durably(self.path, _line(change))
        self._is_torn = False
        self._lines += 1
        self._apply(change)

    def _rewrite(self) -> None:
        changes = [_released(uid, attempt) for uid, attempt in self.released.items()]
        changes += [_allocated(uid, entry) for uid, entry in self.allocated.items()]
        replace_durably(self.path, "".join(map(_line, changes)))
        self._lines = len(changes)


def _allocated(uid: str, entry: Entry) -> Object:
    claim, node = ask_to_json(entry.claim), node_to_json(entry.node)
    return {"uid": uid, "claim": claim, "node": node, "allocation": entry.allocation}


def _released(uid: str, attempt: int) -> Object:
    return {"uid": uid, "released": attempt}


def _line(change: Object) -> str:
    return dumps(change).decode() + "\n"
