"""Threads: they wait without the lock of the interpreter, and share requests and guards."""

from __future__ import annotations

import threading
from typing import Iterator

import pytest

import leasehold
from engines import on_engines
from programs import LIMIT, assert_free


@on_engines("memory", "file", "redis", "etcd")
def test_two_hundred_threads_exclude_each_other(url: str) -> None:
    request = leasehold.connect(url).mutex("a")
    inside = 0
    rounds = 0
    failures: list[BaseException] = []

    def section() -> None:
        nonlocal inside, rounds
        try:
            with request as guard:
                inside += 1
                assert inside == 1 and guard.check()
                rounds += 1
                inside -= 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=section) for _ in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not failures and rounds == 200
    assert_free(url, "a")


@pytest.mark.parametrize("in_main_thread", [True, False])
@on_engines("memory", "redis")
def test_other_threads_run_while_one_waits(url: str, in_main_thread: bool) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)
    holder = other.mutex("a").acquire()
    counted = 0

    def count_and_release() -> None:
        nonlocal counted
        # Nobody else runs Python code until the wait ends, which needs this release.
        for _ in range(200_000):
            counted += 1
        holder.release()

    def wait() -> None:
        locks.mutex("a").acquire(wait=LIMIT).release()

    counter = threading.Thread(target=count_and_release)
    counter.start()
    if in_main_thread:
        wait()
    else:
        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(LIMIT)
        assert not waiter.is_alive()
    counter.join(LIMIT)
    assert counted == 200_000
    assert_free(url, "a")


@on_engines("memory", "file", "redis")
def test_a_guard_is_released_by_another_thread(url: str) -> None:
    guard = leasehold.connect(url).mutex("a").acquire()
    thread = threading.Thread(target=guard.release)
    thread.start()
    thread.join(LIMIT)
    assert guard.released and not guard.check()
    with pytest.raises(leasehold.InvalidArgument, match="released before"):
        guard.release()
    assert_free(url, "a")


def test_a_release_waits_for_calls_of_other_threads(redis_url: str) -> None:
    locks = leasehold.connect(redis_url)
    for _ in range(20):
        guard = locks.mutex("a").acquire()
        outcomes: list[str] = []

        def confirm() -> None:
            try:
                for _ in range(100):
                    guard.confirm()
            except leasehold.InvalidArgument:
                outcomes.append("released")

        threads = [threading.Thread(target=confirm) for _ in range(4)]
        for thread in threads:
            thread.start()
        guard.release()
        # The release has told the truth: the name is free now.
        free = leasehold.connect(redis_url).mutex("a").try_acquire()
        assert free is not None
        free.release()
        for thread in threads:
            thread.join(LIMIT)


def test_nested_blocks_of_one_thread_are_refused_with_the_remedy() -> None:
    locks = leasehold.connect("memory:nested-threads")
    with locks.mutex("a"):
        with pytest.raises(leasehold.Misconfigured, match="would wait for itself.*same owner=leasehold.Owner"):
            with locks.mutex("a"):
                pass
        with pytest.raises(leasehold.Misconfigured, match="would wait for itself"):
            locks.mutex("a", wait=5).acquire()
        # A try does not wait.
        assert locks.mutex("a").try_acquire() is None
        with pytest.raises(leasehold.Busy):
            with locks.mutex("a", wait=0):
                pass
        with locks.mutex("b"):
            pass
        outcomes: list[str] = []

        def other_thread() -> None:
            try:
                locks.mutex("a", wait=0.01).acquire()
            except leasehold.Busy as error:
                outcomes.append(error.kind)

        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join(LIMIT)
        assert outcomes == ["timed_out"]
    # The remedy.
    owner = leasehold.Owner("import")
    with locks.mutex("a", owner=owner) as outer, locks.mutex("a", owner=owner) as inner:
        assert outer.token == inner.token
    with locks.read("c"), locks.read("c"):
        with pytest.raises(leasehold.Misconfigured, match="would wait for itself"):
            with locks.write("c"):
                pass
    with locks.permits("d", 1, 2), locks.permits("d", 1, 2):
        pass
    with locks.mutex("a"):
        pass


def test_a_block_that_another_thread_leaves_is_released() -> None:
    # As a framework does that runs each half of a generator in a thread of its pool.
    url = "memory:moved-block"
    locks = leasehold.connect(url)

    def dependency() -> Iterator[leasehold.Guard]:
        with locks.mutex("a") as guard:
            yield guard

    generator = dependency()
    guards: list[leasehold.Guard] = []
    thread = threading.Thread(target=lambda: guards.append(next(generator)))
    thread.start()
    thread.join(LIMIT)
    assert guards[0].check()
    assert next(generator, None) is None
    assert guards[0].released
    assert_free(url, "a")
