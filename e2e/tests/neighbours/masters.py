"""A program in Python that locks three servers with a package from PyPI.

usage: masters.py turns KIND PORTS NAME SECTIONS   sections that read and write a counter on the first server
       masters.py hold  KIND PORTS NAME TTL        prints "held", then holds until its standard input ends
       masters.py try   KIND PORTS NAME TTL        tries once; prints "held" or "taken"

TTL is in milliseconds.
"""

import sys
import time

import redis

what, kind, ports, name, number = sys.argv[1:6]
servers = [redis.Redis(port=int(port)) for port in ports.split(",")]
ttl = 30_000 if what == "turns" else int(number)


class RedlockPy:
    def __init__(self):
        import redlock

        self.redlock = redlock.Redlock(servers, retry_count=1)

    def take(self):
        self.lock = self.redlock.lock("lock:" + name, ttl)
        return bool(self.lock)

    def give(self):
        self.redlock.unlock(self.lock)


class Pottery:
    def __init__(self):
        import pottery

        self.lock = pottery.Redlock(key=name, masters=set(servers), auto_release_time=ttl / 1000)

    def take(self):
        return self.lock.acquire(blocking=False)

    def give(self):
        self.lock.release()


lock = {"redlock-py": RedlockPy, "pottery": Pottery}[kind]()


def wait():
    while not lock.take():
        time.sleep(0.02)


def section():
    if not servers[0].set("inside", "python", nx=True):
        servers[0].incr("overlaps")
    # Two steps on purpose: an overlap between them loses a count.
    count = int(servers[0].get("count") or 0)
    servers[0].set("count", count + 1)
    servers[0].delete("inside")


if what == "turns":
    for _ in range(int(number)):
        wait()
        section()
        lock.give()
elif what == "try":
    print("held" if lock.take() else "taken", flush=True)
else:
    wait()
    print("held", flush=True)
    sys.stdin.read()
    lock.give()
