"""Input that commands read before they do their work: settings, manifests, names of pods."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from allocator import DEFAULTS_OF
from allocator.tools import JSON
from extender.config.settings import Settings
from extender.config.sources import load as load_settings
from extender.faces.commands.options import text_of
from extender.faces.commands.output import fail, note, refuse
from extender.kube.claim_rules import check_expression
from extender.kube.discovery import server_gates
from extender.kube.remote import RemoteApi
from extender.kube.resources import BUDGETS, RESOURCES
from extender.lab.manifests import (
    DEFAULT_NAMESPACE,
    Loaded,
    duplicates,
    over_quota,
    prioritized,
    priority_classes,
    unauthorized,
)
from extender.lab.manifests import load as load_manifests

EXPLAINED: Final = tuple(each for each in RESOURCES.values() if each != BUDGETS and not each.is_aside)
"""The kinds that an explanation reads."""


def settings_of(config: Path | None, flags: dict[str, JSON] | None = None) -> Settings:
    """The settings from file, environment and flags. Raises SettingsError: they are invalid."""
    text = text_of(config) if config else None
    return load_settings(text, file=str(config), environment=os.environ, flags=flags or {})


async def settings_on(api: RemoteApi, settings: Settings) -> Settings:
    """The settings with the API server's feature gates; a note says if it does not tell them."""
    told = await server_gates(api.transport)
    if told.problem:
        version = ".".join(map(str, DEFAULTS_OF))
        why = f"the API server does not tell its own: {told.problem}"
        note(f"feature gates are the defaults of Kubernetes {version}: {why}")
    return settings.over(told.gates)


def manifests_of(paths: Sequence[Path], namespace: str = DEFAULT_NAMESPACE) -> Loaded:
    """The objects of some files; ends the command if files cannot be opened.

    Args:
        paths: files and folders.
        namespace: of objects that name none.
    """
    loaded = load_manifests(paths, check_expression, namespace=namespace)
    if loaded.unreadable:
        fail(*loaded.unreadable)
    return loaded


def one_cluster(command: str, paths: Sequence[Path]) -> Loaded:
    """The objects of one cluster: ends the command if any are invalid or appear twice."""
    check_given(command, paths)
    loaded = manifests_of(paths)
    refuse((*loaded.problems, *duplicates(loaded.objects)))
    return loaded


def new_cluster(command: str, paths: Sequence[Path]) -> Loaded:
    """Like `one_cluster`, with the priorities of pods; ends the command if an API server would refuse an object."""
    loaded = one_cluster(command, paths)
    classes, refused = priority_classes(loaded.documents)
    documents, unprioritized = prioritized(loaded.documents, classes)
    loaded = replace(loaded, documents=tuple(documents))
    refuse((*refused, *unprioritized, *unauthorized(loaded.objects), *over_quota(loaded.objects)))
    return loaded


def check_given(command: str, paths: Sequence[Path]) -> None:
    """End the command if it was given no manifests."""
    if not paths:
        fail(f"{command} needs PATH... or --manifests PATH...")


def check_pod_name(pod: str) -> None:
    """End the command if a text is not POD or NAMESPACE/POD."""
    namespace, slash, name = pod.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        fail(f"{pod}: expected POD or NAMESPACE/POD")
