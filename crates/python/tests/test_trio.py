"""Tasks of trio, and tasks of anyio on asyncio and trio."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
import trio

import leasehold
from engines import on_engines
from programs import LIMIT, assert_free

SOON = 0.15

in_two_engines = on_engines("memory", "redis")


@in_two_engines
def test_tasks_of_trio_exclude_each_other(url: str) -> None:
    request = leasehold.connect(url).mutex("a")
    inside = 0
    rounds = 0

    async def section() -> None:
        nonlocal inside, rounds
        async with request as guard:
            inside += 1
            assert inside == 1 and guard.check()
            await trio.lowlevel.checkpoint()
            inside -= 1
            rounds += 1

    async def main() -> None:
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(section)

    # Each run has its own wake-ups.
    for _ in range(2):
        trio.run(main)
    assert rounds == 40
    assert_free(url, "a")


@in_two_engines
def test_a_cancelled_task_of_trio_leaves_nothing(url: str) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)

    async def main() -> None:
        async with other.mutex("a"):
            with trio.move_on_after(0.05) as scope:
                await locks.mutex("a").acquire_async()
            assert scope.cancelled_caught
            assert await locks.mutex("a").try_acquire_async() is None
            with pytest.raises((leasehold.Busy, leasehold.Unreachable)):
                await locks.mutex("a").acquire_async(wait=0.05)
        # The release begins in a scope that is cancelled.
        with trio.move_on_after(0) as scope:
            async with locks.mutex("b"):
                await trio.sleep_forever()
        assert scope.cancelled_caught

    trio.run(main)
    assert_free(url, "a")
    assert_free(url, "b")


@in_two_engines
def test_a_loss_cancels_the_body_of_a_task_of_trio(url: str) -> None:
    locks = leasehold.connect(url)

    async def main() -> None:
        with trio.fail_after(LIMIT):
            with pytest.raises(leasehold.LockLost) as error:
                async with locks.mutex("a", max_hold=SOON) as guard:
                    await trio.sleep_forever()
            assert error.value.reason == "max_hold" and guard.released
            with pytest.raises(leasehold.LockLost):
                async with locks.mutex("a", max_hold=SOON) as guard:
                    assert await guard.lost == "max_hold"
            with pytest.raises(ValueError, match="of the body"):
                async with locks.mutex("a", max_hold=SOON):
                    try:
                        await trio.sleep_forever()
                    except trio.Cancelled:
                        raise ValueError("of the body") from None
            await trio.lowlevel.checkpoint()

    trio.run(main)
    assert_free(url, "a")


def test_nested_blocks_of_a_task_of_trio_are_refused() -> None:
    locks = leasehold.connect("memory:nested-trio")

    async def main() -> None:
        async with locks.mutex("a"):
            with pytest.raises(leasehold.Misconfigured, match="would wait for itself"):
                async with locks.mutex("a"):
                    pass

    trio.run(main)


@in_two_engines
def test_loops_of_both_kinds_in_one_process(url: str) -> None:
    import asyncio

    locks = leasehold.connect(url)
    counts: list[int] = []

    async def work() -> None:
        for _ in range(20):
            async with locks.mutex("a") as guard:
                assert guard.check()
        counts.append(20)

    threads = [threading.Thread(target=lambda: trio.run(work)), threading.Thread(target=lambda: asyncio.run(work()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert counts == [20, 20]
    assert_free(url, "a")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@in_two_engines
def test_tasks_of_anyio(url: str, backend: str) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)

    async def main() -> None:
        with anyio.fail_after(LIMIT):
            async with other.mutex("a"):
                with anyio.move_on_after(0.05) as scope:
                    async with locks.mutex("a"):
                        raise AssertionError("it is taken")
                assert scope.cancelled_caught
            with pytest.raises(leasehold.LockLost):
                async with locks.mutex("a", max_hold=SOON):
                    await anyio.sleep_forever()
            done: list[Any] = []

            async def section() -> None:
                async with locks.mutex("a"):
                    done.append(await anyio.to_thread.run_sync(lambda: locks.mutex("a").try_acquire()))

            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(section)
            assert done == [None] * 5

    anyio.run(main, backend=backend)
    assert_free(url, "a")


def test_work_that_is_done_one_time_runs_in_trio_and_is_cancelled_at_a_loss() -> None:
    locks, operator = leasehold.connect("memory:once-trio"), leasehold.connect("memory:once-trio")
    runs: list[str] = []

    async def charge() -> bytes:
        await trio.lowlevel.checkpoint()
        runs.append(leasehold.current_guard().name)
        return b"receipt"

    async def broken() -> bytes:
        guard = leasehold.current_guard()
        await operator.break_hold_async(guard.name, guard.token, force=True)
        await trio.sleep(LIMIT)
        return b"too late"

    async def main() -> None:
        with trio.fail_after(LIMIT):
            for _ in range(2):
                assert await locks.once("order-17").run_async(charge) == b"receipt"
            with pytest.raises(leasehold.LockLost):
                await locks.once("order-18").run_async(broken)
            # The cancellation of another scope passes, and stores nothing.
            with trio.CancelScope() as scope:

                async def cancelled() -> bytes:
                    scope.cancel()
                    await trio.sleep(LIMIT)
                    return b"never"

                await locks.once("order-19").run_async(cancelled)
            assert scope.cancelled_caught and await locks.once("order-19").stored_async() is None

    trio.run(main)
    assert len(runs) == 1
