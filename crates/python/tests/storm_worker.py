"""A program of a storm: it holds one name again and again, and records its sections in a journal.

usage: storm_worker.py KIND REDIS-PORT JOURNAL SEED

KIND is how it locks: by `threads`, by asyncio `tasks`, in forked children of a process that has connected (`forks`), or
by redis-py's Lock (`redis`). It runs until it is killed or its standard input ends. The journal is a file to which each
line is written by one call: `enter WHO TOKEN`, `leave WHO held|lost`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time

import redis

import leasehold

kind, port, path, seed = sys.argv[1:]
NAME = "storm"
LEASE_S = 5
WORKERS = 3
journal = os.open(path, os.O_WRONLY | os.O_APPEND)
chance = random.Random(int(seed))


def record(*words: object) -> None:
    os.write(journal, (" ".join(map(str, words)) + "\n").encode())


def who(worker: object) -> str:
    return f"{kind}-{os.getpid()}-{worker}"


def pause() -> float:
    return chance.choice((0, 0, 0.001, 0.02))


def end_of(guard: leasehold.Guard) -> str:
    return "held" if guard.check() else "lost"


def lock_in_thread(request: leasehold.Request, worker: int) -> None:
    while True:
        try:
            with request as guard:
                record("enter", who(worker), guard.token)
                time.sleep(pause())
                record("leave", who(worker), end_of(guard))
        except leasehold.LockLost:
            pass


async def lock_in_task(request: leasehold.Request, worker: int) -> None:
    while True:
        try:
            async with request as guard:
                record("enter", who(worker), guard.token)
                try:
                    await asyncio.sleep(pause())
                finally:
                    record("leave", who(worker), end_of(guard))
        except leasehold.LockLost:
            pass


async def lock_in_tasks(request: leasehold.Request) -> None:
    await asyncio.gather(*(lock_in_task(request, worker) for worker in range(WORKERS)))


def lock_in_forks(request: leasehold.Request) -> None:
    """Each child ends after some sections: by its last line, or at once and without any clean-up."""
    while True:
        # The parent uses its connection, so that there is something to inherit.
        request.acquire().release()
        child = os.fork()
        if child == 0:
            for _ in range(5):
                try:
                    with request as guard:
                        record("enter", who("child"), guard.token)
                        time.sleep(pause())
                        record("leave", who("child"), end_of(guard))
                except leasehold.LockLost:
                    pass
            os._exit(0)
        os.waitpid(child, 0)


def lock_by_redis_py() -> None:
    """It renews no lease, so a section that took long is recorded as lost: its lease may have ended."""
    lock = redis.Redis(port=int(port)).lock("lock:" + NAME, timeout=LEASE_S, sleep=0.01)
    while True:
        begin = time.monotonic()
        if not lock.acquire(blocking_timeout=0.5):
            continue
        # The lease may have begun at any moment of the wait.
        record("enter", who(0), "-")
        time.sleep(pause())
        record("leave", who(0), "held" if time.monotonic() - begin < LEASE_S else "lost")
        try:
            lock.release()
        except redis.exceptions.LockError:
            pass
        time.sleep(0.002)


def end_with_the_test() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    threading.Thread(target=end_with_the_test, daemon=True).start()
    request = leasehold.connect(f"redis://127.0.0.1:{port}").mutex(NAME, ttl=LEASE_S)
    if kind == "threads":
        threads = [threading.Thread(target=lock_in_thread, args=(request, worker)) for worker in range(WORKERS)]
        for thread in threads:
            thread.start()
    elif kind == "tasks":
        asyncio.run(lock_in_tasks(request))
    elif kind == "forks":
        lock_in_forks(request)
    else:
        lock_by_redis_py()


main()
