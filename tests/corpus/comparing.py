"""Two recordings side by side: which calls differ, and what differs in the first ones, as people read it."""

import difflib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from tests.corpus.recording import Entry

_MOST_LINES: Final = 40
"""Of one entry's differences."""


_REVISION: Final = re.compile(r'((?:resourceVersion|revision)\\*"?:? ?\\*"?)\d+')
"""Of an object, in JSON (also in a text of JSON), in tables and in messages."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry that is not the same in both recordings; None where one does not have it."""

    before: Entry | None
    after: Entry | None

    @property
    def entry(self) -> Entry:
        """One of both."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def world(self) -> str:
        """The world of the entry."""
        return self.entry.place.partition("/")[0]


def differences(before: Iterator[Entry], after: Iterator[Entry]) -> list[Difference]:
    """Return the entries that differ, in the order of the later recording; those that only one has are among them."""
    old = {each.place: each for each in before}
    found = []
    for each in after:
        same = old.pop(each.place, None)
        if same != each:
            found.append(Difference(same, each))
    return found + [Difference(each, None) for each in old.values()]


def any_order(entries: Iterator[Entry]) -> Iterator[Entry]:
    """Yield entries without revisions of objects, with the writes between two answers in one order."""
    for each in entries:
        writes = sorted(_without_revisions(json.dumps(write, sort_keys=True)) for write in each.writes)
        yield replace(
            each,
            request=_without_revisions(each.request),
            body=_without_revisions(each.body),
            writes=tuple(map(json.loads, writes)),
        )


def _without_revisions(text: str) -> str:
    return _REVISION.sub(r"\1N", text)


def report(found: Sequence[Difference], worlds: int) -> Iterator[str]:
    """Yield lines: how many entries differ, and the first difference of each of the first worlds.

    What differs first in a world may be why the rest of the world differs.
    """
    if not found:
        yield "no difference"
        return
    kinds = Counter(each.entry.what.split()[0] for each in found)
    firsts = {each.world: each for each in reversed(found)}
    in_words = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    yield f"{len(found)} entries of {len(firsts)} worlds differ: {in_words}"
    yield f"the first difference of each of the first {min(worlds, len(firsts))} of these worlds:"
    for world in islice(sorted(firsts), worlds):
        yield ""
        yield from _lines(firsts[world])


def _lines(found: Difference) -> Iterator[str]:
    yield f"{found.entry.place} {found.entry.what}"
    if found.before is None or found.after is None:
        yield f"  only {'after' if found.before is None else 'before'}"
        return
    if found.before.what != found.after.what:
        # Two calls that have nothing to do with each other: what the world did before has led it another way.
        yield f"  before: {found.before.what}"
        yield f"  after: {found.after.what}"
        return
    before, after = _readable(found.before), _readable(found.after)
    changed = [
        line
        for line in difflib.unified_diff(before, after, "before", "after", lineterm="", n=2)
        if not line.startswith(("---", "+++"))
    ]
    yield from (f"  {line}" for line in changed[:_MOST_LINES])
    if len(changed) > _MOST_LINES:
        yield f"  ... and {len(changed) - _MOST_LINES} lines more"


def _readable(entry: Entry) -> list[str]:
    """The entry as lines, each JSON with its fields on lines of their own."""
    parts: Mapping[str, Any] = {
        "request": entry.request,
        "status": entry.status,
        "headers": dict(entry.headers),
        "body": _decoded(entry.body),
        "writes": entry.writes,
        "log": "\n".join(entry.log),
    }
    return [f"{name}: {line}" for name, value in parts.items() for line in _written(value)]


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _written(value: Any) -> list[str]:
    return (
        value.splitlines() if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False).splitlines()
    )
