"""The lock of redis-py, on leasehold."""

from __future__ import annotations

import inspect
import threading
from typing import Any, Iterator
from urllib.parse import urlsplit

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError
from redis.lock import Lock

import leasehold
from leasehold.compat import RedisLock
from programs import run


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    address = urlsplit(redis_url)
    client = redis.Redis(host=address.hostname or "", port=address.port or 0)
    yield client
    client.close()


@pytest.fixture
def name(request: pytest.FixtureRequest, redis_url: str) -> str:
    return f"compat/{request.node.name}/{urlsplit(redis_url).query}"


def test_the_signatures_are_those_of_redis_py() -> None:
    for method in ("__init__", "acquire", "release", "locked", "owned", "extend", "reacquire", "do_release"):
        theirs = inspect.signature(getattr(Lock, method)).parameters
        ours = inspect.signature(getattr(RedisLock, method)).parameters
        assert [(one.name, one.kind, one.default) for one in ours.values()] == [
            (one.name, one.kind, one.default) for one in theirs.values()
        ], method


def test_each_lock_excludes_the_other(client: Any, name: str) -> None:
    ours, theirs = RedisLock(client, name, timeout=20), Lock(client, name, timeout=20)
    for holder, other in ((ours, theirs), (theirs, ours)):
        with holder:
            assert holder.owned() and holder.locked() and other.locked() and not other.owned()
            assert other.acquire(blocking=False) is False
            assert other.acquire(blocking_timeout=0.2) is False
        assert not holder.locked() and not holder.owned()


def test_a_waiter_gets_the_lock_that_the_other_program_releases(client: Any, name: str) -> None:
    order: list[str] = []
    theirs = Lock(client, name, timeout=60)
    theirs.acquire()

    def wait() -> None:
        with RedisLock(client, name, timeout=60, blocking_timeout=60):
            order.append("acquired")

    waiter = threading.Thread(target=wait)
    waiter.start()
    order.append("released")
    theirs.release()
    waiter.join()
    assert order == ["released", "acquired"]


def test_a_client_makes_locks_of_this_class(client: Any, name: str) -> None:
    with client.lock(name, timeout=20, lock_class=RedisLock) as lock:
        assert isinstance(lock, RedisLock)
        # The key has the token, as with redis-py.
        assert client.get(name) == lock.local.token


def test_a_lock_with_a_timeout_ends_and_is_extended(client: Any, name: str) -> None:
    lock = RedisLock(client, name, timeout=0.3)
    lock.acquire()
    assert 0 < client.pttl(name) <= 300
    assert lock.extend(60) and 50_000 < client.pttl(name) <= 63_000
    assert lock.reacquire() and client.pttl(name) > 50_000, "it is never shortened"
    lock.release()
    lock.acquire()
    while lock.owned():
        pass
    for call in (lock.release, lambda: lock.extend(1), lock.reacquire):
        with pytest.raises(LockError):
            call()


def test_a_lock_without_a_timeout_is_renewed_and_cannot_be_extended(client: Any, name: str) -> None:
    with RedisLock(client, name) as lock:
        assert client.pttl(name) > 0
        with pytest.raises(LockError, match="no timeout"):
            lock.extend(10)
        with pytest.raises(LockError, match="no timeout"):
            lock.reacquire()
        with pytest.raises(LockError, match="wait for itself"):
            lock.acquire()
        assert lock.acquire(blocking=False) is False


def test_the_errors_are_those_of_redis_py(client: Any, name: str) -> None:
    lock = RedisLock(client, name, timeout=20, blocking_timeout=2)
    with pytest.raises(LockError, match="not owned or is already unlocked"):
        lock.release()
    with pytest.raises(LockError, match="Cannot extend an unlocked lock"):
        lock.extend(1)
    with Lock(client, name, timeout=20):
        with pytest.raises(LockError, match="Unable to acquire lock"):
            lock.__enter__()
    lock.acquire()
    client.delete(name)
    with pytest.raises(LockNotOwnedError):
        lock.release()
    with pytest.raises(TypeError, match="token"):
        lock.acquire(token="mine")


def test_a_lost_lock_at_the_end_of_a_block(client: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LockNotOwnedError):
        with RedisLock(client, name, timeout=20):
            client.delete(name)
    with RedisLock(client, name, timeout=20, raise_on_release_error=False):
        client.delete(name)
    assert any("no longer owned" in record.getMessage() for record in caplog.records)


def test_a_token_is_of_one_thread_unless_it_is_shared(client: Any, name: str) -> None:
    seen: list[Any] = []

    def look(lock: RedisLock) -> None:
        seen.append(lock.owned())
        try:
            lock.release()
        except LockError as error:
            seen.append(type(error))

    for thread_local in (True, False):
        lock = RedisLock(client, name, timeout=20, thread_local=thread_local)
        lock.acquire()
        other = threading.Thread(target=look, args=(lock,))
        other.start()
        other.join()
        if thread_local:
            lock.release()
    assert seen == [False, LockError, True]


def test_clients_that_cannot_be_used_are_refused_with_the_reason() -> None:
    with pytest.raises(TypeError, match="redis must be a client of one server .*, or a URL"):
        RedisLock(object(), "a")
    with pytest.raises(TypeError, match="use leasehold.compat.AsyncRedisLock"):
        RedisLock(redis.asyncio.Redis(), "a")
    with pytest.raises(TypeError, match="does not verify"):
        RedisLock(redis.Redis(ssl=True, ssl_cert_reqs="none"), "a")


@pytest.mark.parametrize("package", [redis, redis.asyncio])
def test_the_settings_of_a_client_become_those_of_a_connection(package: Any) -> None:
    from leasehold.compat._servers import url_of

    client = package.Redis(host="::1", port=7000, db=3, username="shop@7", password="secret")
    assert url_of(client) == ("redis://shop%407@[::1]:7000/3", "secret")
    client = package.Redis(unix_socket_path="/run/redis.sock", db=2)
    assert url_of(client) == ("redis+unix:///run/redis.sock?db=2", None)
    client = package.Redis(host="db", ssl=True, ssl_ca_certs="/etc/ca.pem")
    assert url_of(client) == ("rediss://db:6379/0?ca=%2Fetc%2Fca.pem", None)


def test_a_url_without_a_client() -> None:
    with RedisLock("memory:compat", "report", timeout=10) as lock:
        assert lock.owned() and leasehold.connect("memory:compat").mutex("report").try_acquire() is None


def test_a_lock_that_is_acquired_and_forgotten_stays_until_its_timeout(client: Any, name: str, redis_url: str) -> None:
    def once_per_day() -> bool:
        acquired: bool = RedisLock(client, name, timeout=80_000).acquire(blocking=False)
        return acquired

    assert [once_per_day() for _ in range(3)] == [True, False, False]
    assert client.pttl(name) > 70_000_000
    client.delete(name)
    # Also after the end of its program.
    program = """if True:
    import sys
    from leasehold.compat import RedisLock
    lock = RedisLock(sys.argv[1], sys.argv[2], timeout=600)
    print(lock.acquire(blocking=False))
    """
    address = redis_url.partition("?")[0]
    assert [run(program, address, name) for _ in range(2)] == ["True\n", "False\n"]
    assert client.pttl(name) > 500_000
    client.delete(name)
    # Without a timeout it ends with its program.
    assert [run(program.replace(", timeout=600", ""), address, name) for _ in range(2)] == ["True\n", "True\n"]


def test_a_token_releases_elsewhere(client: Any, name: str) -> None:
    for release in ("release", "do_release"):
        lock = RedisLock(client, name, timeout=60)
        assert lock.acquire(blocking=False)
        token = lock.local.token
        # As a task of Celery does that finishes what a web handler began.
        del lock
        other = RedisLock(client, name, timeout=60)
        with pytest.raises(LockNotOwnedError):
            other.do_release(b"of nobody")
        other.local.token = token
        assert other.owned()
        other.release() if release == "release" else other.do_release(token)
        assert not other.locked() and not other.owned()
        with pytest.raises(LockNotOwnedError):
            other.do_release(token)


def test_errors_of_the_server_are_those_of_both_packages(name: str) -> None:
    lock = RedisLock("redis://127.0.0.1:1?connect_timeout=100ms", name)
    calls: list[Any] = [lambda: lock.acquire(blocking=False), lock.acquire, lock.locked]
    for call in calls:
        with pytest.raises(redis.exceptions.ConnectionError) as error:
            call()
        assert isinstance(error.value, leasehold.Unreachable) and error.value.kind == "unreachable"
        assert isinstance(error.value, redis.exceptions.RedisError)


def test_wrong_times_are_named_as_redis_py_names_them(client: Any, name: str) -> None:
    with pytest.raises(TypeError, match="timeout must be seconds"):
        RedisLock(client, name, timeout="10").acquire()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="blocking_timeout must be seconds"):
        RedisLock(client, name, blocking_timeout="10").acquire()  # type: ignore[arg-type]
    with RedisLock(client, name, timeout=60):
        # One try.
        assert RedisLock(client, name, blocking_timeout=-1).acquire() is False
