"""What the cases of a run reached, and what they did not: overloads, macros, errors, and pairs of features."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeVar

import coverage

from tests.conformance import declarations, expressions, features, worlds
from tests.kit.places import ROOT

Json = dict[str, Any]
Report = TypeVar("Report")
Answer = Callable[[str, Sequence[Json]], list[Any]]

_PACKAGE: Final = ROOT / "allocator"
_MEASURED: Final = {"selectors": _PACKAGE / "cel", "allocations": _PACKAGE}


def measured(
    kind: str, blocks: Sequence[range], compare: Callable[[str, range], Report], answer: Answer
) -> Iterator[Report]:
    """Run the blocks, and print in the end what no case reached."""
    meter = coverage.Coverage(source=[str(_MEASURED[kind])], data_file=None, config_file=False)
    for block in blocks:
        meter.start()
        try:
            report = compare(kind, block)
        finally:
            meter.stop()
        yield report
    missed = _calls(blocks, answer) if kind == "selectors" else _pairs(blocks)
    errors = list(_errors(meter, _MEASURED[kind]))
    noun = "declarations" if kind == "selectors" else "pairs of features"
    print(*missed, *errors, f"not reached: {len(missed)} {noun}, {len(errors)} errors", sep="\n")


def _calls(blocks: Sequence[range], answer: Answer) -> list[str]:
    """Overloads and macros that no compiled expression uses, as upstream's checker resolves them."""
    used: set[str] = set()
    for block in blocks:
        cases = [{**expressions.random_case(seed), "trace": True} for seed in block]
        used.update(use for actual in answer("selectors", cases) for use in actual.get("uses", ()))
    known = [each for theirs in answer("declarations", declarations.CASES) for each in _declared(theirs)]
    return sorted(set(known) - used)


def _declared(theirs: Json) -> list[str]:
    return [*(each["id"] for each in theirs["overloads"] if declarations.relevant(each)), *theirs["macros"]]


def _pairs(blocks: Sequence[range]) -> list[str]:
    """Pairs of features that no case has together; prints how many pairs there are, and which is the rarest."""
    met: Counter[tuple[str, str]] = Counter()
    for block in blocks:
        for seed in block:
            met.update(combinations(sorted(features.features_of(worlds.random_case(seed))), 2))
    pairs = list(combinations(sorted(features.FEATURES), 2))
    missed = [pair for pair in pairs if pair not in met]
    rarest = min(pairs, key=lambda pair: met[pair])
    found = len(pairs) - len(missed)
    print(f"{found} of {len(pairs)} pairs of features; {met[rarest]} cases have {' with '.join(rarest)}")
    return [" with ".join(pair) for pair in missed]


def _errors(meter: coverage.Coverage, folder: Path) -> Iterator[str]:
    """Statements that raise, and that never ran."""
    for path in sorted(folder.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        missing = set(meter.analysis2(str(path))[3])
        for node in ast.walk(ast.parse("\n".join(lines))):
            if isinstance(node, ast.Raise) and node.lineno in missing:
                yield f"{path.relative_to(folder.parent)}:{node.lineno}: {lines[node.lineno - 1].strip()}"
