"""The version of a release, and whether all files agree about it."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

_SECTION = r"^## \[{}\](?: - (\d{{4}}-\d\d-\d\d))?$"


def version_of(root: Path) -> str:
    """The version in the code."""
    text = (root / "extender" / "tools" / "version.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(found)


def disagreements(root: Path, tag: str) -> Iterator[str]:
    """What does not fit the version in the code.

    Args:
        root: folder of the sources.
        tag: of a release, such as ``v0.1.0``. Empty: a preview, which CHANGELOG.md need not have.
    """
    version = version_of(root)
    chart = yaml.safe_load((root / "deploy" / "chart" / "Chart.yaml").read_text())
    for field in ("version", "appVersion"):
        if chart[field] != version:
            yield f"deploy/chart/Chart.yaml: {field} {chart[field]} is not {version}"
    if not tag:
        return
    if tag != f"v{version}":
        yield f"the tag {tag} is not v{version}, the version in extender/tools/version.py"
    dates = re.findall(_SECTION.format(re.escape(version)), (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if len(dates) != 1 or not dates[0]:
        yield f"CHANGELOG.md: it has no section [{version}] with a date"
