"""What a Go test program says about its tests."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
UNFINISHED: Final = "unfinished"
"""It began, and the program ended before it did."""

_OUTCOMES: Final = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
_END: Final = re.compile(r"^\s*\x16?--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", re.MULTILINE)
_BEGIN: Final = re.compile(r"^\x16?=== RUN\s+(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """Of one test.

    Attributes:
        outcome: one of the constants of this module.
        seconds: that it took.
        tries: how often it ran, the last one alone.
    """

    outcome: str
    seconds: float = 0.0
    tries: int = 1


def results(output: str) -> dict[str, Result]:
    """The result of each test by its name, in the order in which they began.

    Args:
        output: of a program with ``-test.v=test2json`` or ``-test.v``.
    """
    found = {name: Result(UNFINISHED) for name in _BEGIN.findall(output)}
    for word, name, seconds in _END.findall(output):
        found[name] = Result(_OUTCOMES[word], float(seconds))
    return found


def leaves(found: Mapping[str, Result]) -> dict[str, Result]:
    """Those without sub-tests."""
    parents = {name[:place] for name in found for place, char in enumerate(name) if char == "/"}
    return {name: result for name, result in found.items() if name not in parents}


def pattern(names: Iterable[str]) -> str:
    """The value of ``-test.run`` that runs these tests of one depth at least, and no test whose name has another part.

    Go matches the parts of a name one by one, so all names together may match some more.
    """
    parts = [name.split("/") for name in names]
    depth = min(map(len, parts))
    each = (sorted({name[place] for name in parts}) for place in range(depth))
    return "/".join(f"^({'|'.join(map(re.escape, words))})$" for words in each)
