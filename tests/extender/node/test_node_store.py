"""The store of what claims hold: after a write that ends at any byte, it has what was saved last, whole."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.node.driver import DriverParameters
from extender.node.store import Portion, Removal, ResourceSet, ResourceStore, StoreError

EXAMPLES = int(os.environ.get("STORE_EXAMPLES", "30"))
CPUS = range(8)


def held(*cpus: int, claim: str = "ns/c") -> ResourceSet:
    """With a driver for claims of several CPUs, which has given the lowest to a container."""
    given = {f"dra.cpu/claim=uid-{cpu}": cpu for cpu in cpus}
    if len(cpus) < 2:
        return ResourceSet(claim, given)
    portions = {"container-1": Portion("ns/p/main", frozenset({min(cpus)}), exclusive=True)}
    parameters = (DriverParameters(("cpus",), {"cci driver": "one.example.com", "cores": ["2"]}),)
    return ResourceSet(claim, given, {}, frozenset({max(cpus)}), "one.example.com", parameters, portions)


@contextmanager
def ending_at(size: int) -> Iterator[None]:
    """Within, the kernel refuses to write beyond this byte of any file: what is on disk then is what a kill leaves."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


KEYS = st.sampled_from([f"dra.cpu/uid-{number}" for number in range(5)])
ADD = st.tuples(st.just("add"), KEYS, st.sets(st.sampled_from(CPUS), max_size=3))
REMOVE: st.SearchStrategy[tuple[str, str, frozenset[int]]] = st.tuples(st.just("remove"), KEYS, st.just(frozenset()))
SAVE: st.SearchStrategy[tuple[str, int | None, frozenset[int]]] = st.tuples(
    st.just("save"), st.none() | st.integers(0, 1200), st.just(frozenset())
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.one_of(ADD, REMOVE, SAVE), max_size=40))
def test_law_load_gives_what_was_saved_last(operations: list[tuple[str, str | int | None, frozenset[int]]]) -> None:
    with TemporaryDirectory() as folder:
        path, store = Path(folder) / "state", ResourceStore(CPUS)
        saved: tuple[dict[str, ResourceSet], list[Removal]] = ({}, [])
        for operation, about, cpus in operations:
            if operation == "save":
                try:
                    with ending_at(resource.RLIM_INFINITY if about is None else int(about)):
                        store.save(path)
                    saved = dict(store.sets), [*store.removals]
                except OSError:
                    assert about is not None
                found = ResourceStore(CPUS)
                found.load(path)
                assert (found.sets, found.removals) == saved
            elif operation == "remove":
                store.remove_resource(str(about))
                store.removals.append(Removal("one.example.com", "ns/c", "uid-c", str(about)))
            else:
                others = {cpu for key, each in store.sets.items() if key != about for cpu in each.cpus.values()}
                if others & cpus:
                    with pytest.raises(StoreError):
                        store.add_resource(str(about), held(*cpus))
                else:
                    store.add_resource(str(about), held(*cpus))
            used = [cpu for each in store.sets.values() for cpu in each.cpus.values()]
            assert len(used) == len(set(used))
            assert store.available_resources() == set(CPUS) - set(used)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_law_a_file_with_a_changed_byte_or_without_its_end_is_refused(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path, store = Path(folder) / "state", ResourceStore(CPUS)
        store.add_resource("dra.cpu/uid-1", held(1, 2))
        store.save(path)
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at] ^= data.draw(st.integers(1, 255))
        else:
            del content[at:]
        path.write_bytes(content)
        with pytest.raises(StoreError, match=r"state: "):
            ResourceStore(CPUS).load(path)


def test_a_claim_gets_no_cpu_of_another_and_none_that_is_reserved() -> None:
    store = ResourceStore(CPUS)
    store.add_resource("a", held(1, claim="ns/a"))
    with pytest.raises(StoreError, match="claim ns/b: CPU 1 is of claim ns/a"):
        store.add_resource("b", held(1, 2, claim="ns/b"))
    with pytest.raises(StoreError, match="claim ns/b: CPU 8 is reserved, offline, or not of this machine"):
        store.add_resource("b", held(8, claim="ns/b"))
    assert store.sets.keys() == {"a"}


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    body = '{"resourceSets": {}, "version": 3}'
    (tmp_path / "state").write_text(f"{sha256(body.encode()).hexdigest()}\n{body}\n")
    with pytest.raises(StoreError, match="has version 3, and this program reads version 2"):
        ResourceStore(CPUS).load(tmp_path / "state")
