"""Runs Kubernetes' own integration tests of DRA: ``python -m tests.upstream_suite``; ``--help`` says more."""

import argparse
import os
import sys
from collections.abc import Sequence

from tests.kit.controlplane.binaries import BinariesError
from tests.kit.suites.binaries import NEWEST, find_etcd, find_suites
from tests.kit.suites.running import SUBJECTS, Subject
from tests.upstream_suite.campaign import Campaign, failing, report, summary
from tests.upstream_suite.known import PACKAGES, SHORT
from tests.upstream_suite.page import PAGE, write_page


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; 1 if a test fails with dra-extender that passes in-tree."""
    chosen = _parser().parse_args(arguments)
    packages = ["all"] if chosen.short else chosen.packages
    environ = {**os.environ, "KUBERNETES": os.environ.get("KUBERNETES") or NEWEST}
    try:
        suites = find_suites(environ, tuple(f"test/integration/dra/{each}".rstrip("/") for each in packages))
        campaign = Campaign(suites, find_etcd(environ), environ, chosen.again)
    except BinariesError as error:
        sys.exit(f"error: {error}")
    if chosen.build:
        return 0
    only = f"^TestDRA$/^all$/^({'|'.join(SHORT)})$" if chosen.short else chosen.only
    subjects: list[Subject] = ["dra-extender"] if chosen.short else chosen.subjects
    broken: list[str] = []
    for package in packages:
        found = {subject: campaign.run(package, subject, only) for subject in subjects}
        for subject, results in found.items():
            print(f"{suites.version} {package or 'dra'} {subject}: {summary(results)}")
            for line in report(results, suites.version):
                print(f"  {line}")
        passed = set(found["in-tree"]) - set(failing(found["in-tree"], suites.version)) if "in-tree" in found else None
        broken += [
            name for name in failing(found.get("dra-extender", {}), suites.version) if passed is None or name in passed
        ]
    if chosen.page:
        write_page()
        print(f"wrote {PAGE}")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream_suite", description=__doc__)
    parser.add_argument("--packages", nargs="*", choices=PACKAGES, default=list(PACKAGES), help='"" is dra itself')
    parser.add_argument("--subjects", nargs="*", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--only", default="", help="the value of go test -run; nothing is kept of such a run")
    parser.add_argument("--short", action="store_true", help="a part of the package all, with dra-extender alone")
    parser.add_argument("--again", action="store_true", help="run also what has been run already")
    parser.add_argument("--page", action="store_true", help="write the page of docs/ from all that has been run")
    parser.add_argument("--build", action="store_true", help="only build")
    return parser


if __name__ == "__main__":
    sys.exit(main())
