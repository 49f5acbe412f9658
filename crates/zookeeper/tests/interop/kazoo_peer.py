"""A program that locks with kazoo, for tests that two kinds of programs exclude each other.

It is started as `kazoo_peer.py SERVERS SESSION_MS [USER:PASSWORD]` and told what to do line by line; it answers line by
line. Who logs in makes nodes that are its own alone. Each THREAD is one of the program's own, so that one waits while
others go on; what it holds is its own, and what it is told is done in order. PATTERNs name the nodes of other programs
that kazoo shall count, such as `-lock-`.

    lock THREAD PATH [PATTERN...]       locked THREAD NODE: a mutex
    read THREAD PATH [PATTERN...]       as lock: the shared side of a read-write lock
    write THREAD PATH [PATTERN...]      as lock: its exclusive side
    curator THREAD PATH [PATTERN...]    as lock, with nodes that are named as Curator's are
    permit THREAD PATH MOST             as lock: one permit of at most so many
    unlock THREAD                       unlocked THREAD: what it locked last
    contenders PATH [PATTERN...]        contenders JSON: what is told of those who hold or want a mutex, in order
    change PATH DATA NODE VERSION       changed, or refused WHY: in one step with a check of the node
    read-data PATH                      data TEXT
    session                             session NUMBER, in hexadecimal digits
    state                               state CONNECTED, SUSPENDED or LOST
    quit                                ends in order, as does the end of its input

What goes wrong is answered by `error TEXT`, or `error THREAD TEXT`.
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
    """Curator compares what comes after `-lock-`, and finds it nowhere in the nodes that kazoo makes by itself."""

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
        self.speaking = threading.Lock()

    def obey(self, command, *words):
        if command in MUTEXES:
            thread, path, *patterns = words
            lock = MUTEXES[command](self.client, path, thread, extra_lock_patterns=patterns)
            self.worker(thread).tell(self.lock, lock, lambda: path + "/" + lock.node)
        elif command == "permit":
            thread, path, most = words
            lock = Semaphore(self.client, path, thread, int(most))
            self.worker(thread).tell(self.lock, lock, lambda: lock.create_path)
        elif command == "unlock":
            self.worker(words[0]).tell(self.unlock)
        elif command == "contenders":
            path, *patterns = words
            told = Lock(self.client, path, extra_lock_patterns=patterns).contenders()
            self.say("contenders", json.dumps(told))
        elif command == "change":
            path, data, node, version = words
            step = self.client.transaction()
            step.check(node, int(version))
            step.set_data(path, data.encode())
            first = step.commit()[0]
            self.say(*(["refused", type(first).__name__] if isinstance(first, Exception) else ["changed"]))
        elif command == "read-data":
            self.say("data", self.client.get(words[0])[0].decode())
        elif command == "session":
            self.say("session", format(self.client.client_id[0], "x"))
        elif command == "state":
            self.say("state", self.client.state)
        else:
            raise ValueError("not a command: " + command)

    def lock(self, worker, lock, node):
        lock.acquire()
        worker.held.append(lock)
        self.say("locked", worker.name, node())

    def unlock(self, worker):
        worker.held.pop().release()
        self.say("unlocked", worker.name)

    def worker(self, name):
        if name not in self.workers:
            self.workers[name] = Worker(name, self.say)
        return self.workers[name]

    def say(self, *words):
        with self.speaking:
            print(*words, flush=True)

    def quit(self):
        """Gives back the session, and with it all that is locked or stands in line."""
        # What waits would tell that it is closed.
        self.speaking.acquire()
        self.client.stop()
        # Some threads may still wait.
        os._exit(0)


class Worker:
    """A thread that locks."""

    def __init__(self, name, say):
        self.name = name
        self.held = []
        self.work = queue.SimpleQueue()
        self.say = say
        threading.Thread(target=self.run, daemon=True).start()

    def tell(self, do, *arguments):
        self.work.put((do, arguments))

    def run(self):
        while True:
            do, arguments = self.work.get()
            try:
                do(self, *arguments)
            except Exception as error:
                self.say("error", self.name, one_line(error))


def one_line(error):
    return " ".join(repr(error).split())


def main():
    program = Program(*sys.argv[1:])
    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            break
        try:
            program.obey(*words)
        except Exception as error:
            program.say("error", one_line(error))
    program.quit()


main()
