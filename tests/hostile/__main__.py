"""``python -m tests.hostile``: the service among hostile objects and requests; see docs/testing.md.

Ends with status 1 if a bound is broken. ``--only LABEL`` delivers one case alone, by its seed and number.
"""

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

import uvloop

from extender.tools.offload import in_one_piece
from tests.hostile import inprocess, listeners
from tests.hostile.report import bound_lines, bounds, finding_lines, lines
from tests.hostile.runner import Plan, cases_of, run, stage
from tests.hostile.trial import Case

_SHORT = {"requests": 2000, "objects": 500, "selectors": 400}
_LONG = {"requests": 100_000, "objects": 10_000, "selectors": 3000}
_ATTACKS_SHORT, _ATTACKS_LONG = 100, 2000
"""On each port with TLS."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="without it a random one, which is printed")
    for name, number in _LONG.items():
        parser.add_argument(f"--{name}", type=int, default=None, help=f"{number:,}; {_SHORT[name]:,} in the short form")
    parser.add_argument("--short", action="store_true", help="about a minute; latencies count as ratios")
    parser.add_argument("--pages", action="store_true", help="lists come in pages, not in streams")
    parser.add_argument("--only", metavar="LABEL", help="one case, as object:17, request:4711 or selector:5")
    parser.add_argument(
        "--part",
        choices=("all", "process", "service", "listeners"),
        default="all",
        help="in this process, over sockets, or the ports with TLS",
    )
    return parser.parse_args()


async def _alone(plan: Plan, label: str) -> int:
    """Deliver one case to the service."""
    sort, _, number = label.partition(":")
    objects, requests = cases_of(plan)
    case: Case = objects.make(int(number)) if sort == "object" else requests.make(int(number))
    print(f"{case.label}: {case.told} ({case.size:,} bytes)")
    with tempfile.TemporaryDirectory() as name:
        async with stage(plan, Path(name)) as trial:
            trial.service.reset_peak()
            faults, longest = await trial.alone(case)
            peak = max(trial.service.peak, trial.service.peak_now())
    print(f"the process did not answer for {longest * 1e3:.0f} ms at most; peak {peak / 1e6:.0f} MB")
    for signature, detail in faults.items():
        print(f"FAULT: {signature}\n{detail[-3000:]}")
    return 1 if faults else 0


def main() -> int:
    """Run, report, and judge."""
    args = _arguments()
    sizes = _SHORT if args.short else _LONG
    given = {name: number if (wanted := getattr(args, name)) is None else wanted for name, number in sizes.items()}
    seed = secrets.randbelow(1_000_000) if args.seed is None else args.seed
    plan = Plan(
        seed, **given, calm=5.0 if args.short else 20.0, tracing=60.0 if args.short else 1800.0, streams=not args.pages
    )
    if args.only:
        sort, _, number = args.only.partition(":")
        status = inprocess.only(seed, plan.selectors, sort, int(number))
        return status if sort == "selector" else max(status, uvloop.run(_alone(plan, args.only)))
    print(f"seed {seed}", flush=True)
    broken: list[str] = []
    if args.part in {"all", "process"}:
        found = in_one_piece(lambda: inprocess.run(seed, plan.objects, plan.selectors, plan.objects))
        print(*inprocess.lines(found), *finding_lines(found.findings), sep="\n", flush=True)
        broken += [f"in this process: {each.signature}: --only {each.label}: {each.detail}" for each in found.findings]
    if args.part in {"all", "listeners"}:
        held = listeners.main(seed, _ATTACKS_SHORT if args.short else _ATTACKS_LONG)
        broken += [f"ports with TLS: {bound.told}" for bound in held if not bound.holds]
    if args.part in {"all", "service"}:
        outcome = uvloop.run(run(plan))
        print("", *lines(outcome), sep="\n")
        held = bounds(outcome, short=args.short)
        print(*bound_lines(held), sep="\n")
        broken += [f"over sockets: {bound.told}" for bound in held if not bound.holds]
    # A log of CI may end with this alone.
    for each in broken:
        print(f"BROKEN {each}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
