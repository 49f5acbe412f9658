"""A program that shares a lock of a database session with other programs, and records its sections.

usage: sql_turns.py KIND PORT NAME TTL DIRECTORY WHO

KIND is a package and its database, such as pals-postgres. TTL has no effect: a session holds until it ends. All
programs share the directory: see e2e/src/turns.rs.
"""

import sys
import time
import warnings

from journal import Journal

kind, port, name, _, directory, who = sys.argv[1:7]
package, database = kind.rsplit("-", 1)
if database == "postgres":
    url = f"postgresql+psycopg2://postgres@127.0.0.1:{port}/postgres"
else:
    url = f"mysql+pymysql://root@127.0.0.1:{port}/locks"


def pals():
    from pals import Locker

    lock = Locker(None, url).lock(name, blocking=False)
    return lock.acquire, lock.release


def sqlalchemy_dlock():
    import sqlalchemy
    import sqlalchemy_dlock

    connection = sqlalchemy.create_engine(url).connect()
    lock = sqlalchemy_dlock.create_sadlock(connection, name)
    return lambda: lock.acquire(block=False), lock.release


def django_pglocks():
    import django
    from django.conf import settings

    login = {"HOST": "127.0.0.1", "PORT": port, "USER": "postgres", "NAME": "postgres"}
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **login}})
    django.setup()
    warnings.simplefilter("ignore", DeprecationWarning)
    from django_pglocks import advisory_lock

    inside = []

    def acquire():
        manager = advisory_lock(name, wait=False)
        inside[:] = [manager]
        return manager.__enter__() or manager.__exit__(None, None, None)

    return acquire, lambda: inside[0].__exit__(None, None, None)


def django_pglock():
    import django
    from django.conf import settings

    login = {"HOST": "127.0.0.1", "PORT": port, "USER": "postgres", "NAME": "postgres"}
    databases = {"default": {"ENGINE": "django.db.backends.postgresql", **login}}
    settings.configure(DATABASES=databases, INSTALLED_APPS=["pgactivity", "pglock"])
    django.setup()
    import pglock

    lock = pglock.advisory(name, timeout=0)
    return lock.acquire, lock.release


def tooz():
    from tooz import coordination

    scheme, login = ("postgresql", "postgres") if database == "postgres" else ("mysql", "root")
    path = "postgres" if database == "postgres" else "locks"
    coordinator = coordination.get_coordinator(f"{scheme}://{login}@127.0.0.1:{port}/{path}", who.encode())
    coordinator.start()
    lock = coordinator.get_lock(name.encode())
    return lambda: lock.acquire(blocking=False), lock.release


acquire, release = globals()[package.replace("-", "_")]()
journal = Journal(directory, who)
while not journal.is_over():
    if not acquire():
        time.sleep(0.02)
        continue
    journal.enter()
    while journal.lingers():
        time.sleep(0.01)
    journal.leave("held")
    release()
    time.sleep(0.002)
