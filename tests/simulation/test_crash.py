"""A crash at any AWS call or outside request leaves a state that rings and sweeps complete."""

from __future__ import annotations

import pytest

from tests.simulation.deaths import Place, calm, die_at, faulty, main_job, once_each, places


def run_with_death(place: Place, seed: int, *, faults: bool) -> None:
    world = faulty(seed) if faults else calm(seed)
    die_at(world, place)
    try:
        main_job(world)
        world.check()
    except BaseException as error:
        error.add_note(f"killed {place}, seed {seed}, faults {faults}")
        raise
    if not faults:
        assert world.kills == 1, f"nobody died {place}"


def test_a_crash_at_any_call_or_request_loses_nothing_and_doubles_nothing(exhaustive: bool) -> None:
    found = places(calm())
    assert len(found) > 200
    for place in found if exhaustive else once_each(found, every=4):
        run_with_death(place, 1, faults=False)


def test_a_crash_among_ordinary_faults_loses_nothing_and_doubles_nothing(exhaustive: bool) -> None:
    for seed in range(1, 6 if exhaustive else 2):
        found = places(faulty(seed))
        for place in found if exhaustive else once_each(found, every=20):
            run_with_death(place, seed, faults=True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_main_job_runs_the_same_twice(seed: int) -> None:
    first, second = calm(seed), calm(seed)
    main_job(first)
    main_job(second)
    assert first.rows() == second.rows()
    assert first.receiver.received == second.receiver.received
