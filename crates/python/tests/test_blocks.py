"""``with`` blocks of generators and coroutines that share one request: each one leaves its own block."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Callable, Iterator

import pytest

import leasehold
from programs import LIMIT

#: Requests that one thread may hold several times.
SHARED: dict[str, Callable[[leasehold.Locks], Any]] = {
    "read": lambda locks: locks.read("a"),
    "permits": lambda locks: locks.permits("a", 1, 8),
    "all": lambda locks: locks.all().read("a"),
}
shared = pytest.mark.parametrize("kind", SHARED)


def steps(request: Any, order: list[str], name: str) -> Iterator[None]:
    with request as guard:
        yield
        assert guard.check(), f"the block of {name} is not left"
        order.append(name)
    assert not guard.check()


@shared
@pytest.mark.parametrize("order", ["abc", "acb", "bac", "bca", "cab", "cba"])
def test_generators_leave_their_own_blocks_in_any_order(kind: str, order: str) -> None:
    request = SHARED[kind](leasehold.connect(f"memory:generators-{kind}-{order}"))
    left: list[str] = []
    generators = {name: steps(request, left, name) for name in "abc"}
    for generator in generators.values():
        next(generator)
    for name in order:
        assert next(generators[name], "ended") == "ended"
    assert left == list(order)


@shared
def test_coroutines_leave_their_own_blocks_in_any_order(kind: str) -> None:
    request = SHARED[kind](leasehold.connect(f"memory:coroutines-{kind}"))

    async def section(begun: asyncio.Event, end: asyncio.Event) -> None:
        with request as guard:
            begun.set()
            await end.wait()
            assert guard.check()
        assert not guard.check()

    async def main() -> None:
        tasks = []
        for _ in range(4):
            begun, end = asyncio.Event(), asyncio.Event()
            tasks.append((asyncio.create_task(section(begun, end)), end))
            await begun.wait()
        for task, end in (tasks[1], tasks[3], tasks[0], tasks[2]):
            end.set()
            await task

    asyncio.run(asyncio.wait_for(main(), LIMIT))


@shared
def test_blocks_of_functions_inside_each_other_are_left_from_the_inside(kind: str) -> None:
    request = SHARED[kind](leasehold.connect(f"memory:functions-{kind}"))
    left: list[str] = []
    generator = steps(request, left, "generator")
    with request as outer:
        next(generator)
        with contextlib.ExitStack() as stack:
            inner = stack.enter_context(request)
            with request as innermost:
                assert innermost.check()
            assert not innermost.check() and inner.check()
        assert not inner.check() and outer.check()
        assert next(generator, "ended") == "ended"
        assert outer.check()
    assert not outer.check() and left == ["generator"]
