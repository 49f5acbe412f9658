"""Beside redis-py's Lock on the same key, in both directions, and in a storm with kills and forks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest
import redis

import leasehold
from servers import Redis, wait_until

# The nightly tier gives more.
STORM_S = float(os.environ.get("LEASEHOLD_STORM_SECONDS", "5"))
SEED = int(os.environ.get("LEASEHOLD_SEED", "1"))


@pytest.fixture
def theirs(redis_server: Redis) -> Iterator[redis.Redis]:
    client = redis.Redis(port=redis_server.port)
    yield client
    client.close()


@pytest.fixture
def ours(redis_server: Redis) -> Iterator[leasehold.Locks]:
    locks = leasehold.connect(redis_server.address)
    yield locks
    assert locks.close() == 0


def test_a_lock_of_redis_py_excludes_ours(ours: leasehold.Locks, theirs: redis.Redis) -> None:
    lock = theirs.lock("lock:theirs", timeout=60)
    assert lock.acquire(blocking=False)
    assert ours.mutex("theirs").try_acquire() is None
    lock.release()
    with ours.mutex("theirs", wait=60) as guard:
        assert guard.check()


def test_our_lock_excludes_that_of_redis_py(ours: leasehold.Locks, theirs: redis.Redis) -> None:
    lock = theirs.lock("lock:ours", timeout=60)
    with ours.mutex("ours", wait=60):
        assert not lock.acquire(blocking=False)
    assert lock.acquire(blocking_timeout=60)
    lock.release()


class Storm:
    """Programs that share one name, and the journal of their sections."""

    def __init__(self, server: Redis, directory: Path) -> None:
        self.port = server.port
        self.journal = directory / "journal"
        self.journal.touch()
        self.programs: dict[subprocess.Popen[bytes], str] = {}
        self.groups: list[int] = []
        self.chance = random.Random(SEED)

    def start(self, kind: str) -> None:
        script = str(Path(__file__).with_name("storm_worker.py"))
        seed = str(self.chance.randrange(10**6))
        command = [sys.executable, script, kind, str(self.port), str(self.journal), seed]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self.programs[program] = kind
        self.groups.append(program.pid)

    def kill_one(self) -> None:
        """Kills a program, and starts another of its kind."""
        program = self.chance.choice(list(self.programs))
        kind = self.programs.pop(program)
        program.kill()
        program.wait()
        with open(self.journal, "a") as journal:
            journal.write(f"killed {kind}-{program.pid}-\n")
        self.start(kind)

    def close(self) -> None:
        # The children of killed programs, too.
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for program in self.programs:
            program.wait()

    def turns(self, kind: str) -> int:
        return sum(words[0] == "enter" and words[1].startswith(kind) for words in self.sections())

    def sections(self) -> list[list[str]]:
        return [line.split() for line in self.journal.read_text().splitlines()]


def judge(journal: list[list[str]]) -> tuple[int, int]:
    """The numbers of overlaps and of tokens that did not grow."""
    inside: dict[str, bool] = {}
    overlaps = 0
    newest = 0
    falls = 0
    for words in journal:
        if words[0] == "enter":
            who, token = words[1:]
            # Whether an overlap counts is known when the other section ends.
            inside = {other: True for other in inside}
            inside[who] = False
            if token != "-":
                falls += int(token) <= newest
                newest = max(newest, int(token))
        elif words[0] == "leave":
            who, how = words[1:]
            overlaps += inside.pop(who, False) and how == "held"
        else:
            # A killed program was in its section until it was killed: its hold lasts longer.
            for who in [who for who in inside if who.startswith(words[1])]:
                overlaps += inside.pop(who)
    return overlaps, falls


def test_the_judge_finds_overlaps_and_old_tokens() -> None:
    def judged(text: str) -> tuple[int, int]:
        return judge([line.split() for line in text.split("; ")])

    assert judged("enter a-1-0 5; leave a-1-0 held; enter b-2-0 -; leave b-2-0 held; enter a-1-0 6") == (0, 0)
    assert judged("enter a-1-0 5; enter b-2-0 -; leave b-2-0 held; leave a-1-0 held") == (1, 0)
    assert judged("enter a-1-0 5; enter b-2-0 -; leave b-2-0 held; leave a-1-0 lost") == (0, 0)
    assert judged("enter a-1-0 5; enter b-2-0 -; killed a-1-; leave b-2-0 held") == (1, 0)
    assert judged("enter a-1-0 5; killed a-1-; enter b-2-0 -; leave b-2-0 held") == (0, 0)
    assert judged("enter a-1-0 5; leave a-1-0 held; enter a-1-0 5") == (0, 1)


def test_no_two_sections_overlap_in_a_storm(private_redis: Redis, tmp_path: Path) -> None:
    storm = Storm(private_redis, tmp_path)
    # First the program that asks again and again: leasehold leaves gaps for it once it has seen such a program.
    kinds = ("redis", "threads", "tasks", "forks")
    try:
        for kind in kinds:
            storm.start(kind)
            wait_until(lambda kind=kind: storm.turns(kind) > 0, f"{kind} had a turn")  # type: ignore[misc]
        end = time.monotonic() + STORM_S
        while time.monotonic() < end:
            time.sleep(1)
            storm.kill_one()
        before = len(storm.sections())
        wait_until(lambda: len(storm.sections()) > before + 20, "the name is free after the kills")
    finally:
        storm.close()
    overlaps, falls = judge(storm.sections())
    print(f"seed {SEED}, turns: {[(kind, storm.turns(kind)) for kind in kinds]}")
    assert (overlaps, falls) == (0, 0)
