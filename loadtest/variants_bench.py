"""How long a study of 1,000 variants of a cluster takes from Python: classes that want more and more memory.

The study of docs/tutorial/library.md: each variant is a copy of the example cluster with a class of its own, and some
pods that want a device of the class. Processor time of this process.
"""

import argparse
import time
from collections import Counter
from typing import Any, Final

from rich.console import Console

from extender import Cluster
from tests.kit.objects.parts import DRIVER, api_object, selectors

PATHS: Final = [f"config/example/{name}" for name in ("nodes.yaml", "classes.yaml", "slices")]
MEMORY: Final = f'device.capacity["{DRIVER}"]'
VARIANTS: Final = 1000
PODS: Final = 4


def variant(number: int) -> list[dict[str, Any]]:
    """A class that wants more than a number of times 100 MiB, and pods that want a device of it."""
    size = f"{number * 100}Mi"
    condition = (
        f'device.driver == "{DRIVER}" && "memory" in {MEMORY} && {MEMORY}.memory.isGreaterThan(quantity("{size}"))'
    )
    spec = {"extendedResourceName": "example.com/sized", "selectors": selectors(condition)}
    container = {"name": "train", "resources": {"limits": {"example.com/sized": "1"}}}
    pods = [
        api_object("Pod", f"job-{each}", namespace="default", spec={"containers": [container]}) for each in range(PODS)
    ]
    return [api_object("DeviceClass", "sized", spec=spec), *pods]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", type=int, default=VARIANTS)
    number = parser.parse_args().variants
    empty = Cluster.from_manifests(PATHS)
    began = time.process_time()
    for _ in range(number):
        empty.copy()
    copied = time.process_time()
    placed: Counter[int] = Counter()
    for each in range(number):
        study = empty.copy()
        study.add(*variant(each))
        placed[sum(bool(placement.node) for placement in study.schedule())] += 1
    done = time.process_time()
    console = Console()
    console.print(f"{number} copies: {copied - began:.2f} s, {(copied - began) / number * 1e3:.2f} ms each")
    console.print(
        f"{number} variants with {PODS} pods: {done - copied:.1f} s, {(done - copied) / number * 1e3:.1f} ms each"
    )
    console.print(f"pods with a device: number of variants {dict(sorted(placed.items()))}")


if __name__ == "__main__":
    main()
