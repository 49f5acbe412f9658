"""A program that locks with kazoo, for tests that two kinds of programs exclude each other.

It is started as `kazoo_peer.py SERVERS SESSION_MS [USER:PASSWORD]`, reads commands line by line and answers line by
line. With a login it creates nodes that only this login may access. Each THREAD is a thread of the program, so that one
thread can wait while others continue. A thread has its own holds and runs its commands in order. A PATTERN, such as
`-lock-`, matches nodes of other programs that kazoo has to count.

    lock THREAD PATH [PATTERN...]       locked THREAD NODE: a mutex
    read THREAD PATH [PATTERN...]       as lock: the shared side of a read-write lock
    write THREAD PATH [PATTERN...]      as lock: the exclusive side of a read-write lock
    curator THREAD PATH [PATTERN...]    as lock, with nodes that are named as Curator's are
    permit THREAD PATH MOST             as lock: one permit of at most MOST
    unlock THREAD                       unlocked THREAD: the last lock of the thread
    contenders PATH [PATTERN...]        contenders JSON: the holder and the waiters of a mutex, in order
    change PATH DATA NODE VERSION       changed, or refused WHY: in one step with a check of NODE
    read-data PATH                      data TEXT
    session                             session NUMBER, in hexadecimal digits
    state                               state CONNECTED, SUSPENDED or LOST
    quit                                ends in order, like the end of the input

An error is answered by `error TEXT`, or `error THREAD TEXT`.
"""

import json
import os
import queue
import sys
import threading

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock
from kazoo.security import make_digest_acl


class CuratorLock(Lock):
    """Curator compares what follows `-lock-`, which the names of kazoo's own nodes do not contain."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


MUTEXES = {"lock": Lock, "read": ReadLock, "write": WriteLock, "curator": CuratorLock}


class Program:
    def __init__(self, servers, session_ms, login=None):
        options = {}
        if login:
            user, password = login.split(":", 1)
            options["auth_data"] = [("digest", login)]
            options["default_acl"] = [make_digest_acl(user, password, all=True)]
        self.client = KazooClient(servers, timeout=int(session_ms) / 1000, **options)
        self.client.start()
        self.workers = {}
        self.print_lock = threading.Lock()

    def run_command(self, command, *words):
        if command in MUTEXES:
            thread, path, *patterns = words
            lock = MUTEXES[command](self.client, path, thread, extra_lock_patterns=patterns)
            self.worker(thread).enqueue(self.lock, lock, lambda: path + "/" + lock.node)
        elif command == "permit":
            thread, path, most = words
            lock = Semaphore(self.client, path, thread, int(most))
            self.worker(thread).enqueue(self.lock, lock, lambda: lock.create_path)
        elif command == "unlock":
            self.worker(words[0]).enqueue(self.unlock)
        elif command == "contenders":
            path, *patterns = words
            contenders = Lock(self.client, path, extra_lock_patterns=patterns).contenders()
            self.print_line("contenders", json.dumps(contenders))
        elif command == "change":
            path, data, node, version = words
            transaction = self.client.transaction()
            transaction.check(node, int(version))
            transaction.set_data(path, data.encode())
            first = transaction.commit()[0]
            self.print_line(*(["refused", type(first).__name__] if isinstance(first, Exception) else ["changed"]))
        elif command == "read-data":
            self.print_line("data", self.client.get(words[0])[0].decode())
        elif command == "session":
            self.print_line("session", format(self.client.client_id[0], "x"))
        elif command == "state":
            self.print_line("state", self.client.state)
        else:
            raise ValueError("not a command: " + command)

    def lock(self, worker, lock, node):
        lock.acquire()
        worker.held.append(lock)
        self.print_line("locked", worker.name, node())

    def unlock(self, worker):
        worker.held.pop().release()
        self.print_line("unlocked", worker.name)

    def worker(self, name):
        if name not in self.workers:
            self.workers[name] = Worker(name, self.print_line)
        return self.workers[name]

    def print_line(self, *words):
        with self.print_lock:
            print(*words, flush=True)

    def quit(self):
        """Ends the session, with all its locks and queue entries."""
        # Waiting threads would print that the client is closed.
        self.print_lock.acquire()
        self.client.stop()
        # Some threads may still be waiting.
        os._exit(0)


class Worker:
    """A thread that locks."""

    def __init__(self, name, print_line):
        self.name = name
        self.held = []
        self.work = queue.SimpleQueue()
        self.print_line = print_line
        threading.Thread(target=self.run, daemon=True).start()

    def enqueue(self, action, *arguments):
        self.work.put((action, arguments))

    def run(self):
        while True:
            action, arguments = self.work.get()
            try:
                action(self, *arguments)
            except Exception as error:
                self.print_line("error", self.name, one_line(error))


def one_line(error):
    return " ".join(repr(error).split())


def main():
    program = Program(*sys.argv[1:])
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            break
        try:
            program.run_command(*words)
        except Exception as error:
            program.print_line("error", one_line(error))
    program.quit()


main()
