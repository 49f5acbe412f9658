"""Programs of a storm that lock in processes which they have started. See storm_worker.py."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

import leasehold
from storm_program import (
    LEASE_S,
    WORKERS,
    chance,
    expect,
    hold,
    journals,
    kind,
    names,
    note,
    number,
    raise_at_sigterm,
    record_of,
    seed,
)

#: The sections of a child before it ends.
SECTIONS_OF_A_CHILD = 8


class Preforked:
    """A process that forks children while it holds a name, and starts another for each that ends."""

    def __init__(self, locks: leasehold.Locks) -> None:
        self.locks = locks
        self.process = os.getpid()
        self.children: set[int] = set()

    def run(self) -> None:
        raise_at_sigterm()
        try:
            while True:
                try:
                    with self.locks.mutex(chance.choice(names), ttl=LEASE_S) as guard:
                        record_of(guard, "parent").around(lambda: self.fork_missing(guard))
                except leasehold.LockLost:
                    pass
                time.sleep(0.02)
                self.reap()
        except leasehold.Forked:
            # A child has left the block of its parent, as a child that ends by an exception does.
            if os.getpid() == self.process:
                raise
            os._exit(0)
        finally:
            if os.getpid() == self.process:
                for child in self.children:
                    os.kill(child, signal.SIGTERM)
                for child in self.children:
                    os.waitpid(child, 0)

    def fork_missing(self, guard: leasehold.Guard) -> None:
        while len(self.children) < WORKERS:
            note("forked")
            # Python drops what a signal handler raises while functions of `os.register_at_fork` run.
            signals: list[int] = []
            signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
            child = os.fork()
            if child:
                self.children.add(child)
            else:
                self.children.clear()
                signals.clear()
            raise_at_sigterm()
            if signals:
                os.kill(os.getpid(), signal.SIGTERM)
            if not child:
                self.be_a_child(guard)

    def reap(self) -> None:
        for child in list(self.children):
            if os.waitpid(child, os.WNOHANG)[0]:
                self.children.remove(child)

    def be_a_child(self, guard: leasehold.Guard) -> None:
        chance.seed(f"{seed} {os.getpid()}")
        expect(not guard.check(), "a guard of the parent is valid in its child")
        try:
            guard.release()
            note("fault a child has released the hold of its parent")
        except leasehold.Forked:
            pass
        for _ in range(SECTIONS_OF_A_CHILD):
            # As the workers of servers do: the parent was killed.
            if os.getppid() != self.process:
                os._exit(0)
            hold(self.locks, "child")
        end = chance.choice(("leave the parent's block", "end in a block", "end"))
        if end == "leave the parent's block":
            raise SystemExit(0)
        if end == "end in a block":
            hold(self.locks, "child", lambda: None if chance.random() < 0.5 else leave_without_the_interpreter())
        os._exit(0)


def leave_without_the_interpreter() -> None:
    # The line is that of a program that is killed here.
    for journal in journals.values():
        journal.record("killed", f"{kind}-{number}-{os.getpid()}-")
    note("left")
    os._exit(0)


def be_a_process(locks: leasehold.Locks, process_seed: int) -> None:
    chance.seed(process_seed)
    raise_at_sigterm()
    parent = multiprocessing.parent_process()
    for _ in range(SECTIONS_OF_A_CHILD):
        if parent is not None and not parent.is_alive():
            return
        hold(locks, "process")


def in_processes(locks: leasehold.Locks) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: over.set())
    context: Any = multiprocessing.get_context(chance.choice(("fork", "spawn", "forkserver")))
    processes: list[Any] = []
    # The parent uses its connection, so that there is something to inherit.
    locks.mutex(names[0], ttl=LEASE_S).acquire().release()
    while not over.wait(0.02):
        processes = [process for process in processes if process.is_alive()]
        while len(processes) < WORKERS - 1:
            note("forked")
            process = context.Process(target=be_a_process, args=(locks, chance.randrange(10**9)))
            process.start()
            processes.append(process)
    for process in processes:
        process.terminate()
        process.join()
