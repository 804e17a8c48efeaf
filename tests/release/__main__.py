"""Builds a release of the commit that is checked out: ``python -m tests.release --to dist``.

It is built twice, from two copies of the commit. Files that differ are an error.
"""

import argparse
import shutil
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kit.places import ROOT
from tests.release.archives import differences
from tests.release.building import ReleaseError, build, run, tools_in
from tests.release.trying import tried
from tests.release.version import disagreements, version_of


def main() -> None:
    """Build, compare and try a release."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="folder for the files; what is in it is removed")
    parser.add_argument("--tag", default="", help="of the release, such as v0.1.0; without it, a preview is built")
    parser.add_argument("--uri", required=True, help="where the archive of the plugin for kubectl is published")
    given = parser.parse_args()
    try:
        release(given.to, given.tag, given.uri)
    except ReleaseError as error:
        sys.exit(f"error: {error}")


def release(to: Path, tag: str, uri: str) -> None:
    if run("git", "status", "--porcelain", cwd=ROOT):
        if tag:
            raise ReleaseError("files have changes that are not committed, and a release is of a commit")
        say("changes that are not committed are not part of it")
    epoch = int(run("git", "log", "-1", "--format=%ct", cwd=ROOT))
    with TemporaryDirectory(prefix="dra-extender-release-") as place:
        folder = Path(place)
        sources = [commit(folder / name) for name in ("first", "second")]
        problems = list(disagreements(sources[0], tag))
        if problems:
            raise ReleaseError("; ".join(problems))
        version = version_of(sources[0])
        tools = tools_in(folder / "tools", epoch=epoch, uri=uri)
        built = [folder / f"built-{source.name}" for source in sources]
        for source, target in zip(sources, built, strict=True):
            target.mkdir()
            build(source, target, tools)
        if found := differences(*built):
            raise ReleaseError(f"two builds differ: {', '.join(found)}")
        say(f"two builds of {len(list(built[0].iterdir()))} files are equal, byte for byte")
        (folder / "tried").mkdir()
        for line in tried(built[0], folder / "tried", sources[0], version):
            say(line)
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(built[0], to)
    say(f"{to}: {'release' if tag else 'preview of'} {version}")


def commit(folder: Path) -> Path:
    """The files of the commit that is checked out."""
    folder.mkdir()
    archive = folder / ".archive.tar"
    run("git", "archive", f"--output={archive}", "HEAD", cwd=ROOT)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()
    return folder


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
