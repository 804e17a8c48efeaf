"""Checks a kubeconfig before it is used: a missing field or a wrong type is named by file and field.

kubernetes-asyncio, which reads it later, checks little. Several files are merged as in kubectl: the first entry of each
name counts, and the first current-context.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from allocator.tools import Fields, shown
from extender.kube.errors import ConnectError
from extender.tools.text_file import UnreadableError, read_bytes, read_text
from extender.tools.wording import suggestion
from extender.tools.yamltext import single_mapping

_LISTS: Final[Mapping[str, str]] = {"contexts": "context", "clusters": "cluster", "users": "user"}
"""The lists of a kubeconfig, and the field of their entries beside the name."""

_CURRENT: Final = "current-context"


@dataclass(frozen=True, slots=True)
class ChosenContext:
    """The chosen part of a kubeconfig.

    Attributes:
        context: name of the context.
        plugin: the command of the user's credential plugin; empty: none.
        namespace: that of the context; empty: none is given.
    """

    context: str
    plugin: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    top: Fields


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named entry of a list, and the folder of its file, where relative paths start."""

    fields: Fields
    folder: Path


def choose(files: str, context: str) -> ChosenContext:
    """Choose a context, and check what will be used of the files.

    Args:
        files: paths, separated as in KUBECONFIG; missing files are ignored.
        context: its name; empty: the current one.

    Raises:
        ConnectError: all problems, each with file, field and value.
    """
    paths = [Path(path).expanduser() for path in files.split(os.pathsep) if path]
    found = [_read(path) for path in paths if os.access(path, os.F_OK)]
    if not found:
        raise ConnectError(f"{files}: no such file")
    choice = _chosen(found, context)
    problems = [f"{file.path}: {problem}" for file in found for problem in file.top.problems]
    if problems:
        raise ConnectError(*problems)
    return choice


def _read(path: Path) -> _File:
    try:
        tree = single_mapping(read_text(path))
    except (UnreadableError, ValueError) as error:
        raise ConnectError(f"{path}: {error}") from error
    if tree is None:
        raise ConnectError(f"{path}: is empty: expected clusters, users, contexts and current-context")
    return _File(path, Fields(tree, "", []))


def _chosen(files: list[_File], context: str) -> ChosenContext:
    """The chosen context, checked; problems are noted in the files."""
    contexts, clusters, users = (_entries(files, plural) for plural in _LISTS)
    top = next((file.top for file in files if file.top.has(_CURRENT)), files[0].top)
    name = context or top.required_text(_CURRENT)
    chosen = _find(contexts, name, "contexts", top, "--context" if context else _CURRENT)
    if chosen is None:
        return ChosenContext(name)
    cluster, user = (
        _find(entries, chosen.fields.required_text(field), f"{field}s", chosen.fields, field)
        for field, entries in (("cluster", clusters), ("user", users))
    )
    if cluster is not None:
        _check_cluster(cluster)
    namespace = chosen.fields.text("namespace")
    if user is None:
        return ChosenContext(name, namespace=namespace)
    _check_user(user)
    return ChosenContext(name, user.fields.child("exec").text("command"), namespace)


def _entries(files: list[_File], plural: str) -> Mapping[str, _Entry]:
    """The entries of a list of all files, by name."""
    found: dict[str, _Entry] = {}
    for file in files:
        for each in file.top.children(plural):
            name, field = each.required_text("name"), _LISTS[plural]
            if name and name not in found:
                inner = Fields(each.data, f"{plural}[{name}]", file.top.problems)
                found[name] = _Entry(inner.child(field), file.path.parent)
    return found


def _find(entries: Mapping[str, _Entry], name: str, plural: str, where: Fields, field: str) -> _Entry | None:
    """The entry that a field names; None if it is missing, which is noted."""
    if name and name not in entries:
        known = suggestion(name, entries) if entries else ": there are none"
        where.problem(field, f"{shown(name)} is not one of {plural}{known}")
    return entries.get(name)


def _check_cluster(cluster: _Entry) -> None:
    fields = cluster.fields
    server = fields.required_text("server")
    if server and not _is_address(server):
        fields.problem("server", f"{shown(server)} is not an address such as https://10.0.0.1:6443")
    fields.flag("insecure-skip-tls-verify")
    _check_texts(fields, "tls-server-name", "proxy-url")
    _check_content(cluster, "certificate-authority")


def _check_user(user: _Entry) -> None:
    fields = user.fields
    _check_texts(fields, "token", "username", "password")
    _check_content(user, "client-certificate")
    _check_content(user, "client-key")
    if not fields.has("token"):
        _check_file(user, "tokenFile")
    plugin = fields.child_or_none("exec")
    if plugin is not None:
        plugin.required_text("command")
        plugin.required_text("apiVersion")
        plugin.texts("args")
        for variable in plugin.children("env"):
            variable.required_text("name")
            if not variable.has("value"):
                variable.problem("value", "is required")
            _check_texts(variable, "value")
    provider = fields.child_or_none("auth-provider")
    if provider is not None:
        provider.required_text("name")


def _check_texts(fields: Fields, *names: str) -> None:
    for name in names:
        fields.text(name)


def _check_content(entry: _Entry, name: str) -> None:
    """Check content that is given in base64, or as a file."""
    inline = f"{name}-data"
    data = entry.fields.text(inline)
    if not entry.fields.has(inline):
        _check_file(entry, name)
    try:
        base64.standard_b64decode(data)
    except ValueError:
        entry.fields.problem(inline, "is not base64")


def _check_file(entry: _Entry, name: str) -> None:
    path = entry.fields.text(name)
    try:
        if path:
            read_bytes(entry.folder / path)
    except UnreadableError as error:
        entry.fields.problem(name, f"{path}: {error}")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
