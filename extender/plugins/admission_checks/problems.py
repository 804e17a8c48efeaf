"""Admission checks are on, and nobody asks: Kueue is not installed, or no AdmissionCheck names the controller."""

from collections.abc import Iterator

from extender.cluster.objects.kueue import AdmissionCheck
from extender.config.settings import Settings
from extender.framework.problem import Find, Look, Problem
from extender.kube.api import ObjectKey
from extender.kube.resources import ADMISSION_CHECKS
from extender.plugins.admission_checks import CONTROLLER


def problems(settings: Settings) -> Find:
    """What looks for that, with some settings."""

    def find(look: Look) -> Iterator[Problem]:
        checks = look.snapshot.objects(AdmissionCheck).values()
        if settings.admission_checks.enabled and all(each.controller != CONTROLLER for each in checks):
            text = f"admissionChecks.enabled is on, and no AdmissionCheck has controllerName {CONTROLLER}"
            cost = "Kueue admits jobs without asking whether there are devices"
            advice = "install Kueue 0.17 or later, and make an AdmissionCheck that ClusterQueues name; or turn it off"
            yield Problem("admission-check", ADMISSION_CHECKS.kind, ObjectKey("", CONTROLLER), text, cost, advice)

    return find
