"""The service around the allocator: kube-scheduler's extender over a cluster's state; and a cluster in memory.

`Cluster` is the library: a cluster of manifests or objects, which is scheduled and explained in this process. It and
its values are imported when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from extender.tools.version import __version__ as __version__

if TYPE_CHECKING:
    from extender.answers.defragmentation.advice import Advice
    from extender.answers.explain.explanation import Explanation
    from extender.answers.whatif.answer import WhatIfAnswer
    from extender.answers.whatif.question import QuestionError
    from extender.config.settings import Settings
    from extender.faces.simulation.cluster import (
        Cluster,
        ManifestsError,
        UnknownClaimError,
        UnknownPodError,
        UnreadableFilesError,
    )
    from extender.faces.simulation.scheduling import PlacedDevice, Placement, Placements
    from extender.faces.simulation.workloads import Skipped
    from extender.tools.table import Rows

__all__ = [
    "Advice",
    "Cluster",
    "Explanation",
    "ManifestsError",
    "PlacedDevice",
    "Placement",
    "Placements",
    "QuestionError",
    "Rows",
    "Settings",
    "Skipped",
    "UnknownClaimError",
    "UnknownPodError",
    "UnreadableFilesError",
    "WhatIfAnswer",
]

if not TYPE_CHECKING:  # type checkers know the names already, and would take any other name for granted
    _MODULES: Final = {
        "Advice": "answers.defragmentation.advice",
        "Cluster": "faces.simulation.cluster",
        "Explanation": "answers.explain.explanation",
        "ManifestsError": "faces.simulation.cluster",
        "PlacedDevice": "faces.simulation.scheduling",
        "Placement": "faces.simulation.scheduling",
        "Placements": "faces.simulation.scheduling",
        "QuestionError": "answers.whatif.question",
        "Rows": "tools.table",
        "Settings": "config.settings",
        "Skipped": "faces.simulation.workloads",
        "UnknownClaimError": "faces.simulation.cluster",
        "UnknownPodError": "faces.simulation.cluster",
        "UnreadableFilesError": "faces.simulation.cluster",
        "WhatIfAnswer": "answers.whatif.answer",
    }

    def __getattr__(name: str) -> object:
        """A name of the library. Raises AttributeError: there is no such name."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__() -> list[str]:
        """The names of the library."""
        return [*__all__, "__version__"]
