"""Programs in Python with locks from articles, on redis-py.

usage: redis_by_hand.py until KIND PORT KEY TTL DIRECTORY WHO   sections until the file "over" exists
       redis_by_hand.py hold  KIND PORT KEY TTL                 prints "held", then holds until its standard input ends
       redis_by_hand.py wait  KIND PORT KEY TTL                 prints "waits", then waits for the lock, and prints "held"

KIND is old (SETNX with a time as the value, in seconds), old-millis (in milliseconds), repairing (a waiter that sees
TTL 0 sets the expiry) or overwriting (the renewal is a plain SET; its pause between compare and SET ends with a line of
standard input). TTL is in milliseconds. The directory is that of leasehold's own programs, see e2e/src/turns.rs.
"""

import sys
import threading
import time
import uuid

import redis

from journal import Journal

what, kind, port, key, ttl = sys.argv[1:6]
ttl = int(ttl) / 1000
COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class Old:
    """`SETNX key (now + timeout)`, without an expiry. GETSET decides who takes over a time that is over."""

    def __init__(self, server, factor):
        self.server, self.factor = server, factor

    def deadline(self):
        self.until = time.time() + ttl
        return repr(self.until) if self.factor == 1 else int(self.until * self.factor)

    def is_over(self, value):
        try:
            return value is not None and float(value) < time.time() * self.factor
        except ValueError:
            # The value of a program that stores no time.
            return False

    def acquire(self):
        if self.server.setnx(key, self.deadline()):
            return True
        if not self.is_over(self.server.get(key)):
            return False
        return self.is_over(self.server.getset(key, self.deadline()))

    def release(self):
        if time.time() < self.until:
            self.server.delete(key)


class Repairing:
    """`SET key uuid EX n NX`; a waiter that finds TTL 0 sets the expiry."""

    def __init__(self, server):
        self.server = server

    def acquire(self):
        self.value = str(uuid.uuid4())
        if self.server.set(key, self.value, ex=int(ttl), nx=True):
            return True
        if self.server.ttl(key) == 0:
            self.server.expire(key, int(ttl))
        return False

    def release(self):
        self.server.eval(COMPARE_AND_DELETE, 1, key, self.value)


class Overwriting(Repairing):
    """The class `RedLock` of one server: a thread compares, then sets the key, in two steps."""

    def acquire(self):
        self.value = str(uuid.uuid1())
        if not self.server.set(key, self.value, ex=int(ttl), nx=True):
            return False
        threading.Thread(target=self.renew, daemon=True).start()
        return True

    def renew(self):
        extended = 0
        while (self.server.get(key) or b"").decode() == self.value:
            print("compared", flush=True)
            if not sys.stdin.readline():
                return
            extended += 1
            self.server.set(key, self.value, ex=int(ttl) + extended)
            print("renewed", flush=True)


def connect():
    server = redis.Redis(port=int(port))
    if kind.startswith("old"):
        return Old(server, 1000 if kind == "old-millis" else 1)
    return {"repairing": Repairing, "overwriting": Overwriting}[kind](server)


def until_over(lock, directory, who):
    journal = Journal(directory, who)
    while not journal.is_over():
        # The lease counts from before the request.
        begun = time.monotonic()
        if not lock.acquire():
            time.sleep(0.02)
            continue
        # This program renews no lease, so it leaves its section before the lease ends.
        if time.monotonic() - begun < ttl / 4:
            journal.enter()
            while journal.lingers() and time.monotonic() - begun < ttl * 3 / 4:
                time.sleep(0.01)
            how = "held" if time.monotonic() - begun < ttl else "slept"
            journal.leave(how)
        lock.release()
        time.sleep(0.002)


lock = connect()
if what == "until":
    until_over(lock, *sys.argv[6:8])
else:
    acquired = lock.acquire()
    if not acquired and what == "wait":
        print("waits", flush=True)
    while not acquired:
        time.sleep(0.001)
        acquired = lock.acquire()
    print("held", flush=True)
    if kind != "overwriting":
        sys.stdin.read()
        lock.release()
    else:
        threading.Event().wait()
