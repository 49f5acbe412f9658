"""A program that shares a lock of etcd3 or etcd3gw with other programs, and records its sections.

usage: etcd.py etcd3|etcd3gw PORT NAME TTL DIRECTORY WHO

TTL is in milliseconds. All programs share the directory: see e2e/src/turns.rs.
"""

import sys
import time

from journal import Journal

kind, port, name, ttl, directory, who = sys.argv[1:7]
port, ttl = int(port), int(ttl) / 1000

if kind == "etcd3":
    import etcd3

    client = etcd3.client(port=port)
else:
    import etcd3gw

    client = etcd3gw.client(port=port)


def acquired():
    """A lock that was acquired at the first attempt; None if it is taken."""
    lock = client.lock(name, ttl=int(ttl))
    is_acquired = lock.acquire(timeout=0) if kind == "etcd3" else lock.acquire()
    if not is_acquired and lock.lease is not None:
        lock.lease.revoke()
    return lock if is_acquired else None


journal = Journal(directory, who)
while not journal.is_over():
    # The lease counts from before the request.
    begun = time.monotonic()
    lock = acquired()
    if lock is None:
        time.sleep(0.005)
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
