"""Files that a user names, read as text, and files of ours, written so that they survive a crash.

A user names settings, node templates, kubeconfigs. They are no pipes and devices: these may have no end. A file that is
written has, at any time, what was written before or the new content.
"""

import os
import stat
from pathlib import Path
from typing import IO, Final

MOST_BYTES: Final = 32 * 2**20
"""Far larger than any such file."""

_KINDS: Final = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class UnreadableError(Exception):
    """A file cannot be read. The text says why, without the path."""

    def __init__(self, why: object) -> None:
        super().__init__(f"cannot be read: {why}")


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark.

    Raises:
        UnreadableError: it is not a regular file, too long, not UTF-8, or cannot be read.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError("it is not text in UTF-8") from error


def read_bytes(path: Path) -> bytes:
    """The content of a file. Raises UnreadableError: it is not a regular file, too long, or cannot be read."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
            if kind != stat.S_IFREG:
                raise UnreadableError(f"it is {_KINDS.get(kind, 'something else')}, not a file")
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnreadableError(error.strerror or error) from error
    except ValueError as error:  # each Python says it in its own words
        raise UnreadableError("its path has a null character") from error
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"it is longer than {MOST_BYTES} bytes")
    return data


class NoTokenError(UnreadableError):
    """A file has no token."""

    def __init__(self) -> None:
        Exception.__init__(self, "a token is one line of printable ASCII")


def bearer(path: str) -> dict[str, str]:
    """The header with the token in a file; nothing if the path is empty.

    Raises:
        UnreadableError: as `read_bytes`.
        NoTokenError: the file has no token.
    """
    if not path:
        return {}
    token = read_bytes(Path(path)).decode("ascii", errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise NoTokenError
    return {"Authorization": f"Bearer {token}"}


def replace_durably(path: Path, content: str) -> None:
    """Give a file a new content; at any time it has the former content or this one. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        _write(file, content)
    new.replace(path)
    _keep_names(path.parent)


def append_durably(path: Path, line: str) -> None:
    """Add a line to a file, which is made if there is none. A crash may leave a part of the line. Raises OSError."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        _write(file, line)
    if is_new:
        _keep_names(path.parent)


def _write(file: IO[str], text: str) -> None:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def _keep_names(path: Path) -> None:
    """Keep the names of the files: otherwise a loss of power may undo that one was made or replaced."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
