"""What every engine does: acquire, release, refuse, wait, count."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

import leasehold


def test_with_holds_the_name_and_releases_it(locks: leasehold.Locks, url: str) -> None:
    with locks.mutex("x", wait=60) as guard:
        assert guard.name == "x"
        assert guard.mode == "exclusive"
        assert guard.check()
        assert not guard.lost.is_set()
        assert not guard.released
        assert locks.mutex("x").try_acquire() is None
        assert locks.mutex("y").acquire(wait=60).check(), "another name is free"
    assert guard.released
    assert not guard.check()
    again = locks.mutex("x").try_acquire()
    assert again is not None
    # On etcd the state of the previous hold is not always known.
    assert again.previous in ("clean", "unknown")
    again.release()


def test_async_with_holds_the_name_and_releases_it(locks: leasehold.Locks) -> None:
    async def main() -> None:
        async with locks.mutex("x", wait=60) as guard:
            assert guard.check()
            assert await locks.mutex("x").try_acquire_async() is None
        again = await locks.mutex("x").acquire_async(wait=60)
        assert again.token > guard.token
        await again.release_async()

    asyncio.run(main())


def test_decorators_hold_the_name_during_the_call(locks: leasehold.Locks) -> None:
    @locks.mutex("x", wait=60)
    def function(a: int, *, b: int) -> int:
        """Adds."""
        assert locks.mutex("x").try_acquire() is None
        return a + b

    @locks.mutex("x", wait=60)
    async def coroutine(a: int) -> int:
        assert await locks.mutex("x").try_acquire_async() is None
        return a

    assert function(1, b=2) == 3
    assert function.__name__ == "function"
    assert function.__doc__ == "Adds."
    assert asyncio.run(coroutine(4)) == 4
    assert asyncio.iscoroutinefunction(coroutine)


def test_an_exception_of_the_block_passes_and_the_name_is_free(locks: leasehold.Locks) -> None:
    with pytest.raises(ZeroDivisionError):
        with locks.mutex("x"):
            print(1 / 0)
    with locks.mutex("x", wait=0):
        pass

    async def main() -> None:
        async with locks.mutex("x"):
            raise KeyError("of the block")

    with pytest.raises(KeyError):
        asyncio.run(main())
    with locks.mutex("x", wait=0):
        pass


def test_busy_names_the_lock_the_engine_and_the_kind(locks: leasehold.Locks, url: str, engine: str) -> None:
    assert locks.engine == engine
    others = leasehold.connect(url)
    # Later requests do not wait for a connection.
    others.mutex("y").acquire(wait=60).release()
    with locks.mutex("x", wait=60):
        with pytest.raises(leasehold.Busy) as at_once:
            others.mutex("x").acquire(wait=0)
        with pytest.raises(leasehold.Busy) as later:
            others.mutex("x", wait=timedelta(seconds=1)).acquire()
    assert (at_once.value.kind, later.value.kind) == ("taken", "timed_out")
    for error in (at_once.value, later.value):
        assert (error.name, error.engine) == ("x", engine)
        assert '"x"' in str(error) and "\n" not in str(error)
    assert others.close() == 0


def test_tokens_grow(locks: leasehold.Locks) -> None:
    tokens = []
    lineages = set()
    for _ in range(5):
        with locks.mutex("x", wait=60) as guard:
            tokens.append(guard.token)
            lineages.add(guard.lineage)
    assert tokens == sorted(set(tokens))
    assert len(lineages) == 1


def test_readers_share_and_a_writer_excludes(locks: leasehold.Locks) -> None:
    with locks.read("x", wait=60) as first, locks.read("x", wait=60) as second:
        assert first.mode == second.mode == "shared"
        assert locks.write("x").try_acquire() is None
    with locks.write("x", wait=60) as writer:
        assert writer.mode == "exclusive"
        assert locks.read("x").try_acquire() is None


def test_permits_are_counted(locks: leasehold.Locks) -> None:
    two = locks.permits("x", 2, 3).acquire(wait=60)
    assert two.mode == "permit"
    one = locks.permits("x", 1, 3).try_acquire()
    assert one is not None
    assert locks.permits("x", 1, 3).try_acquire() is None
    two.release()
    again = locks.permits("x", 2, 3).try_acquire()
    assert again is not None
    again.release()
    one.release()


def test_a_waiter_is_granted_after_the_release(locks: leasehold.Locks) -> None:
    order: list[str] = []
    first = locks.mutex("x").acquire(wait=60)
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        with locks.mutex("x", wait=120):
            order.append("second")

    waiter = threading.Thread(target=wait)
    waiter.start()
    begun.wait()
    order.append("first")
    first.release()
    waiter.join()
    assert order == ["first", "second"]


def test_tasks_take_turns(locks: leasehold.Locks) -> None:
    inside = 0
    most = 0
    done = 0

    async def turn() -> None:
        nonlocal inside, most, done
        async with locks.mutex("x", wait=120):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            done += 1

    async def main() -> None:
        await asyncio.gather(*(turn() for _ in range(20)))

    asyncio.run(main())
    assert (most, done) == (1, 20)


def test_at_least_keeps_the_name_after_the_release(locks: leasehold.Locks, engine: str) -> None:
    guard = locks.mutex("x", at_least=timedelta(minutes=1)).acquire(wait=60)
    if engine != "zookeeper":
        guard.release()
    # There the process itself holds the name for that time, and `release` would wait for it.
    del guard
    assert locks.mutex("x").try_acquire() is None


def test_a_release_that_was_done_is_refused_the_second_time(locks: leasehold.Locks) -> None:
    guard = locks.mutex("x").acquire(wait=60)
    guard.release()
    with pytest.raises(leasehold.InvalidArgument) as refused:
        guard.release()
    assert "released before" in str(refused.value)


def test_a_dropped_guard_frees_the_name(locks: leasehold.Locks) -> None:
    locks.mutex("x").acquire(wait=60)
    # A drop does not wait for the engine.
    with locks.mutex("x", wait=60):
        pass


def test_remaining_and_extend(locks: leasehold.Locks, engine: str) -> None:
    with locks.mutex("x", ttl=60, wait=60) as guard:
        guard.confirm()
        if engine == "file":
            assert guard.remaining is None
            return
        remaining = guard.remaining
        assert remaining is not None and 0 < remaining <= 60
        extended = guard.extend(timedelta(seconds=30))
        assert extended is not None and extended >= 0
    assert guard.released


def test_ping_and_close(url: str) -> None:
    locks = leasehold.connect(url)
    locks.ping()
    asyncio.run(locks.ping_async())
    with locks.mutex("x", wait=60):
        pass
    assert locks.close() == 0
    with pytest.raises(leasehold.Closed):
        locks.mutex("y").acquire()


def test_a_hold_that_outlives_the_locks_is_lost(url: str) -> None:
    locks = leasehold.connect(url)
    guard = locks.mutex("x").acquire(wait=60)
    assert locks.close(0.01) == 1
    assert not guard.check()
    del guard
    others = leasehold.connect(url)
    with others.mutex("x", wait=120):
        pass
    assert others.close() == 0
