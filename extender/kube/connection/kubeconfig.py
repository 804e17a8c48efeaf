"""The chosen context of a kubeconfig: its cluster and its user, checked, and what their files hold.

A missing field or a wrong type is named by file and field. Several files are merged as in kubectl: the first entry of
each name counts, and the first current-context.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from allocator.tools import Fields, shown
from extender.kube.api import ConnectError
from extender.tools.files import UnreadableError, read_bytes, read_text
from extender.tools.user_error import suggestion
from extender.tools.yamltext import single_mapping

_LISTS: Final[Mapping[str, str]] = {"contexts": "context", "clusters": "cluster", "users": "user"}
"""The lists of a kubeconfig, and the field of their entries beside the name."""

_CURRENT: Final = "current-context"


@dataclass(frozen=True, slots=True)
class Entry:
    """A named entry of a list, and the folder of its file, where relative paths start."""

    fields: Fields
    folder: Path

    def content(self, name: str) -> bytes:
        """What a field gives in base64, or as a file; empty if it gives nothing.

        Raises:
            UnreadableError: the file cannot be read.
        """
        if self.fields.has(f"{name}-data"):
            return base64.standard_b64decode(self.fields.text(f"{name}-data"))
        path = self.fields.text(name)
        return read_bytes(self.folder / path) if path else b""


@dataclass(frozen=True, slots=True)
class ChosenContext:
    """The chosen part of a kubeconfig.

    Attributes:
        context: name of the context.
        cluster: its cluster.
        user: its user.
        namespace: that of the context; empty: none is given.
    """

    context: str
    cluster: Entry
    user: Entry
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    top: Fields


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
    if problems or choice is None:
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


def _chosen(files: list[_File], context: str) -> ChosenContext | None:
    """The chosen context, checked; None if there is none. Problems are noted in the files."""
    contexts, clusters, users = (_entries(files, plural) for plural in _LISTS)
    top = next((file.top for file in files if file.top.has(_CURRENT)), files[0].top)
    name = context or top.required_text(_CURRENT)
    chosen = _find(contexts, name, "contexts", top, "--context" if context else _CURRENT)
    if chosen is None:
        return None
    cluster, user = (
        _find(entries, chosen.fields.required_text(field), f"{field}s", chosen.fields, field)
        for field, entries in (("cluster", clusters), ("user", users))
    )
    if cluster is not None:
        _check_cluster(cluster)
    if user is not None:
        _check_user(user)
    namespace = chosen.fields.text("namespace")
    return None if cluster is None or user is None else ChosenContext(name, cluster, user, namespace)


def _entries(files: list[_File], plural: str) -> Mapping[str, Entry]:
    """The entries of a list of all files, by name."""
    found: dict[str, Entry] = {}
    for file in files:
        for each in file.top.children(plural):
            name, field = each.required_text("name"), _LISTS[plural]
            if name and name not in found:
                inner = Fields(each.data, f"{plural}[{name}]", file.top.problems)
                found[name] = Entry(inner.child(field), file.path.parent)
    return found


def _find(entries: Mapping[str, Entry], name: str, plural: str, where: Fields, field: str) -> Entry | None:
    """The entry that a field names; None if it is missing, which is noted."""
    if name and name not in entries:
        known = suggestion(name, entries) if entries else ": there are none"
        where.problem(field, f"{shown(name)} is not one of {plural}{known}")
    return entries.get(name)


def _check_cluster(cluster: Entry) -> None:
    fields = cluster.fields
    server = fields.required_text("server")
    if server and not _is_address(server):
        fields.problem("server", f"{shown(server)} is not an address such as https://10.0.0.1:6443")
    fields.flag("insecure-skip-tls-verify")
    _check_texts(fields, "tls-server-name", "proxy-url")
    _check_content(cluster, "certificate-authority")


def _check_user(user: Entry) -> None:
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


def _check_content(entry: Entry, name: str) -> None:
    """Check content that is given in base64, or as a file."""
    inline = f"{name}-data"
    data = entry.fields.text(inline)
    if not entry.fields.has(inline):
        _check_file(entry, name)
    try:
        base64.standard_b64decode(data)
    except ValueError:
        entry.fields.problem(inline, "is not base64")


def _check_file(entry: Entry, name: str) -> None:
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
