"""A program that shares a lock of redis-py with other programs, on servers that fail over, and records its sections.

usage: turns.py sentinel|cluster WHERE KEY TTL DIRECTORY WHO

WHERE is a list of ports; for Sentinels with a slash and the name of their master. TTL is in milliseconds. All programs
share the directory: see e2e/src/turns.rs.
"""

import sys
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from journal import Journal

kind, where, key, ttl, directory, who = sys.argv[1:7]
ttl = int(ttl) / 1000
ports, _, master = where.partition("/")
ports = [int(port) for port in ports.split(",")]
SOCKET = {"socket_timeout": 1, "socket_connect_timeout": 1}


def connect():
    if kind == "sentinel":
        from redis.sentinel import Sentinel

        sentinel = Sentinel([("127.0.0.1", port) for port in ports], **SOCKET)
        return sentinel.master_for(master, retry=Retry(NoBackoff(), 0), **SOCKET)
    from redis.cluster import ClusterNode, RedisCluster

    nodes = [ClusterNode("127.0.0.1", port) for port in ports]
    return RedisCluster(startup_nodes=nodes, **SOCKET)


journal = Journal(directory, who)
server = None
while not journal.is_over():
    try:
        if server is None:
            server = connect()
        lock = server.lock(key, timeout=ttl, thread_local=False)
        # The lease counts from before the request.
        begun = time.monotonic()
        if not lock.acquire(blocking=False):
            time.sleep(0.02)
            continue
    except (redis.RedisError, OSError):
        # There is no master now. A lock that was taken without an answer expires.
        time.sleep(0.05)
        continue
    # This program renews no lease, so it leaves its section before the lease ends.
    if time.monotonic() - begun < ttl / 4:
        journal.enter()
        while journal.lingers() and time.monotonic() - begun < ttl * 3 / 4:
            time.sleep(0.01)
        how = "held" if time.monotonic() - begun < ttl else "slept"
        journal.leave(how)
    try:
        lock.release()
    except (redis.RedisError, OSError):
        pass
    time.sleep(0.002)
