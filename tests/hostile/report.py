"""What a run has shown, and whether it is within the bounds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.hostile.findings import Findings
from tests.hostile.runner import Outcome, Waited, grouped_by, stalls
from tests.kit.measure import MEGABYTE, percentile

MEMORY: Final = 400 * MEGABYTE
P99_SECONDS: Final = 0.050
P99_RATIO: Final = 40.0
"""To the others' p99 without an attack: what counts in the short form, on machines of any speed."""

_DETAIL: Final = 6
_GROUPS: Final = 10
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that must hold, and what was seen."""

    told: str
    holds: bool


def bounds(outcome: Outcome, *, short: bool) -> list[Bound]:
    """What must hold: faults and answers always; memory and waits among plausible cases, as ratios if short."""
    found = outcome.trial.findings
    unanswered = sum(1 for call in (*outcome.attacked, *outcome.beyond) if call.fault)
    p99, calm = (percentile(_seconds(calls), 99) for calls in (outcome.attacked, outcome.calm))
    late = len(stalls(outcome.attacked))
    always = [
        Bound(f"faults of the service: {len(found)} (none allowed)", not found),
        Bound(f"calls of others without their answer: {unanswered} (none allowed)", not unanswered),
        Bound(
            f"most memory: {outcome.peak / MEGABYTE:.0f} MB (limit {MEMORY / MEGABYTE:.0f} MB)", outcome.peak < MEMORY
        ),
    ]
    if short:
        told = f"p99 of others: {p99 / calm:.1f} times that in calm (limit {P99_RATIO:g})"
        return [*always, Bound(told, p99 < P99_RATIO * calm)]
    return [
        *always,
        Bound(f"p99 of others: {p99 * 1e3:.1f} ms (limit {P99_SECONDS * 1e3:.0f} ms)", p99 < P99_SECONDS),
        Bound(f"calls of others that waited over 100 ms longer than for a peer: {late} (none allowed)", not late),
    ]


def bound_lines(found: Sequence[Bound]) -> Iterator[str]:
    """Each bound, and whether it holds."""
    return (f"{'holds ' if bound.holds else 'BROKEN'} {bound.told}" for bound in found)


def lines(outcome: Outcome) -> Iterator[str]:
    """The report but for the bounds."""
    plan, trial = outcome.plan, outcome.trial
    size = f"{plan.objects:,} objects, {plan.requests:,} requests, {plan.selectors:,} claims with hostile selectors"
    left_out = f"{trial.left_out:,} left out, as like some that were at fault"
    took = f"{outcome.seconds:.0f} s, {trial.service.starts} starts of the service"
    yield f"seed {plan.seed}: {size}; {trial.delivered:,} delivered, {left_out}; {took}"
    yield "others, ms:      calls      p50      p99      max   over 100 ms   beyond the machine"
    yield _row("in calm", outcome.calm)
    yield _row("attacked", outcome.attacked)
    yield _row("beyond", outcome.beyond)
    yield f"most memory of all: {trial.service.peak / MEGABYTE:.0f} MB"
    if outcome.calm and outcome.attacked:
        p50, p99 = (percentile(_seconds(outcome.attacked), n) / percentile(_seconds(outcome.calm), n) for n in (50, 99))
        yield f"ratio of attacked to calm: p50 {p50:.1f}, p99 {p99:.1f}"
    yield from (
        f"not answering for {seconds * 1e3:.0f} ms: {case.label}, {case.told} ({case.size:,} bytes)"
        for seconds, case in outcome.slow
    )
    late = [
        (max(call.seconds for call in calls), len(calls), span)
        for span, calls in grouped_by(stalls([*outcome.attacked, *outcome.beyond]), outcome.spans)
    ]
    for most, number, span in sorted(late, key=lambda each: -each[0])[:_GROUPS]:
        yield f"{number} calls over 100 ms, at most {most * 1e3:.0f} ms: while {span.told} were delivered"
    yield from finding_lines(trial.findings)
    seen: set[str] = set()
    for call in (*outcome.attacked, *outcome.beyond):
        if call.fault and call.fault not in seen and len(seen) < _DETAIL:
            seen.add(call.fault)
            yield f"others were told: {call.fault[:_LONGEST]}"


def finding_lines(findings: Findings) -> Iterator[str]:
    """Each fault with its smallest case."""
    for each in findings:
        yield f"FAULT ({findings.counts[each.signature]} times): {each.signature}"
        yield f"    {f'--only {each.label}: ' if each.label else ''}{each.told[:600]} ({each.size:,} bytes)"
        yield from (f"    | {line}" for line in each.detail.strip().splitlines()[-_DETAIL:] if each.detail)


def _row(name: str, calls: Sequence[Waited]) -> str:
    if not calls:
        return f"{name:<10} none"
    seconds = _seconds(calls)
    p50, p99, most = (percentile(seconds, percent) * 1e3 for percent in (50, 99, 100))
    over = sum(1 for each in seconds if each > 0.1)
    return f"{name:<10} {len(calls):>10,} {p50:>8.1f} {p99:>8.1f} {most:>8.1f} {over:>12,} {len(stalls(calls)):>18,}"


def _seconds(calls: Sequence[Waited]) -> list[float]:
    return [call.seconds for call in calls] or [0.0]
