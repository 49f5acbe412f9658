"""What operators see and do, and what pickles."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

import leasehold


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
