"""``python -m tests.soak``: an hour's churn in ten minutes; see docs/reliability.md.

Ends with status 1 if anything is wrong in the end.
"""

import argparse
import asyncio
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kit.controlplane.binaries import BinariesError
from tests.kit.waiting import WaitError
from tests.soak.plan import MINUTES, Plan
from tests.soak.run import soak

_LOGS = Path(__file__).parent / ".logs"
_LONG = {"nodes": 1000, "devices": 4, "seconds": 60 * MINUTES, "kills": 5}
_SHORT = {"nodes": 100, "devices": 4, "seconds": 120, "kills": 2}


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} on")
        return int(text)

    return number


def _plan() -> Plan:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in _LONG.items():
        least = 0 if name == "kills" else 1
        usual = f"{number:,}; {_SHORT[name]:,} in the short form"
        parser.add_argument(f"--{name}", type=_at_least(least), default=None, help=usual)
    parser.add_argument("--seed", type=_at_least(0), default=None, help="of all that is random; it is printed")
    parser.add_argument("--short", action="store_true", help="about four minutes, on few nodes")
    args = parser.parse_args()
    sizes = _SHORT if args.short else _LONG
    given = {name: number if (wanted := getattr(args, name)) is None else wanted for name, number in sizes.items()}
    return Plan(seed=secrets.randbelow(1_000_000) if args.seed is None else args.seed, **given)


def main() -> int:
    """Run, and tell the figures."""
    plan = _plan()
    print(plan, flush=True)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)  # what was started is stopped, as for Ctrl-C
    shutil.rmtree(_LOGS, ignore_errors=True)
    _LOGS.mkdir()
    with TemporaryDirectory(prefix="dra-extender-") as folder:
        try:
            figures = asyncio.run(soak(plan, os.environ, Path(folder), _LOGS, lambda line: print(line, flush=True)))
        except (BinariesError, WaitError) as error:
            sys.exit(f"error: {error}")
    print(*figures.lines(), f"logs: {_LOGS}", sep="\n")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
