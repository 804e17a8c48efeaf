"""Equal pods are placed like any pods that have their turns, only faster."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.objects.kueue import parse_workload
from extender.planning.planner import Planner, Queued
from extender.plugins.admission_checks.jobs import copies, stand_in
from extender.plugins.admission_checks.judging import place_equal
from tests.extender.plugins.admission_checks.scenes import pods, template, workload
from tests.kit.clusters import GPU, claim, claim_template, local_slice, node, pod, request, snapshot_of, solver
from tests.kit.objects.quotas import limited, quota


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 5), max_size=5),
    each=st.integers(1, 3),
    number=st.integers(0, 12),
    most=st.none() | st.integers(1, 8),
    shared=st.booleans(),
)
def test_equal_pods_get_what_they_would_get_in_turns(
    sizes: list[int], each: int, number: int, most: int | None, shared: bool
) -> None:
    machines = [one for place, size in enumerate(sizes) for one in (node(f"n{place}"), local_slice(f"n{place}", size))]
    busy = [claim("c", allocated=["n0/gpu-0"], at="n0", users=["p"]), pod("p", "c", on="n0")] if sizes[:1] > [0] else []
    limits = [] if most is None else [quota(limited(devices=most))]
    asked = claim("own", request(count=each)) if shared else claim_template("own", request(count=each))
    of = template(claim="own") if shared else template("own")
    job = parse_workload(workload("j", pods(count=number, of=of)))
    snapshot = snapshot_of(GPU, asked, *machines, *busy, *limits)
    names, planner = sorted(snapshot.nodes), Planner.remembering(solver())
    planner.decider.follow(snapshot)
    like = stand_in(job, 0, snapshot).pod
    found = place_equal(like, number, snapshot, names, planner)
    turns = planner.long_turns([Queued(one, "") for one in copies(like, number)], snapshot, names)
    assert found.number == len(turns.nodes)
    assert (found.refusal is None) == (found.number == number)
    held = sum(len(every.results) for uid in found.fork.claim_keys for every in found.fork.held_by(uid))
    assert held == sum(len(every.results) for uid in turns.snapshot.claim_keys for every in turns.snapshot.held_by(uid))


def test_when_the_time_is_up_it_is_known_how_many_were_placed() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.1
        return now[0]

    snapshot = snapshot_of(GPU, claim_template(), node("n"), local_slice("n", 500))
    like = stand_in(parse_workload(workload("j", pods(count=400))), 0, snapshot).pod
    planner = Planner.remembering(replace(solver(), clock=clock).within(10.0))
    planner.decider.follow(snapshot)
    found = place_equal(like, 400, snapshot, ["n"], planner)
    assert 0 < found.number < 400
    assert found.refusal is None
