"""Records the corpus, and compares it with a recording of another revision.

``python -m tests.corpus --to FOLDER`` plays all worlds and writes a recording. ``--against WHAT`` compares with the
recording in a folder, or with one that is made now of a git revision, by the corpus of that revision, and prints the
first differences. The exit code is 1 if there are any.

A recording depends on nothing but the revision: Python's hashes have a fixed seed. ``--hash-seed`` sets another one, to
find answers that depend on the order of sets.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.corpus.comparing import any_order, differences, report
from tests.corpus.player import WORLDS, play
from tests.corpus.reach import measured, reach
from tests.corpus.recording import TEXTS, Entry, read, write
from tests.kit.places import ROOT

_SEED: Final = "PYTHONHASHSEED"
_ROOT: Final = ROOT
_CORPUS: Final = "tests/corpus"


class CorpusError(Exception):
    """There is nothing to compare with; the text says why."""


def record(folder: Path, worlds: Sequence[int], jobs: int) -> int:
    """Play worlds and write their recording; returns the number of calls."""
    pool = get_context("spawn").Pool(jobs)
    try:
        calls = write(_entries(pool.imap(play, worlds)), folder)
    finally:
        pool.close()
        pool.join()
    return calls


def _entries(played: Iterator[list[Entry]]) -> Iterator[Entry]:
    for entries in played:
        yield from entries


@contextmanager
def recording_of(what: str, options: Sequence[str]) -> Iterator[Path]:
    """A recording: of a folder that has one, or of a git revision; then it is there within the context.

    Args:
        what: the folder, or the revision.
        options: with which a revision is recorded.

    Raises:
        CorpusError: there is no such recording and no such revision, or the revision has no corpus.
    """
    if (Path(what) / TEXTS).is_file():
        yield Path(what)
        return
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _check_out(what, tree)
        _warn(what)
        command = [sys.executable, "-m", "tests.corpus", "--to", f"{folder}/recording", *options]
        subprocess.run(command, check=True, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)})
        yield Path(folder) / "recording"


def _check_out(revision: str, tree: Path) -> None:
    """The files of a revision, in a folder."""
    git = shutil.which("git") or "git"
    archive = subprocess.run([git, "archive", revision], cwd=_ROOT, capture_output=True, check=False)
    if archive.returncode:
        raise CorpusError(f"{revision} is neither a folder with a recording nor a revision of git")
    tree.mkdir()
    subprocess.run(["tar", "-x"], cwd=tree, input=archive.stdout, check=True)
    if not (tree / _CORPUS / "__main__.py").is_file():
        raise CorpusError(f"revision {revision} has no {_CORPUS}")


def _warn(revision: str) -> None:
    git = shutil.which("git") or "git"
    changed = subprocess.run([git, "diff", "--quiet", revision, "--", _CORPUS], cwd=_ROOT, check=False)
    if changed.returncode:
        print(f"note: {_CORPUS} is not the same in {revision}: its worlds may differ, too", flush=True)


def compare(before: Path, after: Path, *, worlds: int, is_any_order: bool) -> int:
    """Print the differences of two recordings; returns 1 if there are any."""
    both = [any_order(read(each)) if is_any_order else read(each) for each in (before, after)]
    found = differences(*both)
    for line in report(found, worlds):
        print(line)
    return 1 if found else 0


def main() -> int:
    """Record, compare, or measure what the corpus reaches; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=Path(".corpus"), help="folder of the recording; .corpus")
    parser.add_argument("--against", metavar="WHAT", help="folder with a recording, or git revision, to compare with")
    parser.add_argument(
        "--differences", type=int, default=5, metavar="N", help="worlds whose first difference is shown"
    )
    parser.add_argument(
        "--any-order", action="store_true", help="pass over revisions, and the order of writes between two answers"
    )
    parser.add_argument("--worlds", type=int, nargs=2, default=[0, WORLDS], metavar=("FIRST", "END"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--hash-seed", type=int, default=0, metavar="N")
    parser.add_argument("--reach", action="store_true", help="print what of extender/ is reached")
    chosen = parser.parse_args()
    if os.environ.get(_SEED) != str(chosen.hash_seed):
        again = [sys.executable, "-m", "tests.corpus", *sys.argv[1:]]
        os.execve(sys.executable, again, os.environ | {_SEED: str(chosen.hash_seed)})  # noqa: S606 - this program
    options = ["--worlds", *map(str, chosen.worlds), "--jobs", str(chosen.jobs), "--hash-seed", str(chosen.hash_seed)]
    if chosen.reach:
        with measured(["-m", "tests.corpus", "--to", str(chosen.to), *options]) as data:
            print("\n".join(reach(data)))
        return 0
    calls = record(chosen.to, range(*chosen.worlds), chosen.jobs)
    print(f"{calls} calls in {chosen.to}", flush=True)
    if chosen.against is None:
        return 0
    try:
        with recording_of(chosen.against, options) as before:
            return compare(before, chosen.to, worlds=chosen.differences, is_any_order=chosen.any_order)
    except CorpusError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
