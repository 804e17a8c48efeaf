"""Writes to files that survive a crash: at any time a file has what was written before, or the new content."""

import os
from pathlib import Path
from typing import IO


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
