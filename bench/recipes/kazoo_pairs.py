"""Measures how often kazoo's Lock locks and unlocks, as a comparison.

It is started as `kazoo_pairs.py SERVERS` and reads lines; it answers each line with pairs per second.

    free CLIENTS MILLIS        each client has its own name
    contended CLIENTS MILLIS   all clients use one name

A client is one session with one thread. The program ends at the end of its input.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from kazoo.client import KazooClient

SESSION_S = 30


class Program:
    def __init__(self, servers):
        self.servers = servers
        self.clients = []

    def rate(self, what, count, millis):
        while len(self.clients) < count:
            client = KazooClient(self.servers, timeout=SESSION_S)
            client.start()
            self.clients.append(client)
        begin = time.monotonic()
        end = begin + millis / 1000
        with ThreadPoolExecutor(count) as threads:
            names = ("bench-%d" % number if what == "free" else "contended" for number in range(count))
            locks = [client.Lock("/kazoo/" + name) for client, name in zip(self.clients, names)]
            done = sum(threads.map(pairs, locks, [end] * count))
        return done / (time.monotonic() - begin)


def pairs(lock, end):
    done = 0
    while time.monotonic() < end:
        lock.acquire()
        lock.release()
        done += 1
    return done


def main():
    program = Program(sys.argv[1])
    for line in sys.stdin:
        what, count, millis = line.split()
        print("%.1f" % program.rate(what, int(count), int(millis)), flush=True)
    for client in program.clients:
        client.stop()


main()
