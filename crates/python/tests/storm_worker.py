"""A program of a storm: it holds names again and again, and records its sections in their journals.

usage: storm_worker.py KIND NUMBER URL DIRECTORY SEED NAME...

KIND is how it locks:

* ``loop``: in its main thread;
* ``threads``, ``tasks``: in threads, in tasks of asyncio;
* ``prefork``: in children that it forks while it holds a name itself, as gunicorn and Celery fork theirs;
* ``spawn``: in processes of multiprocessing, which get a request by pickle;
* ``compat``: by `leasehold.compat.RedisLock`;
* ``redis-py``: by the Lock of redis-py;
* ``blind``: so, and it does not know that a lease ends, which the judge must find.

It runs until it is killed, until its standard input ends, or until SIGTERM. After SIGTERM it ends with status 0, and
holds nothing (except redis-py). Each line of DIRECTORY/events tells something that the journals do not tell:
``forked``, ``left`` (a process that ended without its interpreter, in a block) and ``fault TEXT``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import Callable
from urllib.parse import urlsplit

import redis

import leasehold
from leasehold.compat import RedisLock
from storm_children import Preforked, in_processes
from storm_program import LEASE_S, WORKERS, Record, chance, hold, kind, names, pause, raise_at_sigterm, record_of, url


def loop(locks: leasehold.Locks) -> None:
    raise_at_sigterm()
    while True:
        hold(locks, 0)


def in_threads(locks: leasehold.Locks) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: over.set())

    def work(worker: int) -> None:
        while not over.is_set():
            hold(locks, worker)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    locks.close()


async def in_a_task(locks: leasehold.Locks, worker: int) -> None:
    while True:
        try:
            async with locks.mutex(chance.choice(names), ttl=LEASE_S) as guard:
                record = record_of(guard, worker)
                try:
                    record.enter()
                    await asyncio.sleep(pause())
                finally:
                    record.leave()
        except leasehold.LockLost:
            pass


async def in_tasks(locks: leasehold.Locks) -> None:
    tasks = asyncio.gather(*(in_a_task(locks, worker) for worker in range(WORKERS)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, tasks.cancel)
    try:
        await tasks
    except asyncio.CancelledError:
        pass


def by_the_lock_of_compat() -> None:
    raise_at_sigterm()
    client = redis.Redis(port=urlsplit(url).port or 0)
    while True:
        name = chance.choice(names)
        lock = client.lock(name, timeout=LEASE_S, lock_class=RedisLock)
        try:
            with lock:
                Record({name: "-"}, lock.owned, 0).around(lambda: time.sleep(pause()))
        except redis.exceptions.LockError:
            pass


def by_redis_py(certain_s: float) -> None:
    """It renews no lease, so it is certain of a section only for a time."""
    client = redis.Redis(port=urlsplit(url).port or 0)
    while True:
        name = chance.choice(names)
        lock = client.lock(name, timeout=LEASE_S, sleep=0.01)
        # The lease may have begun at any moment of the wait.
        begin = time.monotonic()
        if not lock.acquire(blocking_timeout=0.5):
            continue
        Record({name: "-"}, lambda: time.monotonic() - begin < certain_s, 0).around(lambda: time.sleep(pause()))
        try:
            lock.release()
        except redis.exceptions.LockError:
            pass
        time.sleep(0.002)


def end_with_the_test() -> None:
    # Not by sys.stdin: a child that is forked while a thread reads it could not close it.
    os.read(0, 1)
    os._exit(0)


def main() -> None:
    threading.Thread(target=end_with_the_test, daemon=True).start()
    locks = leasehold.connect(url)
    ways: dict[str, Callable[[], None]] = {
        "loop": lambda: loop(locks),
        "threads": lambda: in_threads(locks),
        "tasks": lambda: asyncio.run(in_tasks(locks)),
        "prefork": lambda: Preforked(locks).run(),
        "spawn": lambda: in_processes(locks),
        "compat": by_the_lock_of_compat,
        "redis-py": lambda: by_redis_py(LEASE_S),
        "blind": lambda: by_redis_py(float("inf")),
    }
    ways[kind]()


if __name__ == "__main__":
    main()
