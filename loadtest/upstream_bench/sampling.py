"""Processor time of processes beside the test process, sampled while they run."""

import contextlib
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from loadtest.endtoend.processor import used

_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Series:
    """How much processor time a process had used by when.

    Attributes:
        times: seconds since 1970, ascending.
        used: seconds of processor time.
    """

    times: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    def between(self, begin: float, end: float) -> float:
        """Seconds of processor time that were used in between; between two samples, it is a straight line."""
        return self._at(end) - self._at(begin)

    def _at(self, moment: float) -> float:
        if not self.times:
            return 0.0
        after = bisect_left(self.times, moment)
        if after == 0:
            return self.used[0]
        if after == len(self.times):
            return self.used[-1]
        share = (moment - self.times[after - 1]) / (self.times[after] - self.times[after - 1])
        return self.used[after - 1] + share * (self.used[after] - self.used[after - 1])


@contextmanager
def sampled(processes: Callable[[], Mapping[str, int]]) -> Iterator[Mapping[str, Series]]:
    """Within, the processes are sampled ten times a second; their series by name.

    Args:
        processes: those that are there now, by name.
    """
    found: dict[str, Series] = {}
    ended = threading.Event()
    sampler = threading.Thread(target=_sample, args=(processes, found, ended), daemon=True)
    sampler.start()
    try:
        yield found
    finally:
        ended.set()
        sampler.join()


def _sample(processes: Callable[[], Mapping[str, int]], found: dict[str, Series], ended: threading.Event) -> None:
    while not ended.wait(_EVERY):
        for name, pid in processes().items():
            with contextlib.suppress(OSError):
                seconds = used({name: pid})[name]
                series = found.setdefault(name, Series())
                series.times.append(time.time())
                series.used.append(seconds)
