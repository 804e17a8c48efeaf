"""The figures of a campaign as JSON and as a table in Markdown."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import orjson

from loadtest.upstream_bench.pairs import Turns, figures
from loadtest.upstream_bench.profile import API_SERVER, OTHER, SCHEDULER
from loadtest.upstream_bench.turn import ETCD, EXTENDER

PARTS = (SCHEDULER, EXTENDER, API_SERVER, ETCD, OTHER)


def as_json(found: Mapping[str, Turns]) -> bytes:
    """All turns, by workload and subject."""
    return orjson.dumps(
        {
            workload: {subject: [asdict(turn) for turn in each] for subject, each in turns.items()}
            for workload, turns in found.items()
        },
        option=orjson.OPT_INDENT_2,
    )


def as_table(found: Mapping[str, Turns], where: str) -> str:
    """A row for each workload and subject: medians, and dra-extender's rate divided by in-tree's.

    Args:
        found: turns, by workload.
        where: a line about the machine and what ran.
    """
    head = ("workload", "subject", "turns", "load", "pods/s", "ratio", "seconds", *(f"{part}, ms" for part in PARTS))
    lines = [where, "", _row(head), _row(["---"] * len(head))]
    for workload, turns in found.items():
        lines += _rows(workload, turns)
    return "\n".join(lines) + "\n"


def _rows(workload: str, turns: Turns) -> Iterator[str]:
    rates = {subject: figures(each).rate for subject, each in turns.items() if each}
    base = rates.get("in-tree", 0.0)
    for subject, each in turns.items():
        if not each:
            yield _row((workload, subject, "0", *[""] * (4 + len(PARTS))))
            continue
        found = figures(each)
        ratio = f"{found.rate / base:.2f}" if base and subject != "in-tree" else ""
        parts = (f"{found.processor.get(part, 0.0):.1f}" for part in PARTS)
        turned = (str(found.turns), f"{min(found.loads):.1f} to {max(found.loads):.1f}")
        yield _row((workload, subject, *turned, f"{found.rate:.0f}", ratio, f"{found.seconds:.1f}", *parts))


def _row(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"
