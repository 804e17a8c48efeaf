"""All selectors of the tests, the examples and the recorded cases. As a program, it prints how many agree."""

import ast
import json
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from allocator import Device, DeviceId, Quantity, Selectors, Version
from allocator.audit import Answer, NotChecked, SecondOpinion
from allocator.cel import CompileError
from extender.plugins.second_opinion.engine import CelPython
from tests.conformance.selectors import device_of
from tests.kit.places import ROOT

RECORDED = ROOT.parent / "shared"
"""Recorded cases and manifests, where they are at hand."""

GPU = Device(
    DeviceId("gpu.example.com", "pool", "gpu-0"),
    attributes={
        "gpu.example.com/model": "a100", "gpu.example.com/index": 3, "gpu.example.com/ecc": True,
        "gpu.example.com/driverVersion": Version.parse("550.54.15"), "gpu.example.com/names": ("a", "b"),
        "resource.kubernetes.io/pcieRoot": "pci0000:01",
    },
    quantities={"gpu.example.com/memory": Quantity.parse("80Gi"), "gpu.example.com/cores": Quantity.parse("64")},
)  # fmt: skip
BARE = Device(DeviceId("nic.example.com", "pool", "nic-0"), attributes={}, quantities={})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


def _of_python(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _of_yaml(path: Path) -> Iterator[str]:
    for document in yaml.load_all(path.read_text(), yaml.CSafeLoader):
        yield from _texts(document)


@cache
def selectors() -> tuple[str, ...]:
    """The texts that compile as selectors, each once."""
    ours, found = Selectors(), set[str]()
    for folder in (ROOT / "tests", ROOT / "config", RECORDED / "manifests"):
        for path in sorted(folder.rglob("*.py")):
            is_about_cel = path.name.startswith("test_cel")
            found.update(text for text in _of_python(path) if is_about_cel or "device." in text)
        for path in sorted(folder.rglob("*.yaml")):
            found.update(text for text in _of_yaml(path) if "device." in text)
    return tuple(sorted(text for text in found if _is_selector(text, ours)))


def _is_selector(text: str, ours: Selectors) -> bool:
    try:
        ours.reads(text)
    except CompileError:
        return False
    return True


def recorded() -> Iterator[tuple[str, Device]]:
    """The recorded cases of upstream, each with its device."""
    for name in ("cel", "cel_extra"):
        path = RECORDED / "vectors" / f"{name}.json"
        for case in json.loads(path.read_text()) if path.is_file() else ():
            if not case["actual"]["compileError"] and not case.get("derivedAttribute"):
                yield case["expression"], device_of(case["device"])


def compared() -> tuple[Counter[str], Counter[str], list[tuple[str, Answer, Answer]]]:
    """Pairs of selector and device by result, the reasons of those that are not checked, and the disagreements."""
    opinion = SecondOpinion(Selectors(), CelPython(time.monotonic))
    results, reasons, different = Counter[str](), Counter[str](), list[tuple[str, Answer, Answer]]()
    pairs = [*((text, device) for text in selectors() for device in (GPU, BARE)), *recorded()]
    for text, device in pairs:
        ours, theirs = opinion.opinions(text, device)
        if isinstance(theirs, NotChecked):
            results["not checked"] += 1
            reasons[theirs.why] += 1
        elif ours is theirs:
            results[f"agree: {ours.value}"] += 1
        else:
            results["disagree"] += 1
            different.append((text, ours, theirs))
    return results, reasons, different


if __name__ == "__main__":
    counted, why, disagreed = compared()
    print(len(selectors()), "selectors of tests and examples;", dict(counted))
    print(*why.most_common(40), sep="\n")
    print(*disagreed, sep="\n")
