"""The asyncio lock of redis-py, on leasehold, beside the one of redis-py on the same server."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any, Awaitable, Callable
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.exceptions import ConnectionError, LockError, LockNotOwnedError

import leasehold
from leasehold.compat import AsyncRedisLock
from programs import LIMIT, assert_free

Test = Callable[[Any, str], Awaitable[None]]


@pytest.fixture
def name(request: pytest.FixtureRequest, redis_url: str) -> str:
    return f"compat/{request.node.name}/{urlsplit(redis_url).query}"


@pytest.fixture
def run(redis_url: str, name: str) -> Callable[[Test], None]:
    """Runs a test in a loop, with a client of redis-py and the name of its lock."""

    async def with_client(test: Test) -> None:
        address = urlsplit(redis_url)
        async with Redis(host=address.hostname or "", port=address.port or 0) as client:
            await asyncio.wait_for(test(client, name), 2 * LIMIT)

    return lambda test: asyncio.run(with_client(test))


def test_the_signatures_are_those_of_redis_py() -> None:
    for method in ("__init__", "acquire", "release", "locked", "owned", "extend", "reacquire", "do_release"):
        theirs, ours = getattr(Lock, method), getattr(AsyncRedisLock, method)
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), method
        assert [(one.name, one.kind, one.default) for one in inspect.signature(ours).parameters.values()] == [
            (one.name, one.kind, one.default) for one in inspect.signature(theirs).parameters.values()
        ], method


def test_each_lock_excludes_the_other(run: Callable[[Test], None]) -> None:
    async def test(client: Any, name: str) -> None:
        ours, theirs = AsyncRedisLock(client, name, timeout=20), Lock(client, name, timeout=20)
        for holder, other in ((ours, theirs), (theirs, ours)):
            async with holder:
                assert await holder.owned() and await holder.locked() and await other.locked()
                assert not await other.owned()
                assert await other.acquire(blocking=False) is False
                assert await other.acquire(blocking_timeout=0.2) is False
            assert not await holder.locked() and not await holder.owned()

    run(test)


def test_no_two_sections_overlap_beside_redis_py(run: Callable[[Test], None]) -> None:
    async def test(client: Any, name: str) -> None:
        inside = rounds = 0

        async def sections(lock: Any) -> None:
            nonlocal inside, rounds
            for _ in range(5):
                async with lock:
                    inside += 1
                    assert inside == 1
                    await asyncio.sleep(0.001)
                    inside -= 1
                    rounds += 1

        # A program that asks again and again gets turns between those that wait in the queue of leasehold.
        classes = (AsyncRedisLock, Lock)
        locks = [classes[task % 2](client, name, timeout=60, sleep=0.005) for task in range(8)]
        await asyncio.gather(*(sections(lock) for lock in locks))
        assert rounds == 40

    run(test)


def test_a_waiter_gets_the_lock_that_the_other_program_releases(run: Callable[[Test], None]) -> None:
    async def test(client: Any, name: str) -> None:
        for first, second in ((Lock, AsyncRedisLock), (AsyncRedisLock, Lock)):
            order: list[str] = []
            holder, waiter = first(client, name, timeout=60), second(client, name, timeout=60, blocking_timeout=LIMIT)

            async def wait(waiter: Any = waiter, order: list[str] = order) -> None:
                async with waiter:
                    order.append("acquired")

            await holder.acquire()
            task = asyncio.create_task(wait())
            await asyncio.sleep(0.01)
            order.append("released")
            await holder.release()
            await task
            assert order == ["released", "acquired"]

    run(test)


def test_a_client_makes_locks_of_this_class(run: Callable[[Test], None]) -> None:
    async def test(client: Any, name: str) -> None:
        async with client.lock(name, timeout=20, lock_class=AsyncRedisLock) as lock:
            assert isinstance(lock, AsyncRedisLock)
            # The key has the token, as with redis-py.
            assert await client.get(name) == lock.local.token

    run(test)


def test_a_lock_with_a_timeout_ends_and_is_extended(run: Callable[[Test], None]) -> None:
    async def test(client: Any, name: str) -> None:
        lock = AsyncRedisLock(client, name, timeout=0.3)
        await lock.acquire()
        assert 0 < await client.pttl(name) <= 300
        assert await lock.extend(60) and 50_000 < await client.pttl(name) <= 63_000
        assert await lock.reacquire() and await client.pttl(name) > 50_000, "it is never shortened"
        await lock.release()
        await lock.acquire()
        while await lock.owned():
            await asyncio.sleep(0.01)
        for call in (lambda: lock.extend(1), lock.reacquire, lock.release):
            with pytest.raises(LockNotOwnedError):
                await call()

    run(test)


def test_the_errors_are_those_of_redis_py(run: Callable[[Test], None], caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: Any, name: str) -> None:
        lock = AsyncRedisLock(client, name, timeout=20, blocking_timeout=0.2)
        with pytest.raises(LockError, match="not owned or is already unlocked"):
            await lock.release()
        with pytest.raises(LockError, match="Cannot extend an unlocked lock"):
            lock.extend(1)
        async with Lock(client, name, timeout=20):
            with pytest.raises(LockError, match="Unable to acquire lock"):
                await lock.__aenter__()
        with pytest.raises(LockNotOwnedError):
            async with lock:
                await client.delete(name)
        async with AsyncRedisLock(client, name, timeout=20, raise_on_release_error=False):
            await client.delete(name)
        with pytest.raises(TypeError, match="token"):
            await lock.acquire(token="mine")
        async with AsyncRedisLock(client, name) as renewed:
            assert await client.pttl(name) > 0
            with pytest.raises(LockError, match="no timeout"):
                renewed.reacquire()
            with pytest.raises(LockError, match="wait for itself"):
                await renewed.acquire()
            assert await renewed.acquire(blocking=False) is False

    run(test)
    assert any("no longer owned" in record.getMessage() for record in caplog.records)


def test_tasks_that_share_an_object_release_their_own_locks(run: Callable[[Test], None]) -> None:
    async def test(client: Any, name: str) -> None:
        lock = AsyncRedisLock(client, name, timeout=60)
        lost, entered = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            with pytest.raises(LockNotOwnedError):
                async with lock:
                    # As if its timeout had passed.
                    await client.delete(name)
                    lost.set()
                    await entered.wait()
            assert await lock.locked(), "the other task holds it"

        async def second() -> None:
            await lost.wait()
            async with lock:
                entered.set()
                await firsts
                assert await lock.owned()

        firsts = asyncio.create_task(first())
        await asyncio.gather(firsts, second())
        # A task that has nothing releases for another one, as with redis-py.
        await asyncio.create_task(lock.acquire())
        assert await lock.owned()
        await lock.release()
        assert not await lock.locked() and lock.local.token is None

    run(test)


def test_a_cancelled_task_leaves_nothing(run: Callable[[Test], None], redis_url: str, name: str) -> None:
    async def test(client: Any, name: str) -> None:
        async with Lock(client, name, timeout=60):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(AsyncRedisLock(client, name).acquire(), 0.05)
        lock = AsyncRedisLock(client, name)
        await lock.acquire()
        release = lock.release()
        # The answer may be there at once.
        with contextlib.suppress(StopIteration):
            release.send(None)
        release.close()
        with pytest.raises(LockError):
            await lock.release()

    run(test)
    assert_free(redis_url.partition("?")[0] + "?prefix=", name)


def test_a_url_without_a_client() -> None:
    async def main() -> None:
        async with AsyncRedisLock("memory:compat-tasks", "report", timeout=10) as lock:
            assert await lock.owned()
            assert leasehold.connect("memory:compat-tasks").mutex("report").try_acquire() is None

    asyncio.run(main())


def test_a_token_releases_elsewhere_and_errors_are_those_of_both_packages(run: Callable[[Test], None]) -> None:
    async def test(client: Any, name: str) -> None:
        lock = AsyncRedisLock(client, name, timeout=60)
        assert await lock.acquire(blocking=False)
        token = lock.local.token
        del lock
        other = AsyncRedisLock(client, name, timeout=60)
        assert await other.locked() and not await other.owned()
        other.local.token = token
        assert await other.owned()
        await other.release()
        assert not await other.locked()
        with pytest.raises(LockNotOwnedError):
            await other.do_release(token)
        away = AsyncRedisLock("redis://127.0.0.1:1?connect_timeout=100ms", name)
        with pytest.raises(ConnectionError) as error:
            await away.acquire(blocking=False)
        assert isinstance(error.value, leasehold.Unreachable)

    run(test)
