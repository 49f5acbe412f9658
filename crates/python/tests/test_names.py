"""Requests for several names: all or none."""

from __future__ import annotations

import asyncio

import pytest

import leasehold


def test_all_names_are_held_in_the_block_and_free_after_it(locks: leasehold.Locks) -> None:
    request = locks.all(wait=10).mutex("b").mutex("a")
    with request as guards:
        assert list(guards) == guards.keys() == ["a", "b"]
        assert [guard.name for guard in guards.values()] == ["a", "b"]
        assert "a" in guards and "c" not in guards and len(guards) == 2
        assert dict(guards.items())["b"].token == guards["b"].token > 0
        assert guards.check() and not guards.released
        for name in ("a", "b"):
            assert locks.mutex(name).try_acquire() is None
        with pytest.raises(KeyError):
            guards["c"]
    assert guards.released and not guards.check()
    for name in ("a", "b"):
        with locks.mutex(name, wait=10):
            pass


def test_none_is_held_if_one_is_taken(locks: leasehold.Locks) -> None:
    request = locks.all().mutex("a").mutex("b")
    with locks.mutex("b", wait=10):
        assert request.try_acquire() is None
        with pytest.raises(leasehold.Busy) as busy:
            request.acquire(wait=0)
        assert busy.value.name == "b"
        with locks.mutex("a", wait=10):
            pass
    with request.acquire(wait=10) as guards:
        assert guards.check()


def test_modes_of_one_request(locks: leasehold.Locks) -> None:
    with locks.all(wait=10).read("prices").permits("printer", 2, 4).write("order") as guards:
        assert {name: guard.mode for name, guard in guards.items()} == {
            "order": "exclusive",
            "prices": "shared",
            "printer": "permit",
        }
        with locks.read("prices", wait=10), locks.permits("printer", 2, 4, wait=10):
            assert locks.permits("printer", 1, 4).try_acquire() is None


def test_an_exception_of_the_block_passes_and_frees_the_names(locks: leasehold.Locks) -> None:
    request = locks.all(wait=10).mutex("a").mutex("b")
    with pytest.raises(ZeroDivisionError):
        with request:
            1 / 0  # noqa: B018
    with request:
        pass


def test_a_block_of_a_task_is_cancelled_when_one_name_is_lost(locks: leasehold.Locks) -> None:
    async def main() -> None:
        async with locks.all(wait=10, ttl=3).mutex("a").mutex("b") as guards:
            await locks.break_hold_async("b", guards["b"].token, force=True)
            await asyncio.Event().wait()

    if not can_break(locks):
        return
    with pytest.raises(leasehold.LockLost) as lost:
        asyncio.run(main())
    assert lost.value.kind == "lost"
    with locks.mutex("a", wait=10):
        pass


def test_a_cancelled_wait_leaves_nothing(locks: leasehold.Locks) -> None:
    async def main() -> None:
        with locks.mutex("b", wait=10):
            waiting = asyncio.ensure_future(locks.all().mutex("a").mutex("b").acquire_async())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    asyncio.run(main())
    with locks.all(wait=10).mutex("a").mutex("b"):
        pass


def test_wrong_arguments_are_named() -> None:
    locks = leasehold.connect("memory:wrong-names")
    with pytest.raises(TypeError, match="name must be str, not int"):
        locks.all().mutex(17).acquire()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="n must be int, not str"):
        locks.all().permits("a", "1", 2).acquire()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ttl must not be negative"):
        locks.all(ttl=-1).mutex("a")
    with pytest.raises(leasehold.InvalidArgument, match="no name is given"):
        locks.all().acquire()


def can_break(locks: leasehold.Locks) -> bool:
    """Whether a hold of this engine can be ended while its holder does not react."""
    return locks.engine != "file"
