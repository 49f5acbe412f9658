"""Shares a lock with leasehold through redis-py; see docs/recipes/redis-neighbours.md.

usage: neighbour.py PORT KEY SECTIONS
"""

import sys

import redis

port, key, sections = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
server = redis.Redis(port=port)
for _ in range(sections):
    with server.lock(key, timeout=30, sleep=0.002):
        if not server.set("inside", "python", nx=True):
            server.incr("overlaps")
        # Two steps on purpose: an overlap between them loses a count.
        count = int(server.get("count") or 0)
        server.set("count", count + 1)
        server.delete("inside")
