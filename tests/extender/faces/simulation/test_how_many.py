"""The tutorial on how many nodes are needed: its programs run one after the other, as the cells of a notebook."""

import asyncio
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Final

from tests.kit.places import ROOT

PAGE: Final = (ROOT / "docs" / "tutorial" / "how-many.md").read_text()
CELLS: Final = re.findall(r"^```python\n(.*?)^```\n\n^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
BETWEEN: Final = "--- the next cell"


async def test_the_cells_print_what_the_page_shows_and_the_last_one_plots(tmp_path: Path) -> None:
    """With ``PICTURES=docs/images``, the picture of the page is taken again."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    notebook = f"\nprint({BETWEEN!r})\n".join(program for program, _ in CELLS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", notebook), stdout=PIPE, cwd=tmp_path, env=environment
    )
    printed = (await process.communicate())[0].decode()
    assert printed.split(f"{BETWEEN}\n") == [shown for _, shown in CELLS]
    picture = tmp_path / "waiting.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    if folder := os.environ.get("PICTURES"):
        shutil.copy(picture, ROOT / folder / "how-many.png")


def test_every_program_of_the_page_is_a_cell() -> None:
    assert len(CELLS) == PAGE.count("```python") == 5
