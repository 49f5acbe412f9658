"""Elections: the lead, its value, its terms, and who sees them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

import leasehold


def test_a_leader_is_found_with_its_value_and_its_term(locks: leasehold.Locks) -> None:
    election = locks.election("scheduler")
    assert election.leader() is None
    with locks.election("scheduler", value="10.0.0.7:8080", wait=10) as leading:
        leader = election.leader()
        assert leader == leasehold.Leader("10.0.0.7:8080", leading.term, leading.lineage)
        assert leading.check() and not leading.released and leading.name == "scheduler"
        leading.proclaim("10.0.0.8:8080")
        found = election.leader()
        assert found is not None and found.value == "10.0.0.8:8080"
    assert leading.released and not leading.check()
    assert election.leader() is None


def test_candidates_lead_one_after_another_with_growing_terms(locks: leasehold.Locks) -> None:
    terms: list[int] = []

    def campaign() -> None:
        for _ in range(5):
            with locks.election("scheduler", wait=60) as leading:
                assert locks.election("scheduler").try_campaign() is None
                terms.append(leading.term)

    candidates = [threading.Thread(target=campaign) for _ in range(3)]
    for candidate in candidates:
        candidate.start()
    for candidate in candidates:
        candidate.join()
    assert len(terms) == 15 and terms == sorted(set(terms))


def test_a_campaign_has_a_limit(locks: leasehold.Locks) -> None:
    with locks.election("scheduler", wait=10):
        for wait in (0, 0.2):
            with pytest.raises(leasehold.Busy) as busy:
                locks.election("scheduler").campaign(wait=wait)
            assert busy.value.name == "scheduler" and busy.value.holder


def test_a_watch_sees_a_leader_and_its_end(locks: leasehold.Locks) -> None:
    watch = locks.election("scheduler").observe()
    assert next(watch) == leasehold.Leadership("vacant", None)
    leading = locks.election("scheduler", value="one").campaign(wait=10)
    seen = next(watch)
    assert seen.state == "held" and seen.leader is not None and seen.leader.value == "one"
    leading.resign()
    assert next(watch).state == "vacant"


def test_tasks_watch_and_campaign(locks: leasehold.Locks) -> None:
    async def main() -> None:
        async with locks.election("scheduler", value="one", wait=10) as leading:
            async for leadership in locks.election("scheduler").observe():
                assert leadership.leader is not None and leadership.leader.term == leading.term
                break
            assert await locks.election("scheduler").try_campaign_async() is None
        other = await locks.election("scheduler").campaign_async(wait=10)
        assert other.term > leading.term
        await other.resign_async()
        assert await locks.election("scheduler").leader_async() is None

    asyncio.run(main())


def test_one_watch_serves_one_waiter_and_goes_on_after_a_cancelled_one() -> None:
    locks = leasehold.connect("memory:one-watch")

    async def main() -> None:
        watch = locks.election("scheduler").observe()
        assert (await watch.__anext__()).state == "vacant"
        waiting = asyncio.ensure_future(watch.__anext__())
        await asyncio.sleep(0)
        with pytest.raises(leasehold.InvalidArgument, match="another thread or task"):
            await watch.__anext__()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with locks.election("scheduler", value="one"):
            assert (await watch.__anext__()).state == "held"

    asyncio.run(main())


def test_a_block_of_a_task_is_cancelled_when_the_lead_is_lost(locks: leasehold.Locks) -> None:
    async def main() -> None:
        async with locks.election("scheduler", wait=10, ttl=3) as leading:
            await locks.break_hold_async("scheduler", leading.term, force=True)
            await asyncio.Event().wait()

    if locks.engine == "file":
        # A hold of a file ends with its holder alone.
        return
    with pytest.raises(leasehold.LockLost, match="scheduler"):
        asyncio.run(main())


def test_a_lost_lead_is_told_to_the_event_and_to_callbacks() -> None:
    locks = leasehold.connect("memory:lost-lead")
    leading = locks.election("scheduler").campaign()
    told: list[str] = []
    lost = leading.lost
    leading.on_lost(told.append)
    assert not lost.is_set()
    locks.break_hold("scheduler", leading.term, force=True)
    assert lost.wait(60) and lost.reason == "broken"
    with pytest.raises(leasehold.LockLost):
        leading.resign()
    with pytest.raises(leasehold.InvalidArgument, match="was resigned before"):
        leading.resign()


def test_a_forked_child_does_not_lead(redis_url: str) -> None:
    locks = leasehold.connect(redis_url)
    with locks.election("scheduler", wait=10) as leading:
        child = os.fork()
        if child == 0:
            outcome = 1
            try:
                assert not leading.check()
                leading.resign()
            except leasehold.Forked:
                outcome = 0
            finally:
                os._exit(outcome)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert leading.check()
        assert locks.election("scheduler").try_campaign() is None


def test_a_program_that_ends_resigns(redis_url: str) -> None:
    program = f"""
import leasehold
leading = leasehold.connect({redis_url!r}).election("scheduler", ttl=3600).campaign()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    with leasehold.connect(redis_url).election("scheduler", wait=60) as leading:
        assert leading.check()


def test_wrong_arguments_are_named() -> None:
    locks = leasehold.connect("memory:wrong-election")
    with pytest.raises(TypeError, match="value must be str, not bytes"):
        locks.election("a", value=b"10.0.0.7")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wait must not be negative"):
        locks.election("a").campaign(wait=-1)
    with pytest.raises(leasehold.InvalidArgument, match="the value of a leader is empty"):
        locks.election("a", value="").campaign()
