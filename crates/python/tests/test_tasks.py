"""Tasks of asyncio, also in uvloop: cancellation at every step, timeouts, closed loops, several loops."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from typing import Any, Callable, Coroutine, Generator

import pytest
import uvloop

import leasehold
from engines import on_engines
from programs import LIMIT, assert_free

#: One engine of each kind: inside the process, on files, with pushed grants, with leases of the server.
in_engines = on_engines("memory", "file", "redis", "etcd")
in_two_engines = on_engines("memory", "redis")

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop


@pytest.fixture
def run(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    def run_to_end(main: Coroutine[Any, Any, Any]) -> Any:
        loop = new_loop()
        try:
            return loop.run_until_complete(asyncio.wait_for(main, LIMIT))
        finally:
            loop.close()

    return run_to_end


class CancelledAt:
    """Awaits a coroutine, and cancels it at the step with this number: before the step, or while it waits after it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], step: int, moment: str) -> None:
        self.coroutine = coroutine
        self.step = step
        self.moment = moment
        self.was_cancelled = False

    def __await__(self) -> Generator[Any, Any, Any]:
        step = 0
        while True:
            try:
                if step == self.step and self.moment == "before":
                    waits_for = self._cancel()
                else:
                    waits_for = self.coroutine.send(None)
                if step == self.step and self.moment == "after":
                    waits_for = self._cancel()
            except StopIteration as end:
                return end.value
            step += 1
            yield waits_for

    def _cancel(self) -> Any:
        self.was_cancelled = True
        return self.coroutine.throw(asyncio.CancelledError())


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("is_taken", [False, True])
@in_engines
def test_a_task_cancelled_at_any_step_leaves_nothing(url: str, run: Run, moment: str, is_taken: bool) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)

    async def section() -> None:
        async with locks.mutex("a", ttl=10) as guard:
            assert guard.check()
            await asyncio.sleep(0)
            await guard.confirm_async()

    async def cancelled_at(step: int) -> bool:
        holder = await other.mutex("a").acquire_async() if is_taken else None
        if holder is not None:
            # While the section waits.
            asyncio.get_running_loop().call_later(0.02, lambda: holder.release_async().start(lambda _: None))
        cancelled = CancelledAt(section(), step, moment)
        try:
            await cancelled
        except asyncio.CancelledError:
            pass
        if holder is not None and not holder.released:
            await holder.release_async()
        return cancelled.was_cancelled

    step = 0
    while run(cancelled_at(step)):
        gc.collect()
        assert_free(url, "a")
        step += 1
    assert step >= 1
    locks.close()
    other.close()


@in_engines
def test_a_wait_that_times_out_leaves_nothing(url: str, run: Run) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)

    async def main() -> None:
        async with other.mutex("a"):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(locks.mutex("a").acquire_async(), 0.05)
            with pytest.raises((leasehold.Busy, leasehold.Unreachable)) as error:
                await locks.mutex("a").acquire_async(wait=0.05)
            # A server may need longer for its answer on a machine that is busy.
            assert isinstance(error.value, leasehold.Busy) or not url.startswith("memory")
            assert await locks.mutex("a").try_acquire_async() is None

    run(main())
    assert_free(url, "a")


@in_two_engines
def test_tasks_exclude_each_other(url: str, run: Run) -> None:
    locks = leasehold.connect(url)
    # One object for all tasks.
    request = locks.mutex("a")
    inside = 0
    rounds = 0

    async def section() -> None:
        nonlocal inside, rounds
        async with request as guard:
            inside += 1
            assert inside == 1 and guard.check()
            await asyncio.sleep(0)
            inside -= 1
            rounds += 1

    async def main() -> None:
        await asyncio.gather(*(section() for _ in range(30)))

    run(main())
    assert rounds == 30
    assert_free(url, "a")


@pytest.mark.parametrize("is_kept", [False, True])
@in_engines
def test_a_loop_that_is_closed_cancels_the_waits_in_it(
    url: str, new_loop: Callable[[], asyncio.AbstractEventLoop], is_kept: bool
) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)
    holder = other.mutex("a").acquire()
    loop = new_loop()
    task = loop.create_task(locks.mutex("a").acquire_async())
    loop.run_until_complete(asyncio.sleep(0.01))
    assert not task.done()
    # The loop reports a task that was destroyed while it waited.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    kept = task if is_kept else None
    del task
    loop.close()
    holder.release()
    assert_free(url, "a")
    del kept


@in_two_engines
def test_loops_in_several_threads_share_locks(url: str, run: Run) -> None:
    locks = leasehold.connect(url)
    request = locks.mutex("a")
    inside = 0
    rounds = []

    async def section() -> None:
        nonlocal inside
        async with request:
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    async def main() -> None:
        await asyncio.gather(*(section() for _ in range(10)))
        rounds.append(10)

    threads = [threading.Thread(target=lambda: run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert rounds == [10, 10, 10]
    assert_free(url, "a")


@in_two_engines
def test_a_guard_is_used_in_another_loop_and_thread(url: str, run: Run) -> None:
    locks = leasehold.connect(url)
    guard = run(locks.mutex("a", ttl=10).acquire_async())

    async def confirm() -> bool:
        await guard.confirm_async()
        left = await guard.extend_async(5)
        return left is None or left > 4

    assert run(confirm())
    results = []
    thread = threading.Thread(target=lambda: results.append(run(release(guard))))
    thread.start()
    thread.join(LIMIT)
    assert results == [None]
    assert guard.released and not guard.check()
    assert_free(url, "a")


async def release(guard: leasehold.Guard) -> None:
    await guard.release_async()


def test_an_operation_is_awaited_once(run: Run) -> None:
    locks = leasehold.connect("memory:awaited-once")

    async def main() -> None:
        guard = await locks.mutex("a").acquire_async()
        release = guard.release_async()
        await release
        with pytest.raises(RuntimeError, match="done, cancelled, or waited for elsewhere"):
            await release
        waits = locks.mutex("a")._try_acquire()
        waits.close()
        with pytest.raises(RuntimeError, match="done, cancelled, or waited for elsewhere"):
            await waits

    run(main())
    assert_free("memory:awaited-once", "a")


@in_two_engines
def test_a_release_that_is_not_awaited_is_done_all_the_same(url: str, run: Run) -> None:
    locks = leasehold.connect(url)

    async def main() -> None:
        guard = await locks.mutex("a").acquire_async()
        guard.release_async()
        guard = await locks.mutex("b").acquire_async()
        confirm = guard.confirm_async()
        # A call that has not begun does not delay the release, and then says so.
        await guard.release_async()
        with pytest.raises(leasehold.InvalidArgument, match="released before"):
            await confirm

    run(main())
    assert_free(url, "a")
    assert_free(url, "b")


@in_two_engines
def test_tasks_that_are_destroyed_in_their_blocks_release(
    url: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    locks = leasehold.connect(url)
    # One object, which outlives the tasks.
    request = locks.read("a")
    entered = 0

    async def section() -> None:
        nonlocal entered
        async with request:
            entered += 1
            await asyncio.get_running_loop().create_future()

    async def all_entered() -> None:
        while entered < 3:
            await asyncio.sleep(0)

    loop = new_loop()
    tasks = [loop.create_task(section()) for _ in range(3)]
    loop.run_until_complete(asyncio.wait_for(all_entered(), LIMIT))
    for task in tasks:
        # The loop reports a task that is destroyed while it waits.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    del task, tasks, loop
    gc.collect()
    leasehold.connect(url).write("a").acquire(wait=LIMIT).release()


def test_nested_blocks_of_one_task_are_refused_with_the_remedy(run: Run) -> None:
    locks = leasehold.connect("memory:nested-tasks")

    async def main() -> None:
        async with locks.mutex("a"):
            with pytest.raises(leasehold.Misconfigured, match="same owner=leasehold.Owner") as error:
                async with locks.mutex("a"):
                    pass
            assert error.value.name is None or error.value.name == "a"
            # To block the thread would keep the task from leaving its block.
            with pytest.raises(leasehold.Misconfigured, match="would wait for itself"):
                locks.mutex("a").acquire()
            # A try does not wait.
            assert await locks.mutex("a").try_acquire_async() is None
            async with locks.mutex("b"):
                pass
        async with locks.read("c"), locks.read("c"):
            pass
        async with locks.mutex("a"):
            pass

    run(main())


def test_without_a_loop_the_error_says_what_is_needed() -> None:
    request = leasehold.connect("memory:no-loop").mutex("a")
    with pytest.raises(RuntimeError, match="need a task of asyncio"):
        request.acquire_async().send(None)


def test_functions_of_tasks_are_decorated(run: Run) -> None:
    locks = leasehold.connect("memory:decorated")

    @locks.mutex("a")
    async def section(value: int) -> int:
        assert await locks.mutex("a").try_acquire_async() is None
        return value

    assert run(section(7)) == 7
    with pytest.raises(TypeError, match="generator"):

        @locks.mutex("a")
        async def rows() -> Any:
            yield 1


if sys.version_info >= (3, 11):

    @in_two_engines
    def test_a_task_group_ends_the_waits_of_its_tasks(url: str, run: Run) -> None:
        locks = leasehold.connect(url)

        async def waits() -> None:
            async with locks.mutex("a"):
                raise AssertionError("it is taken")

        async def main() -> None:
            async with leasehold.connect(url).mutex("a"):
                with pytest.raises(ExceptionGroup) as error:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(waits())
                        group.create_task(waits())
                        await asyncio.sleep(0.01)
                        raise ValueError("of the group")
                assert [type(part) for part in error.value.exceptions] == [ValueError]

        run(main())
        assert_free(url, "a")
