"""The file of a controller's allocations: what a crash leaves, what it grows to, and files that are something else."""

import os
from pathlib import Path

import pytest

from extender.controllers import Store
from extender.controllers.store import Entry
from extender.plugins.negotiation.protocol import ClaimAsk, NodeName


def entry(uid: str, license_: str = "1", attempt: int = 1) -> Entry:
    claim = ClaimAsk("ns", uid, uid, attempt, ({"name": "seat", "count": 2},))
    return Entry(claim, NodeName("n", {"site": "a"}), {"devices": {"config": [{"license": license_}]}})


def content(path: Path) -> tuple[dict[str, Entry], dict[str, int]]:
    found = Store.open(path)
    return found.allocated, found.released


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "store.json")
    store.allocate("x", entry("x"))
    store.allocate("y", entry("y"))
    store.release("y", 2)
    return store


def test_next_process_knows_the_same(store: Store) -> None:
    assert content(store.path) == (store.allocated, store.released) == ({"x": entry("x")}, {"y": 2})


def test_change_that_a_crash_has_cut_off_did_not_happen(store: Store) -> None:
    before, whole = content(store.path), store.path.read_bytes()
    store.release("x", 5)
    last = store.path.read_bytes()[len(whole) :]
    for kept in range(len(last)):
        store.path.write_bytes(whole + last[:kept])
        assert content(store.path) == before


def test_changes_after_a_crash_are_whole(store: Store) -> None:
    store.path.write_bytes(store.path.read_bytes() + b'{"uid": "z", "rel')
    successor = Store.open(store.path)
    successor.allocate("w", entry("w"))
    successor.release("x", 3)
    assert content(store.path) == ({"w": entry("w")}, {"y": 2, "x": 3})


def test_first_change_that_a_crash_has_cut_off_did_not_happen(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    path.write_text('{"uid')
    store = Store.open(path)
    store.release("x", 1)
    assert content(path) == ({}, {"x": 1})


def test_write_that_failed_leaves_no_half_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            store.allocate("z", entry("z"))
    assert "z" not in store.allocated
    store.release("x", 4)
    assert content(store.path) == ({}, {"y": 2, "x": 4})


def test_folder_is_on_disk_before_a_new_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a loss of power may bring back the file before, without the changes since."""
    flushed: list[int] = []
    monkeypatch.setattr("os.fsync", lambda number: flushed.append(os.fstat(number).st_ino))
    store, folder = Store.open(tmp_path / "store.json"), tmp_path.stat().st_ino
    store.release("x", 1)
    assert flushed == [store.path.stat().st_ino, folder]
    replaced = []
    for attempt in range(2, 300):
        before = store.path.stat().st_ino
        flushed.clear()
        store.release("x", attempt)
        if store.path.stat().st_ino != before:
            replaced.append(flushed[:2] == [store.path.stat().st_ino, folder])
    assert replaced
    assert all(replaced)


def test_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.json")
    for attempt in range(1, 301):
        store.release("x", attempt)
    assert len(store.path.read_text().splitlines()) < 110
    assert content(store.path) == ({}, {"x": 300})


@pytest.mark.parametrize("text", ["[]", "{}\n", "[]\n", '{"allocated": {}}', '{"uid": "x"}\n', "a\nb\n"])
def test_file_that_is_no_store_is_refused_and_stays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "store.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a file of a store: line 1"):
        Store.open(path)
    assert path.read_text() == text
