"""What operators see and do, and what pickles."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading

import pytest

import leasehold
from programs import LIMIT, assert_free, finish, start
from servers import wait_until


def test_holders_and_waiters_are_shown(url: str) -> None:
    locks = leasehold.connect(url, owner="importer")
    assert locks.show("order/17").holders == () and locks.list("order/") == []
    with locks.mutex("order/17", wait=10) as guard:
        view = locks.show("order/17")
        assert (view.name, view.mode, view.problem) == ("order/17", "exclusive", None) and view.key
        [holder] = view.holders
        assert (holder.owner, holder.id, holder.foreign) == ("importer", guard.id, False)
        assert holder.held is None or holder.held >= 0, "etcd does not tell it"
        # Another client: the waiters of one client for its own hold need no entry in the engine's queue.
        others = leasehold.connect(url)
        waiter = threading.Thread(target=lambda: others.mutex("order/17", wait=60).acquire().release())
        waiter.start()
        while not locks.show("order/17").waiters:
            pass
        assert [view.name for view in locks.list("order/")] == ["order/17"]
    waiter.join()


def test_the_holder_of_a_taken_name_is_told(url: str) -> None:
    holders = leasehold.connect(url, owner="importer")
    with holders.mutex("order/17", wait=10):
        with pytest.raises(leasehold.Busy) as busy:
            leasehold.connect(url).mutex("order/17").acquire(wait=0)
        assert busy.value.holder == "importer"
        assert busy.value.age is None or busy.value.age >= 0, "etcd does not tell it"


def test_a_hold_is_broken_by_its_token(redis_url: str) -> None:
    locks = leasehold.connect(redis_url)
    guard = locks.mutex("order/17").acquire(wait=10)
    assert not locks.break_hold("order/17", 1)
    assert locks.break_hold("order/17", guard.token, force=True)
    with pytest.raises(leasehold.LockLost):
        guard.release()


def test_the_lease_and_the_process_of_a_holder_are_shown(url: str, engine: str) -> None:
    locks = leasehold.connect(url)
    with locks.mutex("order/17", ttl=60, wait=LIMIT):
        [holder] = locks.show("order/17").holders
        assert (holder.broken, holder.overdue) == (False, None)
        if engine == "etcd":
            assert holder.ttl is not None and holder.ttl > 30
            assert holder.since_renewal is not None and 0 <= holder.since_renewal < 30
        else:
            assert (holder.ttl, holder.since_renewal) == (None, None), "most engines store only the end of the lease"
        if engine == "file":
            assert holder.process is not None and holder.process.pid == os.getpid() and not holder.process.halted
        else:
            assert holder.process is None


HOLDER = """
    import sys, leasehold
    with leasehold.connect(sys.argv[1]).mutex("order/17", ttl=6, wait=60):
        print("holds", flush=True)
        sys.stdin.read()
    """


@pytest.mark.parametrize("engine", ["etcd"])
def test_a_renewal_that_is_overdue_is_shown(url: str) -> None:
    locks = leasehold.connect(url)
    seen: list[leasehold.Holder] = []

    def is_overdue_or_gone() -> bool:
        seen[:] = locks.show("order/17").holders
        return not seen or seen[0].overdue is not None

    # A slow machine may look only before and after the second half of the lease.
    for _ in range(5):
        program = start(HOLDER, url)
        assert program.stdout is not None and program.stdout.readline() == "holds\n"
        program.send_signal(signal.SIGSTOP)
        wait_until(is_overdue_or_gone, "no renewal comes any more")
        program.kill()
        finish(program)
        if seen:
            break
    assert seen and seen[0].overdue is not None and 0 < seen[0].overdue <= 3


@pytest.mark.parametrize("engine", ["file"])
def test_a_holder_that_is_stopped_is_shown(url: str) -> None:
    program = start(HOLDER, url)
    assert program.stdout is not None and program.stdout.readline() == "holds\n"

    def process() -> leasehold.HolderProcess:
        [holder] = leasehold.connect(url).show("order/17").holders
        assert holder.process is not None
        return holder.process

    assert process().pid == program.pid
    program.send_signal(signal.SIGSTOP)
    wait_until(lambda: process().state == "T", "the process is stopped")
    assert process().halted
    program.send_signal(signal.SIGCONT)
    wait_until(lambda: not process().halted, "the process goes on")
    assert finish(program)[0] == 0


@pytest.mark.parametrize("engine", ["redis", "etcd", "postgres"])
def test_a_hold_that_was_broken_without_force_is_shown_until_its_release(url: str) -> None:
    locks = leasehold.connect(url)
    guard = locks.mutex("order/17", ttl=60).acquire(wait=LIMIT)
    assert leasehold.connect(url).break_hold("order/17", guard.token)
    [holder] = locks.show("order/17").holders
    assert holder.broken and holder.id == guard.id
    with pytest.raises(leasehold.LockLost):
        guard.confirm()
    del guard
    assert_free(url, "order/17")


def test_the_guarantee_and_the_diagnostics_are_told(redis_url: str) -> None:
    locks = leasehold.connect(redis_url)
    guarantee = locks.guarantee()
    # A server of tests stores nothing on a disk.
    assert guarantee.level == "best effort"
    assert all(finding.what and finding.risk for finding in guarantee.findings)
    for diagnostic in locks.diagnose():
        assert diagnostic.id and diagnostic.severity in ("good", "warning", "broken", "unknown")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_request_connects_again(url: str, protocol: int) -> None:
    if protocol in (2, 3, 4) or url.partition(":")[0] in ("etcd", "postgres"):
        protocol = pickle.HIGHEST_PROTOCOL
    locks = leasehold.connect(url, owner="importer")
    requests = [
        locks.mutex("order/17", ttl=20, wait=10, owner="worker"),
        locks.all(wait=10).mutex("order/17").mutex("order/18"),
        locks.election("order/17", wait=10),
    ]
    for request in requests:
        again = pickle.loads(pickle.dumps(request, protocol))
        assert type(again) is type(request)
        with again as held:
            assert held.check()
            assert locks.mutex("order/17").try_acquire() is None


def test_a_pickled_request_keeps_its_options() -> None:
    locks = leasehold.connect("memory:pickled")
    request = pickle.loads(pickle.dumps(locks.permits("printer", 2, 3, wait=0.01, owner="worker", renew=False)))
    with request:
        assert locks.show("printer").holders[0].owner == "worker"
        with pytest.raises(leasehold.Busy):
            request.acquire()
        assert locks.permits("printer", 1, 3).try_acquire() is not None
    assert copy.copy(request) is request and copy.deepcopy(request) is request


def test_holds_are_not_pickled() -> None:
    locks = leasehold.connect("memory:not-pickled")
    holds = [locks.mutex("a").acquire(), locks.all().mutex("b").acquire(), locks.election("c").campaign()]
    for hold in holds:
        for copying in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="belongs to the process that acquired it"):
                copying(hold)  # type: ignore[operator]
    with pytest.raises(TypeError, match="give owner= a str"):
        pickle.dumps(locks.mutex("a", owner=leasehold.Owner("worker")))


def test_an_exception_is_pickled_without_its_connection() -> None:
    locks = leasehold.connect("memory:pickled-error")
    with locks.mutex("order/17"):
        with pytest.raises(leasehold.Busy) as busy:
            locks.mutex("order/17", wait=0).acquire()
    again = pickle.loads(pickle.dumps(busy.value))
    assert (type(again), str(again), again.kind, again.name) == (
        leasehold.Busy,
        str(busy.value),
        busy.value.kind,
        "order/17",
    )
    assert again.holder is None


def test_guards_are_context_managers_too() -> None:
    locks = leasehold.connect("memory:guard-blocks")
    for acquire in (locks.mutex("a").acquire, locks.all().mutex("a").acquire, locks.election("a").campaign):
        hold = acquire()
        with hold as entered:
            assert entered is hold and hold.check()
            assert locks.mutex("a").try_acquire() is None
        assert hold.released
    with pytest.raises(leasehold.LockLost):
        with locks.mutex("a").acquire() as guard:
            locks.break_hold("a", guard.token, force=True)
