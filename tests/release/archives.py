"""Archives that depend on names and contents of files alone: equal files give equal archives."""

import gzip
import hashlib
import tarfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path


def pack(archive: Path, root: Path, names: Iterable[str], *, prefix: str, epoch: int) -> None:
    """Write a .tar.gz.

    Args:
        archive: to write.
        root: folder of the files.
        names: of files and folders in it; a folder is packed with all that is in it.
        prefix: folder of the files in the archive.
        epoch: the time of all files, in seconds.
    """
    named = [root / name for name in names]
    found = (path for each in named for path in ([each] if each.is_file() else each.rglob("*")))
    body = BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as files:
        for path in sorted({each for each in found if each.is_file()}):
            entry = tarfile.TarInfo(f"{prefix}/{path.relative_to(root)}")
            entry.size, entry.mtime = path.stat().st_size, epoch
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                files.addfile(entry, content)
    archive.write_bytes(gzip.compress(body.getvalue(), mtime=epoch))


def checksums(folder: Path) -> str:
    """The sums of all files of a folder, as ``sha256sum --check`` reads them."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def differences(first: Path, second: Path) -> list[str]:
    """The names of files that are not in both folders with the same bytes."""
    one, other = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in (first, second))
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
