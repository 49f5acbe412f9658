"""A program in Python that locks with a package from PyPI.

usage: neighbour.py turns KIND WHERE NAME SECTIONS   sections that read and write a counter
       neighbour.py hold  KIND WHERE NAME            prints "held" or "taken"; holds until its standard input ends

WHERE is the port of a Redis, or the directory of lock files.
"""

import os
import sys

what, kind, where, name = sys.argv[1:5]


def lock_of_redis():
    if kind == "leasehold":
        import leasehold

        return leasehold.connect(f"redis://127.0.0.1:{where}").mutex(name)
    import redis

    server = redis.Redis(port=int(where))
    if kind == "redis-py":
        return server.lock("lock:" + name, timeout=30, sleep=0.02)
    if kind == "python-redis-lock":
        # Without `expire` a waiter sleeps until a release wakes it.
        import redis_lock

        return redis_lock.Lock(server, name)
    import walrus

    # A waiter sleeps for an hour, unless a release wakes it.
    return walrus.Database(port=int(where)).lock(name, ttl=3_600_000)


def lock_of_file():
    path = os.path.join(where, name + ".lock")
    if kind == "filelock":
        import filelock

        return filelock.FileLock(path)
    if kind == "portalocker":
        import portalocker

        return portalocker.Lock(path, flags=portalocker.LockFlags.EXCLUSIVE)
    import fasteners

    return fasteners.InterProcessLock(path)


class Redis:
    """The protected counter, in Redis."""

    def __init__(self):
        import redis

        self.server = redis.Redis(port=int(where))

    def section(self):
        if not self.server.set("inside", "python", nx=True):
            self.server.incr("overlaps")
        # Two steps on purpose: an overlap between them loses a count.
        count = int(self.server.get("count") or 0)
        self.server.set("count", count + 1)
        self.server.delete("inside")


class Files:
    """The protected counter, in files beside the lock."""

    def section(self):
        count, inside = (os.path.join(where, file) for file in ("count", "inside"))
        try:
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            open(os.path.join(where, "overlaps"), "w").close()
        old = int(open(count).read()) if os.path.exists(count) else 0
        with open(count, "w") as file:
            file.write(str(old + 1))
        if os.path.exists(inside):
            os.unlink(inside)


guarded, lock = (Redis(), lock_of_redis()) if where.isdigit() else (Files(), lock_of_file())
if what == "turns":
    for _ in range(int(sys.argv[5])):
        with lock:
            guarded.section()
elif kind == "fasteners" and not lock.acquire(blocking=False):
    print("taken", flush=True)
else:
    if kind != "fasteners":
        lock.acquire()
    print("held", flush=True)
    sys.stdin.read()
    lock.release()
