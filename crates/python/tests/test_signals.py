"""Signals: Ctrl-C ends a wait, and nothing is left by an interrupt at any point of a program."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import pytest

import leasehold
from engines import between_processes, on_engines
from programs import LIMIT, assert_free, finish, is_taken, run, start

in_processes = between_processes("file", "redis")


class Interrupted(Exception):
    """Raised by the handler of a test."""


@pytest.fixture
def interrupts() -> Any:
    def handle(number: int, frame: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt_soon() -> threading.Timer:
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    timer.start()
    return timer


@on_engines("memory", "file", "redis", "etcd")
def test_a_signal_ends_a_wait_and_leaves_nothing(url: str, interrupts: Any) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)
    holder = other.mutex("a").acquire()
    timer = interrupt_soon()
    with pytest.raises(Interrupted):
        with locks.mutex("a"):
            raise AssertionError("it is taken")
    timer.join()
    timer = interrupt_soon()
    with pytest.raises(Interrupted):
        locks.mutex("a").acquire(wait=LIMIT)
    timer.join()
    holder.release()
    assert_free(url, "a")


def test_a_handler_that_returns_does_not_end_a_wait(redis_url: str) -> None:
    locks, other = leasehold.connect(redis_url), leasehold.connect(redis_url)
    holder = other.mutex("a").acquire()
    # The handler runs during the wait, and ends it in another way.
    before = signal.signal(signal.SIGUSR1, lambda number, frame: holder.release())
    try:
        timer = interrupt_soon()
        with locks.mutex("a", wait=LIMIT):
            pass
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


@in_processes
def test_ctrl_c_in_a_wait(url: str) -> None:
    program = start(
        """
        import sys, leasehold
        request = leasehold.connect(sys.argv[1]).mutex("a")
        print("waits", flush=True)
        try:
            request.acquire()
        except KeyboardInterrupt:
            print("interrupted")
        """,
        url,
    )
    with leasehold.connect(url).mutex("a"):
        assert program.stdout is not None and program.stdout.readline() == "waits\n"
        program.send_signal(signal.SIGINT)
        status, output, errors = finish(program)
    # An interrupt just before the wait ends the program with an exception, too.
    assert status == 0 or "KeyboardInterrupt" in errors, errors
    assert_free(url, "a")


@in_processes
def test_ctrl_c_while_another_thread_waits(url: str) -> None:
    program = start(
        """
        import os, sys, threading, leasehold
        request = leasehold.connect(sys.argv[1]).mutex("a")
        begun = threading.Event()
        def wait():
            begun.set()
            request.acquire()
        threading.Thread(target=wait, daemon=True).start()
        try:
            begun.wait()
            print("waits", flush=True)
            # Python itself misses a signal that comes between its last look and a wait without an end.
            while not threading.Event().wait(0.1):
                pass
        except KeyboardInterrupt:
            print("interrupted")
        """,
        url,
    )
    with leasehold.connect(url).mutex("a"):
        assert program.stdout is not None and program.stdout.readline() == "waits\n"
        program.send_signal(signal.SIGINT)
        status, output, errors = finish(program)
    assert status == 0 and output == "interrupted\n", errors
    assert_free(url, "a")


@in_processes
def test_a_handler_of_sigterm_that_exits_in_a_section_releases(url: str) -> None:
    program = start(
        """
        import signal, sys, threading, leasehold
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        with leasehold.connect(sys.argv[1]).mutex("a"):
            print("holds", flush=True)
            threading.Event().wait()
        """,
        url,
    )
    assert program.stdout is not None and program.stdout.readline() == "holds\n"
    assert is_taken(url, "a")
    program.send_signal(signal.SIGTERM)
    status, output, errors = finish(program)
    assert status == 7 and errors == ""
    # The release was confirmed before the program ended.
    assert not is_taken(url, "a")


LOOP_OF_BLOCKS = """
import signal, sys, leasehold
locks = leasehold.connect(sys.argv[1])
others = leasehold.connect(sys.argv[1])
request = locks.mutex("a")
interrupts = leaks = 0
class Interrupted(BaseException):
    pass
def interrupt(number, frame):
    raise Interrupted
signal.signal(signal.SIGALRM, interrupt)
for step in range(int(sys.argv[2])):
    try:
        try:
            # A moment that moves through the block: microseconds, from 1 on.
            signal.setitimer(signal.ITIMER_REAL, (1 + step * 3 % 1000) / 1e6)
            while True:
                with request as guard:
                    if not guard.check():
                        leaks += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        interrupts += 1
    # Nobody is in a block, and nobody holds the name.
    others.mutex("a").acquire(wait=60).release()
print(interrupts, leaks)
"""


# Before Python 3.10 a handler may raise between the last line of any `with` block and its end, which is then skipped.
if sys.version_info >= (3, 10):

    @pytest.mark.parametrize("engine", ["memory", "file", "redis"])
    def test_an_interrupt_at_any_point_of_a_block_leaves_nothing(url: str) -> None:
        rounds = 1000
        assert run(LOOP_OF_BLOCKS, url, str(rounds)) == f"{rounds} 0\n"
