"""Recordings: what each call was answered and what was written meanwhile, with a digest of each, in two files."""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

TEXTS: Final = "calls.jsonl.gz"
DIGESTS: Final = "digests.txt"


@dataclass(frozen=True, slots=True)
class Entry:
    """One call, or something else that makes the service write, such as a turn of its background tasks.

    Attributes:
        place: the world, and the number of the entry there.
        what: the call in words.
        request: the body that was sent, or the command.
        status: of the answer; 0: there was none, this is no call.
        headers: of the answer, without its length.
        body: of the answer.
        writes: to the API server.
        log: warnings and errors.
    """

    place: str
    what: str
    request: str = ""
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    writes: tuple[Mapping[str, Any], ...] = ()
    log: tuple[str, ...] = ()

    @property
    def is_call(self) -> bool:
        """Whether somebody was answered."""
        return self.status != 0

    @property
    def text(self) -> str:
        """The entry as a line of JSON."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, ensure_ascii=False, sort_keys=True)

    @property
    def digest(self) -> str:
        """Equal for equal entries."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def write(entries: Iterable[Entry], folder: Path) -> int:
    """Write a recording into a folder, which is made; returns the number of calls. Equal recordings are equal files."""
    folder.mkdir(parents=True, exist_ok=True)
    calls = 0
    with (
        (folder / DIGESTS).open("w") as digests,
        (folder / TEXTS).open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as texts,
    ):
        for each in entries:
            digests.write(f"{each.digest} {each.place} {each.what}\n")
            texts.write(f"{each.text}\n".encode())
            calls += each.is_call
    return calls


def read(folder: Path) -> Iterator[Entry]:
    """Yield the entries of a recording.

    Raises:
        FileNotFoundError: the folder has none.
    """
    with gzip.open(folder / TEXTS, "rt", encoding="utf-8") as texts:
        for line in texts:
            fields = json.loads(line)
            yield Entry(**{**fields, "writes": tuple(fields["writes"]), "log": tuple(fields["log"])})
