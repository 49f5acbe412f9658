"""What every program of a storm does: it reads its arguments, and records its sections. See storm_worker.py."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Optional

import leasehold
from journal import Journal

kind, number, url, directory, seed, *names = sys.argv[1:]
LEASE_S = 5
WORKERS = 3
journals = {name: Journal(Path(directory), name) for name in names}
events = os.open(Path(directory) / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
chance = random.Random(f"{seed} {os.getpid()}")


class Terminated(SystemExit):
    """Raised by SIGTERM in the main thread."""


def note(*words: object) -> None:
    os.write(events, (" ".join(map(str, words)) + "\n").encode())


def who(worker: object) -> str:
    return f"{kind}-{number}-{os.getpid()}-{worker}"


def pause() -> float:
    return chance.choice((0, 0, 0, 0.001, 0.02, 0.1))


class Record:
    """The record of one section, on the names that it holds."""

    def __init__(self, tokens: dict[str, Any], is_held: Callable[[], bool], worker: object) -> None:
        self.tokens = tokens
        self.is_held = is_held
        self.who = who(worker)
        self.process = os.getpid()

    def enter(self) -> None:
        for name, token in self.tokens.items():
            journals[name].record("enter", self.who, token)

    def leave(self) -> None:
        # A child that was forked in the section leaves its parent's blocks when it ends.
        if self.process != os.getpid():
            return
        for name in self.tokens:
            journals[name].record("leave", self.who)
        # A lock that is held now was held until here: a lost hold never comes back.
        held = "held" if self.is_held() else "lost"
        for name in self.tokens:
            journals[name].record("was", self.who, held)

    def around(self, work: Callable[[], object]) -> None:
        """Records a section around the work. SIGTERM may interrupt it at any step, one time."""
        try:
            try:
                self.enter()
                work()
            finally:
                self.leave()
        except Terminated:
            self.leave()
            raise


def record_of(guard: leasehold.Guard, worker: object) -> Record:
    return Record({guard.name: guard.token}, guard.check, worker)


def hold(locks: leasehold.Locks, worker: object, work: Optional[Callable[[], object]] = None) -> None:
    """One section, on one name or on all."""
    work = work or (lambda: time.sleep(pause()))
    try:
        if chance.random() < 0.1:
            request = locks.all(ttl=LEASE_S)
            for name in names:
                request = request.mutex(name)
            with request as guards:
                tokens = {name: guards[name].token for name in names}
                Record(tokens, lambda: all(guards[name].check() for name in names), worker).around(work)
        else:
            with locks.mutex(chance.choice(names), ttl=LEASE_S) as guard:
                record_of(guard, worker).around(work)
    except leasehold.LockLost:
        pass


def raise_at_sigterm() -> None:
    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated(0)

    signal.signal(signal.SIGTERM, end)


def expect(condition: bool, otherwise: str) -> None:
    if not condition:
        note("fault", otherwise)
