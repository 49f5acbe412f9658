"""Storms: no two sections of one name overlap, whatever happens to the programs, on every engine that they share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import leasehold
from journal import History, judge
from servers import Redis, wait_until
from storm import Storm

# The nightly tier gives more seconds, and then all engines that processes share. Redis has a storm of its own.
STORM_S = float(os.environ.get("LEASEHOLD_STORM_SECONDS", "2"))
AT_NIGHT = ("file", "sqlite", "etcd", "zookeeper", "postgres", "mysql")
ENGINES = AT_NIGHT if "LEASEHOLD_STORM_SECONDS" in os.environ else ("file",)
SEED = int(os.environ.get("LEASEHOLD_SEED", "1"))
PYTHON = ("loop", "threads", "tasks", "prefork", "spawn")


def rust() -> str:
    """The program in Rust, which `cargo xtask python` puts beside the interpreter."""
    program = Path(sys.executable).with_name("leasehold-e2e")
    assert program.exists(), f"{program} is missing: run cargo xtask python"
    return str(program)


def judged(text: str) -> tuple[int, int]:
    history = History()
    for line in text.split("; "):
        history.add(*line.split())
    verdict = judge(history)
    return verdict.overlaps, verdict.falls


def test_the_judge_finds_overlaps() -> None:
    # One after another.
    assert judged("enter a- 5; leave a-; was a- held; enter b- -; leave b- held; enter a- 6") == (0, 0)
    # One within the other, and one over the end of the other.
    assert judged("enter a- 5; enter b- -; leave b- held; leave a-; was a- held") == (1, 0)
    assert judged("enter a- 5; enter b- 6; leave a-; leave b-; was a- held; was b- held") == (1, 0)
    # The first knows that it was lost.
    assert judged("enter a- 5; enter b- -; leave b- held; leave a-; was a- lost") == (0, 0)
    # A program that was killed in its section held until then; not so if it was paused before.
    assert judged("enter a- 5; enter b- -; killed a-; leave b- held") == (1, 0)
    assert judged("enter a- 5; killed a-; enter b- -; leave b- held") == (0, 0)
    assert judged("enter a- 5; paused a-; enter b- -; leave b- held; killed a-") == (0, 0)
    # One that is killed after its section, or that has not ended, proves nothing.
    assert judged("enter a- 5; leave a-; enter b- -; leave b- held; killed a-") == (0, 0)
    assert judged("enter a- 5; enter b- -; leave b- held") == (0, 0)
    # An end that was recorded twice.
    assert judged("enter a- 5; leave a-; leave a-; was a- held; was a- held; enter b- 6; leave b- held") == (0, 0)
    # The neighbour of a long section is not only the next one.
    assert judged("enter a- 5; enter b- 6; leave b- lost; enter c- 7; leave c- held; leave a- held") == (1, 0)


def test_the_judge_finds_old_tokens() -> None:
    assert judged("enter a- 5; leave a- held; enter a- 5; leave a- held") == (0, 1)
    assert judged("enter a- 6; leave a- lost; enter a- 5; leave a- held") == (0, 1)
    assert judged("enter a- 5; leave a- held; enter b- -; leave b- held; enter a- 6; leave a- held") == (0, 0)
    # One that was paused before it entered, and knows that it was lost.
    assert judged("enter a- 6; leave a- held; enter b- 5; leave b-; was b- lost") == (0, 0)


def test_a_lock_that_lapses_and_does_not_tell_is_found(private_redis: Redis, tmp_path: Path) -> None:
    storm = Storm(private_redis.address + "?prefix=", tmp_path, SEED, rust())
    try:
        storm.start("blind")
        name = storm.stop_in_a_section()
        storm.start("loop")
        wait_until(lambda: storm.history(name).sections[-1].who.startswith("loop"), "the lease has ended")
        storm.resume()
        wait_until(lambda: storm.verdicts()[name].overlaps == 1, "the judge finds the overlap")
    finally:
        storm.close()


def storm(address: str, directory: Path, kinds: tuple[str, ...]) -> None:
    storm = Storm(address, directory, SEED, rust())
    try:
        for kind in kinds:
            storm.start(kind)
            # The first kind must have begun before the others.
            if kind == kinds[0]:
                wait_until(lambda: storm.turns(kind) > 0, f"{kind} had a turn")
        wait_until(lambda: all(storm.turns(kind) > 0 for kind in kinds), "each kind had a turn")
        storm.rage(STORM_S)
        storm.wait_for_progress()
        faults, verdicts = storm.faults(), storm.verdicts()
        turns = {kind: storm.turns(kind) for kind in kinds}
    finally:
        storm.close()
    print(f"seed {SEED}, turns: {turns}, events: {dict(storm.counts)}")
    for name, verdict in verdicts.items():
        print(f"{name}: {verdict}")
    assert faults == []
    assert [(verdict.overlaps, verdict.falls) for verdict in verdicts.values()] == [(0, 0)] * 3
    locks = leasehold.connect(address)
    # All were killed at the end: the last holds end with their leases. Claims that waited may be shown for longer.
    wait_until(lambda: not any(view.holders for view in locks.list()), "no hold is left")


@pytest.mark.parametrize("engine", ENGINES)
def test_no_two_sections_overlap_in_a_storm(url: str, tmp_path: Path) -> None:
    storm(url, tmp_path, (*PYTHON, "rust", "rust"))


def test_no_two_sections_overlap_in_a_storm_beside_redis_py(private_redis: Redis, tmp_path: Path) -> None:
    # First the program that asks again and again: leasehold leaves gaps for it once it has seen such a program.
    # The key of redis-py is the name itself.
    storm(private_redis.address + "?prefix=", tmp_path, ("redis-py", "compat", *PYTHON, "rust", "rust"))
