"""``python -m tests.hostile.fuzz``: many requests to every endpoint, changed in a few places; see docs/testing.md.

A round has a world of the corpus, a service over it, and 5,000 requests, half of them as its OpenAPI document says and
half of them recorded in that world. Ends with status 1 if an answer is 500, if something unexpected is raised or
logged, or if a service grows. ``--only 17:4711`` sends one request of a round.
"""

import argparse
import os
import secrets
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing import get_context
from typing import Final

from tests.hostile.findings import Findings
from tests.hostile.report import finding_lines
from tests.hostile.rounds import ROUND, Round, play_round

_HASHES: Final = "PYTHONHASHSEED"
_GROWTH: Final = 1.25
"""What a process may grow by after its second round: memories with a bound fill."""

_TOLD_EVERY: Final = 50_000


def main() -> int:
    """Send all requests, report, and judge."""
    if os.environ.get(_HASHES) != "0":  # sets have an order of their own otherwise
        again = [sys.executable, "-m", "tests.hostile.fuzz", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, _HASHES: "0"})  # noqa: S606 - this program
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="without it a random one, which is printed")
    parser.add_argument("--requests", type=int, default=20_000, help="how many; 20,000")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", metavar="ROUND:NUMBER", help="one request")
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    if given.only:
        number, request = map(int, given.only.split(":"))
        return _report([play_round((seed, number, range(request, request + 1)))])
    rounds = -(-given.requests // ROUND)
    with get_context("spawn").Pool(given.jobs) as pool:
        places = [(seed, number, range(ROUND)) for number in range(rounds)]
        return _report(pool.imap_unordered(play_round, places))


def _report(rounds: Iterable[Round]) -> int:
    began, sent, findings = time.perf_counter(), 0, Findings()
    answers, memory = Counter[str](), defaultdict[int, list[int]](list)
    for each in rounds:
        before, sent = sent, sent + each.answers.total()
        answers += each.answers
        memory[each.process[0]].append(each.process[1])
        for finding in each.found.findings:
            findings.add(replace(finding, label=finding.label.replace("request", str(each.number))))
        if sent // _TOLD_EVERY > before // _TOLD_EVERY:
            print(f"{sent:,} requests, {len(findings)} faults", flush=True)
    print(f"{sent:,} requests in {time.perf_counter() - began:.0f} s")
    print("answers: " + ", ".join(f"{status or 'none'}: {times:,}" for status, times in sorted(answers.items())))
    print(*finding_lines(findings), sep="\n")
    grown = max((each[-1] / each[1] for each in memory.values() if len(each) > 2), default=1.0)
    print(f"{'holds ' if grown < _GROWTH else 'BROKEN'} memory after the second round and after the last: {grown:.2f}")
    print(f"{'BROKEN' if len(findings) else 'holds '} faults: {len(findings)} (none allowed)")
    return int(bool(len(findings)) or grown >= _GROWTH)


if __name__ == "__main__":
    sys.exit(main())
