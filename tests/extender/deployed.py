"""The files of deploy/."""

from pathlib import Path
from typing import Any

import yaml

from extender.config.sources import load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def only(path: Path, kind: str) -> Any:
    (found,) = (each for each in documents(path) if each["kind"] == kind)
    return found


DEPLOYMENT = only(DEPLOY / "deployment.yaml", "Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
SCHEDULER_CONFIG = yaml.safe_load((ROOT / "config" / "scheduler.yaml").read_text())
SETTINGS = load((ROOT / "config" / "extender.yaml").read_text())
CHART = DEPLOY / "chart"
