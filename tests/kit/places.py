"""Where the files of the repository stand."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CONFIG: Final = ROOT / "config"
EXAMPLE: Final = CONFIG / "example"
