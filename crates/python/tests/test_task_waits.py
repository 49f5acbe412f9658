"""Tasks of asyncio of all kinds wait for operations: of C and of Python, eager, in debug mode; and what they see."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from typing import Any, Callable, Coroutine

import pytest
import uvloop

import leasehold
from programs import LIMIT, assert_free

Loop = asyncio.AbstractEventLoop
Main = Callable[[], Coroutine[Any, Any, None]]

#: A call on the first one is done at once; on the second it waits for a server.
in_two_engines = pytest.mark.parametrize("engine", ["memory", "redis"])


def plain(loop: Loop) -> None:
    pass


def debug(loop: Loop) -> None:
    loop.set_debug(True)


def of_python(loop: Loop) -> None:
    task_class: Any = asyncio.tasks._PyTask  # type: ignore[attr-defined]
    loop.set_task_factory(lambda loop, main, **options: task_class(main, loop=loop, **options))


KINDS = [plain, debug, of_python]

if sys.version_info >= (3, 12):

    def eager(loop: Loop) -> None:
        loop.set_task_factory(asyncio.eager_task_factory)

    KINDS.append(eager)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], Loop]:
    new: Callable[[], Loop] = request.param
    return new


def run(loop: Loop, main: Main) -> None:
    try:
        loop.run_until_complete(asyncio.wait_for(main(), LIMIT))
    finally:
        loop.close()


@pytest.mark.parametrize("prepare", KINDS)
@in_two_engines
def test_tasks_of_all_kinds_wait(url: str, new_loop: Callable[[], Loop], prepare: Callable[[Loop], None]) -> None:
    locks = leasehold.connect(url)
    inside: list[int] = []

    async def section(number: int) -> None:
        async with locks.mutex("a"):
            inside.append(number)
            assert len(inside) == 1
            await asyncio.sleep(0)
            inside.remove(number)

    async def main() -> None:
        await asyncio.gather(*(section(number) for number in range(10)))
        with pytest.raises(leasehold.LockLost):
            async with locks.mutex("a", max_hold=0.1):
                await asyncio.get_running_loop().create_future()

    loop = new_loop()
    prepare(loop)
    run(loop, main)
    assert_free(url, "a")


@pytest.mark.parametrize("prepare", KINDS)
@in_two_engines
def test_a_cancelled_wait_has_its_message(
    url: str, new_loop: Callable[[], Loop], prepare: Callable[[Loop], None]
) -> None:
    locks, other = leasehold.connect(url), leasehold.connect(url)

    async def main() -> None:
        async with other.mutex("a"):
            waits = asyncio.ensure_future(locks.mutex("a").acquire_async())
            while not other.show("a").waiters:
                await asyncio.sleep(0)
            assert waits.cancel("by the test")
            with pytest.raises(asyncio.CancelledError) as error:
                await waits
            assert waits.cancelled() and error.value.args in [("by the test",), ()]

    loop = new_loop()
    prepare(loop)
    run(loop, main)
    assert_free(url, "a")


@in_two_engines
def test_a_task_keeps_its_context(url: str, new_loop: Callable[[], Loop]) -> None:
    locks = leasehold.connect(url)
    who: contextvars.ContextVar[int] = contextvars.ContextVar("who")

    async def section(number: int) -> None:
        who.set(number)
        async with locks.mutex("a"):
            assert who.get() == number
        assert who.get() == number

    async def main() -> None:
        await asyncio.gather(*(section(number) for number in range(20)))

    run(new_loop(), main)


@in_two_engines
def test_a_block_that_another_task_waits_for_is_that_of_the_task_that_enters(url: str) -> None:
    locks = leasehold.connect(url)

    async def main() -> None:
        request = locks.mutex("a")
        # Before Python 3.12 this waits in a task of its own.
        guard = await asyncio.wait_for(request.__aenter__(), LIMIT)
        await asyncio.sleep(0)
        assert guard.check()
        with pytest.raises(leasehold.Misconfigured, match="would wait for itself"):
            async with locks.mutex("a"):
                pass
        await request.__aexit__(None, None, None)
        assert guard.released

    run(asyncio.new_event_loop(), main)
    assert_free(url, "a")


@in_two_engines
def test_an_exception_that_ends_the_loop_loses_no_wake_up(url: str, new_loop: Callable[[], Loop]) -> None:
    locks = leasehold.connect(url)
    loop = new_loop()

    async def ends() -> None:
        async with locks.mutex("a"):
            raise KeyboardInterrupt

    async def goes_on(number: int) -> int:
        async with locks.mutex(f"b{number}"):
            return number

    async def rest() -> list[int]:
        return await asyncio.gather(*others)

    first = loop.create_task(ends())
    others = [loop.create_task(goes_on(number)) for number in range(20)]
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asyncio.wait_for(rest(), LIMIT))
    assert loop.run_until_complete(asyncio.wait_for(rest(), LIMIT)) == list(range(20))
    assert first.done() and isinstance(first.exception(), KeyboardInterrupt)
    loop.close()
    assert_free(url, "a")
