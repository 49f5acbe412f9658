"""Work that is done one time for a key."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from typing import Any

import pytest

import leasehold


def test_work_runs_one_time_and_repeats_receive_its_result(locks: leasehold.Locks) -> None:
    runs: list[int] = []
    results: list[leasehold.Ran] = []

    def charge() -> bytes:
        guard = leasehold.current_guard()
        assert guard.check() and guard.name == "order-17"
        runs.append(guard.token)
        return b"receipt"

    def click() -> None:
        results.append(locks.once("order-17", wait=60).outcome(charge))

    assert locks.once("order-17").stored() is None
    clicks = [threading.Thread(target=click) for _ in range(8)]
    for thread in clicks:
        thread.start()
    for thread in clicks:
        thread.join()
    assert len(runs) == 1
    assert [ran.value for ran in results] == [b"receipt"] * 8
    assert sorted(ran.is_replayed for ran in results) == [False] + [True] * 7
    assert locks.once("order-17").stored() == b"receipt"


def test_tasks_run_one_time_too(locks: leasehold.Locks) -> None:
    runs: list[str] = []

    async def charge(item: str) -> dict[str, str]:
        await asyncio.sleep(0)
        assert leasehold.current_guard().check()
        runs.append(item)
        return {"item": item}

    async def main() -> None:
        once = locks.once("order-17", encode=json.dumps, decode=json.loads, wait=60)
        results = await asyncio.gather(*(once.run_async(charge, "book") for _ in range(8)))
        assert results == [{"item": "book"}] * 8
        assert await once.stored_async() == {"item": "book"}
        assert (await once.outcome_async(charge, "pen")) == leasehold.Ran({"item": "book"}, True)

    asyncio.run(main())
    assert runs == ["book"]


def test_work_that_raises_stores_nothing_and_the_next_one_runs(locks: leasehold.Locks) -> None:
    once = locks.once("order-17", wait=10)
    with pytest.raises(ZeroDivisionError):
        once.run(lambda: 1 / 0)
    assert once.stored() is None
    # Not every engine remembers how a hold ended. None says that this one was abandoned.
    assert once.run(lambda: leasehold.current_guard().previous.encode()) in (b"clean", b"unknown")


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_the_run_after_an_interrupted_one_is_told(interruption: type[BaseException], redis_url: str) -> None:
    def interrupted() -> bytes:
        raise interruption

    locks = leasehold.connect(redis_url)
    once = locks.once("order-17", wait=10)
    with pytest.raises(interruption):
        once.run(interrupted)
    assert once.run(lambda: leasehold.current_guard().previous.encode()) == b"abandoned"


def test_a_cancelled_task_stores_nothing_and_the_next_run_is_told(redis_url: str) -> None:
    locks = leasehold.connect(redis_url)
    begun: list[str] = []
    ended: list[str] = []

    async def endless() -> bytes:
        begun.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return b""

    async def previous() -> bytes:
        return leasehold.current_guard().previous.encode()

    async def main() -> None:
        once = locks.once("order-17", wait=10)
        run = asyncio.ensure_future(once.run_async(endless))
        while not begun:
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert ended == ["ended"]
        assert await once.run_async(previous) == b"abandoned"

    asyncio.run(main())


def test_interrupted_work_ends_its_hold_although_its_exception_lives_on(redis_url: str) -> None:
    locks = leasehold.connect(redis_url)
    once = locks.once("order-17", wait=10)

    async def endless() -> bytes:
        task.cancel()
        await asyncio.Event().wait()
        return b""

    async def main() -> asyncio.CancelledError:
        nonlocal task
        task = asyncio.ensure_future(once.run_async(endless))
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await task
        return cancelled.value

    def interrupted() -> bytes:
        raise KeyboardInterrupt

    def previous() -> bytes:
        return leasehold.current_guard().previous.encode()

    task: asyncio.Future[bytes]
    with pytest.raises(KeyboardInterrupt) as interrupt:
        once.run(interrupted)
    # As long as these two live, their tracebacks refer to the guards.
    kept = [interrupt.value, asyncio.run(main())]
    assert once.run(previous) == b"abandoned"
    assert len(kept) == 2


def test_work_of_a_task_is_cancelled_when_the_lock_is_lost(redis_url: str) -> None:
    locks = leasehold.connect(redis_url)

    async def work() -> bytes:
        await locks.break_hold_async("order-17", leasehold.current_guard().token, force=True)
        await asyncio.Event().wait()
        return b""

    once = locks.once("order-17", ttl=3)
    with pytest.raises(leasehold.LockLost, match="order-17.*was lost: broken") as lost:
        asyncio.run(once.run_async(work))
    assert lost.value.reason == "broken" and lost.value.name == "order-17"
    assert once.stored() is None


def test_a_result_that_is_not_stored_is_in_the_exception(redis_url: str) -> None:
    locks = leasehold.connect(redis_url)

    def work() -> bytes:
        locks.break_hold("order-17", leasehold.current_guard().token, force=True)
        return b"receipt"

    once = locks.once("order-17")
    with pytest.raises(leasehold.LockLost, match="ran to its end, but its result is not stored") as lost:
        once.run(work)
    assert lost.value.result == b"receipt"
    with pytest.raises(leasehold.InvalidArgument, match="its result is not stored") as too_long:
        once.run(lambda: bytes(100_000))
    assert len(too_long.value.result) == 100_000
    assert once.stored() is None


def test_another_payload_is_refused() -> None:
    locks = leasehold.connect("memory:payloads")

    def digest(payload: bytes) -> bytes:
        return hashlib.sha256(payload).digest()

    locks.once("order-17", digest=digest(b"book")).run(lambda: b"receipt")
    with pytest.raises(leasehold.InvalidArgument, match="another payload") as mismatch:
        locks.once("order-17", digest=digest(b"pen")).run(lambda: b"receipt")
    assert mismatch.value.kind == "mismatch"
    with pytest.raises(ValueError, match="digest must have 32 bytes"):
        locks.once("order-17", digest=b"short")


def test_a_decorator_makes_the_key_of_the_arguments() -> None:
    locks = leasehold.connect("memory:decorator")
    runs: list[int] = []

    @locks.once(lambda number: f"charge-{number}", encode=json.dumps, decode=json.loads)
    def charge(number: int) -> int:
        """Charges."""
        runs.append(number)
        return number

    @locks.once(lambda number: f"refund-{number}", encode=json.dumps, decode=json.loads)
    async def refund(number: int) -> int:
        runs.append(-number)
        return -number

    assert [charge(1), charge(2), charge(1)] == [1, 2, 1]
    assert [asyncio.run(refund(1)), asyncio.run(refund(1))] == [-1, -1]
    assert runs == [1, 2, -1] and charge.__doc__ == "Charges."


def test_a_result_that_is_no_bytes_is_refused_with_the_remedy() -> None:
    once = leasehold.connect("memory:no-bytes").once("order-17", wait=0)
    for result in (17, "text"):
        with pytest.raises(TypeError, match="must be bytes, not .*: give encode= and decode="):
            once.run(lambda result=result: result)
    assert once.stored() is None
    with pytest.raises(RuntimeError, match="no work of leasehold.Once runs here"):
        leasehold.current_guard()


def test_work_without_a_result_runs_one_time(locks: leasehold.Locks) -> None:
    runs: list[str] = []
    once = locks.once("mail-17", wait=60)
    assert once.run(lambda: runs.append("run")) is None

    async def main() -> leasehold.Ran:
        async def send() -> None:
            runs.append("run")

        return await once.outcome_async(send)

    assert asyncio.run(main()) == leasehold.Ran(None, True)
    assert once.stored() == b"" and runs == ["run"]
    assert locks.once("mail-18").stored() is None


def test_wrong_options_of_once_are_found_when_it_is_made() -> None:
    locks = leasehold.connect("memory:once-options")
    wrong: list[Any] = [{"ttl": 0}, {"renew_every": 20}, {"max_hold": 0}, {"max_waiting": 0}, {"digest": b"short"}]
    for options in wrong:
        with pytest.raises(leasehold.InvalidArgument):
            locks.once("x", **options)
    with pytest.raises(TypeError, match="max_waiting must be int"):
        locks.once("x", max_waiting=1.5)  # type: ignore[arg-type]
