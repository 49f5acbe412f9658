"""Losses: who is told, when, and what a block does then."""

from __future__ import annotations

import asyncio
import gc
import queue
import sys
import threading
import weakref
from typing import Any

import pytest

import leasehold
from engines import on_engines
from programs import LIMIT, assert_free

#: The use of a hold with this limit ends soon, on every engine.
SOON = 0.15

in_two_engines = on_engines("memory", "redis")


def run(main: Any) -> Any:
    return asyncio.run(asyncio.wait_for(main, LIMIT))


def test_a_loss_sets_the_event_and_calls_back(url: str) -> None:
    guard = leasehold.connect(url).mutex("a", max_hold=SOON).acquire()
    told: list[str] = []
    called = threading.Event()
    guard.on_lost(lambda reason: (told.append(reason), called.set()))
    assert guard.lost is guard.lost
    assert guard.lost.wait(LIMIT) and called.wait(LIMIT)
    assert guard.lost.reason == "max_hold" and told == ["max_hold"]
    assert not guard.check() and guard.remaining == 0
    with pytest.raises(leasehold.LockLost) as error:
        guard.confirm()
    assert error.value.reason == "max_hold" and error.value.name == "a" and error.value.engine == guard.engine
    # A callback that comes later is called at once.
    late = threading.Event()
    guard.on_lost(lambda reason: late.set())
    assert late.wait(LIMIT)
    with pytest.raises(leasehold.LockLost):
        guard.release()
    # The event knows what the release has reported.
    assert guard.lost.is_set()
    assert_free(url, "a")


@in_two_engines
def test_a_block_of_a_thread_whose_hold_is_lost_raises(url: str) -> None:
    locks = leasehold.connect(url)
    with pytest.raises(leasehold.LockLost) as error:
        with locks.mutex("a", max_hold=SOON) as guard:
            assert guard.lost.wait(LIMIT)
    assert error.value.reason == "max_hold"
    # The exception of the block is worth more.
    with pytest.raises(ValueError, match="of the block"):
        with locks.mutex("a", max_hold=SOON) as guard:
            assert guard.lost.wait(LIMIT)
            raise ValueError("of the block")
    assert_free(url, "a")


@in_two_engines
def test_the_event_of_a_released_guard_knows_the_loss(url: str) -> None:
    guard = leasehold.connect(url).mutex("a", max_hold=SOON).acquire()
    while guard.check():
        pass
    with pytest.raises(leasehold.LockLost):
        guard.release()
    assert guard.lost.is_set() and guard.lost.reason == "max_hold"
    clean = leasehold.connect(url).mutex("a").acquire()
    clean.release()
    assert not clean.lost.is_set()


@in_two_engines
def test_a_loss_cancels_the_body_of_a_task(url: str) -> None:
    locks = leasehold.connect(url)

    async def main() -> None:
        was_cancelled = False
        with pytest.raises(leasehold.LockLost) as error:
            async with locks.mutex("a", max_hold=SOON) as guard:
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    was_cancelled = True
                    raise
        assert was_cancelled and error.value.reason == "max_hold" and error.value.name == "a"
        assert guard.released
        # The task itself goes on.
        await asyncio.sleep(0)
        if sys.version_info >= (3, 11):
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(main())
    assert_free(url, "a")


@in_two_engines
def test_a_loss_during_the_release_raises(url: str) -> None:
    locks = leasehold.connect(url)

    async def main() -> None:
        with pytest.raises(leasehold.LockLost):
            async with locks.mutex("a", max_hold=SOON) as guard:
                # The loop learns of the loss only after the block.
                assert guard.lost.wait(LIMIT)
        await asyncio.sleep(0)

    run(main())
    assert_free(url, "a")


@in_two_engines
def test_a_body_that_hides_its_cancellation_raises_all_the_same(url: str) -> None:
    locks = leasehold.connect(url)

    async def main() -> None:
        with pytest.raises(leasehold.LockLost):
            async with locks.mutex("a", max_hold=SOON):
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    pass
        with pytest.raises(ValueError, match="of the body"):
            async with locks.mutex("a", max_hold=SOON):
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    raise ValueError("of the body") from None
        await asyncio.sleep(0)

    run(main())
    assert_free(url, "a")


@in_two_engines
def test_a_hold_that_is_lost_before_the_block_begins(url: str) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)

    async def main() -> None:
        before = other.mutex("a").acquire()
        request = locks.mutex("a", max_hold=SOON)
        enters = request.__aenter__().__await__()
        next(enters)
        while not other.show("a").waiters:
            pass
        before.release()
        # It is granted after the hold of the request was granted and lost. The loop has not resumed the task meanwhile.
        other.mutex("a").acquire(wait=LIMIT).release()
        with pytest.raises(leasehold.LockLost):
            next(enters)
        # The task is in no block.
        with pytest.raises(RuntimeError, match="in no `async with` block"):
            await request.__aexit__(None, None, None)
        assert asyncio.current_task().cancelling() == 0 if sys.version_info >= (3, 11) else True  # type: ignore

    run(main())
    assert_free(url, "a")


if sys.version_info >= (3, 11):

    @in_two_engines
    def test_a_loss_does_not_hide_another_cancellation(url: str) -> None:
        locks = leasehold.connect(url)

        async def section() -> None:
            async with locks.mutex("a", max_hold=SOON):
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    asyncio.current_task().cancel()  # type: ignore[union-attr]

        async def main() -> None:
            task = asyncio.create_task(section())
            await asyncio.wait([task])
            assert task.cancelled()

        run(main())
        assert_free(url, "a")

    @in_two_engines
    def test_a_timeout_around_and_inside_a_block(url: str) -> None:
        locks = leasehold.connect(url)

        async def main() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    async with locks.mutex("a"):
                        await asyncio.get_running_loop().create_future()
            async with locks.mutex("a"):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await asyncio.get_running_loop().create_future()
            with pytest.raises(leasehold.LockLost):
                async with locks.mutex("a", max_hold=SOON):
                    async with asyncio.timeout(LIMIT):
                        await asyncio.get_running_loop().create_future()
            with pytest.raises(leasehold.LockLost):
                async with asyncio.timeout(LIMIT):
                    async with locks.mutex("a", max_hold=SOON):
                        await asyncio.get_running_loop().create_future()
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

        run(main())
        assert_free(url, "a")


@in_two_engines
def test_several_tasks_await_one_loss(url: str) -> None:
    locks = leasehold.connect(url)

    async def main() -> None:
        guard = await locks.mutex("a", max_hold=SOON).acquire_async()

        async def told() -> str:
            return await guard.lost

        assert await asyncio.gather(told(), told(), told()) == ["max_hold"] * 3
        # Also afterwards.
        assert await guard.lost == "max_hold"

    run(main())


def test_a_guard_that_is_dropped_releases_whoever_waits_for_its_loss() -> None:
    url = "memory:dropped"
    locks = leasehold.connect(url)
    gc.disable()
    try:
        guard = locks.mutex("a").acquire()
        lost, dropped = guard.lost, weakref.ref(guard)
        guard.on_lost(print)
        del guard
        # At once, without the garbage collector.
        assert dropped() is None
    finally:
        gc.enable()
    assert_free(url, "a")

    async def main() -> None:
        with pytest.raises(leasehold.InvalidArgument, match="dropped"):
            await lost

    run(main())
    assert not lost.is_set()


def test_a_callback_that_refers_to_its_guard_does_not_keep_it() -> None:
    url = "memory:cycle"
    guard = leasehold.connect(url).mutex("a").acquire()
    dropped = weakref.ref(guard)
    guard.on_lost(lambda reason, guard=guard: None)
    del guard
    gc.collect()
    assert dropped() is None
    assert_free(url, "a")


def test_a_callback_that_raises_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda report: reported.append(str(report.exc_value)))
    guard = leasehold.connect("memory:raises").mutex("a", max_hold=SOON).acquire()
    called = threading.Event()

    def fails(reason: str) -> None:
        raise ValueError("of the callback")

    guard.on_lost(fails)
    guard.on_lost(lambda reason: called.set())
    assert called.wait(LIMIT) and reported == ["of the callback"]


def test_the_minimum_time_of_a_guard_that_is_dropped_is_kept() -> None:
    locks = leasehold.connect("memory:at-least")
    guard = locks.mutex("a", at_least=LIMIT).acquire()
    del guard
    gc.collect()
    assert locks.mutex("a").try_acquire() is None


def test_a_server_that_is_killed_in_a_block(private_redis: Any) -> None:
    url = private_redis.url("killed")
    # The limits of the connection do not delay the news.
    locks = leasehold.connect(url)
    with pytest.raises(leasehold.LockLost) as error:
        with locks.mutex("a", ttl=2) as guard:
            told = threading.Event()
            guard.on_lost(lambda reason: told.set())
            assert guard.check()
            private_redis.kill()
            assert guard.lost.wait(LIMIT) and told.wait(LIMIT)
            # Before anybody else can hold the name: the server is still down.
            assert not guard.check() and guard.lost.reason == "lapsed"
    assert error.value.reason == "lapsed"
    private_redis.start()
    assert_free(url, "a")


def test_a_server_that_is_killed_in_a_block_of_a_task(private_redis: Any) -> None:
    url = private_redis.url("killed")
    locks = leasehold.connect(url)

    async def main() -> None:
        with pytest.raises(leasehold.LockLost) as error:
            async with locks.mutex("a", ttl=2):
                private_redis.kill()
                await asyncio.get_running_loop().create_future()
        assert error.value.reason == "lapsed"

    run(main())
    private_redis.start()
    assert_free(url, "a")


@on_engines("memory", "redis")
def test_a_loss_that_a_release_reports_is_told_before_it_raises(url: str) -> None:
    locks, operator = leasehold.connect(url), leasehold.connect(url)
    told: queue.Queue[str] = queue.Queue()
    for _ in range(50):
        guard = locks.mutex("a", ttl=20).acquire(wait=LIMIT)
        lost = guard.lost
        guard.on_lost(told.put)
        operator.break_hold("a", guard.token, force=True)
        # The release may come before the library knows of the break: then only its answer tells it.
        with pytest.raises(leasehold.LockLost) as error:
            guard.release()
        assert lost.is_set() and lost.reason is not None and error.value.reason is not None
        assert guard.lost is lost
        assert told.get(timeout=LIMIT)
    assert told.empty(), "each callback is called one time"
    with pytest.raises(leasehold.LockLost):
        with locks.mutex("a", wait=LIMIT) as guard:
            lost = guard.lost
            operator.break_hold("a", guard.token, force=True)
    assert lost.is_set()
    # An event that is made later knows it, too.
    guard = locks.mutex("a").acquire(wait=LIMIT)
    operator.break_hold("a", guard.token, force=True)
    with pytest.raises(leasehold.LockLost):
        guard.release()
    assert guard.lost.is_set()


def test_a_task_that_waits_for_a_loss_is_told_what_a_release_reports() -> None:
    locks, operator = leasehold.connect("memory:told"), leasehold.connect("memory:told")

    async def main() -> None:
        for _ in range(20):
            guard = await locks.mutex("a").acquire_async()

            async def wait(guard: leasehold.Guard = guard) -> str:
                return await guard.lost

            waits = asyncio.create_task(wait())
            await asyncio.sleep(0)
            await operator.break_hold_async("a", guard.token, force=True)
            with pytest.raises(leasehold.LockLost):
                await guard.release_async()
            assert await waits

    run(main())


@on_engines("memory", "redis")
def test_the_cleanup_of_a_cancelled_body_sees_the_loss(url: str) -> None:
    locks, operator = leasehold.connect(url), leasehold.connect(url)
    # The thread that sets events is late.
    first, late, end = locks.mutex("first").acquire(wait=LIMIT), threading.Event(), threading.Event()
    first._set_on_loss(lambda reason: (late.set(), end.wait()))
    operator.break_hold("first", first.token, force=True)
    assert late.wait(LIMIT)

    async def main() -> None:
        with pytest.raises(leasehold.LockLost):
            async with locks.mutex("a", wait=LIMIT) as guard:
                lost = guard.lost
                try:
                    await operator.break_hold_async("a", guard.token, force=True)
                    await asyncio.sleep(LIMIT)
                except asyncio.CancelledError:
                    assert lost.is_set() and not guard.check()
                    raise
        assert lost.is_set()

    try:
        run(main())
    finally:
        end.set()


def test_a_lead_that_is_lost_is_told_by_the_call_that_reports_it() -> None:
    locks, operator = leasehold.connect("memory:lead-told"), leasehold.connect("memory:lead-told")
    told: queue.Queue[str] = queue.Queue()
    for _ in range(20):
        leading = locks.election("a").campaign(wait=LIMIT)
        lost = leading.lost
        leading.on_lost(told.put)
        operator.break_hold("a", leading.term, force=True)
        with pytest.raises(leasehold.LockLost):
            leading.resign()
        assert lost.is_set() and leading.remaining == 0
        assert told.get(timeout=LIMIT)


def test_a_block_does_not_begin_with_a_guard_that_has_ended() -> None:
    locks, operator = leasehold.connect("memory:ended"), leasehold.connect("memory:ended")
    for acquire in (locks.mutex("a").acquire, locks.all().mutex("a").acquire, locks.election("a").campaign):
        guard = acquire()
        with guard:
            pass
        assert guard.remaining == 0
        with pytest.raises(leasehold.InvalidArgument, match="before"):
            with guard:
                raise AssertionError("the hold was released")
    guard = locks.mutex("a").acquire()
    operator.break_hold("a", guard.token, force=True)
    guard.lost.wait(LIMIT)
    with pytest.raises(leasehold.LockLost, match="was lost before"):
        with guard:
            raise AssertionError("the hold was lost")


def test_a_guard_that_is_dropped_by_an_exception_lets_it_pass() -> None:
    locks = leasehold.connect("memory:dropped-by-an-exception")

    def rows() -> Any:
        yield 1
        [locks.mutex("a").acquire(), 1 / 0]

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            print(locks.mutex("a").acquire(wait=LIMIT), 1 / 0)
        with pytest.raises(TypeError, match="time must be"):
            locks.mutex("a").acquire(wait=LIMIT).extend("x")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            locks.mutex("a").acquire(wait=LIMIT)[0]  # type: ignore[index]
        with pytest.raises(ZeroDivisionError):
            list(rows())

    async def main() -> None:
        # In Python before 3.11 it is an AttributeError.
        with pytest.raises((TypeError, AttributeError)):
            async with await locks.mutex("a").acquire_async(wait=LIMIT):  # type: ignore[attr-defined]
                pass

    run(main())
    assert_free("memory:dropped-by-an-exception", "a")


def test_an_event_does_not_wait_for_callbacks_of_users() -> None:
    locks, operator = leasehold.connect("memory:events-first"), leasehold.connect("memory:events-first")
    slow, other = locks.mutex("slow").acquire(), locks.mutex("other").acquire()
    called, end = threading.Event(), threading.Event()
    slow.on_lost(lambda reason: (called.set(), end.wait()))
    lost = other.lost
    try:
        operator.break_hold("slow", slow.token, force=True)
        assert called.wait(LIMIT)
        operator.break_hold("other", other.token, force=True)
        assert lost.wait(LIMIT / 4)
    finally:
        end.set()
    with pytest.raises(TypeError, match="callback must be callable, not NoneType"):
        slow.on_lost(None)  # type: ignore[arg-type]
