//! Texts of `--help` and of the manual page. Their lines fit into a terminal of 80 columns.

/// Printed after the options of `acquire`.
pub(crate) const ACQUIRE: &str = "\
Examples:
  h=$(leasehold acquire deploy --ttl 10m -w 1h)      wait, then hold for 10 min
  leasehold renew \"$h\"                              10 minutes more
  leasehold check \"$h\" || exit                      76: the hold is over
  leasehold release \"$h\"                            76: it was over before
  leasehold acquire job --while-pid $$ --handle-file h
                                                     hold while this shell lives

The handle is one word: name, mode, id of the claim, token and engine. It has
neither the URL nor a password. It is printed only after the grant.

Without --while-pid no process is left: the hold is a lease of --ttl (10m by
default), and ends when it is not renewed in time. Engines whose holds end with
a process or session (file, etcd, ZooKeeper, hold=session) refuse this.

With --while-pid a process named lh-holder renews the hold for as long as the
process PID lives, releases it at once when PID has ended, and ends. It ends
also at SIGTERM, at a break, and at the end of --max-hold. If it is killed, the
hold ends after --ttl (30s by default), on the file engine at once. It belongs
to the step that started it: a runner that ends all processes of a step ends it.
PID is often not $$: the shell of a step ends with the step.

Work under a handle is not stopped when the hold is over: use `check` before
each step, and the token of `check --token` as a fence.\n";

/// Printed after the options of `run`.
pub(crate) const RUN: &str = "\
Examples:
  leasehold run nightly -- ./report.sh               wait for the lock, then run
  leasehold run -w 10s nightly -- ./report.sh        wait ten seconds at most
  leasehold run -n nightly -- ./report.sh            do not wait: 75 if taken
  leasehold run --limit 3 api -- ./call.sh           at most three at once
  leasehold run a --and b -- ./move.sh               hold both, or none
  leasehold run nightly -c './a.sh | ./b.sh'         a text for the shell
  leasehold run -n --at-least 55s tick -- ./job.sh   once a minute, for cron

Durations are written as 500ms, 30s, 5m or 1h30m. On engines whose holds are
leases, --grace is limited to a third of the granted ttl, so that CMD has ended
when the lease ends. On every engine CMD has ended when --max-hold has passed.

Where holds end with their process (ZooKeeper), leasehold keeps running until
--at-least has passed. A signal that ends it earlier frees NAME.

CMD gets LEASEHOLD_NAME, LEASEHOLD_CLAIM (the id in `show`), LEASEHOLD_TOKEN (a
number that grows with each grant), and LEASEHOLD_LINEAGE: tokens of different
lineages cannot be compared. With --and, LEASEHOLD_HOLDS has all holds as JSON:
name, mode, id, token, lineage. Names are acquired in byte order, in whatever
order they are given, so runs never wait for each other in a circle; a run
inside a run can: name all names in the outer run. If a wait would never end,
the inner run that began to wait last gives up and prints the circle. It exits
with 64, also with -E: another try would end in the same way.

The text of --on-lost is run by /bin/sh when the lock is lost, beside the TERM
for CMD, and does not delay it. It gets LEASEHOLD_NAME, LEASEHOLD_TOKEN,
LEASEHOLD_LINEAGE and LEASEHOLD_LOSS (lapsed, gone, broken, replaced, max_hold,
...). After ten seconds it is killed. leasehold ends after it.

The line of --report is a JSON object, also for a run that was not granted:
name, engine, outcome (ran, ran_before for once, not_acquired, lost, failed),
exit (the exit code), lost (the reason), waited_ms, held_ms, token, lineage,
holds (as in LEASEHOLD_HOLDS), message (also with -q). A file is replaced, a
descriptor gets one more line.

--metrics-file keeps series about the runs of NAME (the last success, exit code,
wait and hold, losses, whether NAME is held now) in a file of the text-file
collector of the node exporter. Use one file for each NAME, in a directory of
this machine; it ends in .prom.

CMD runs in a process group of its own, in the foreground on a terminal. The
signals HUP INT QUIT TERM USR1 USR2 CONT and TSTP are forwarded to it.

When the lock is lost, or leasehold is killed (KILL), CMD and all its
descendants are ended, including those in sessions of their own. After a kill
NAME is free as soon as they have ended. For this leasehold is two processes;
the second is called lh-guardian. If both are killed, or lh-guardian under
--at-least, NAME is free after its ttl.

If it may create one, leasehold runs CMD in a cgroup of its own: as root, or as
a user with a delegated one (systemd-run --user --scope -p Delegate=yes
leasehold). -v prints its path, or why there is none. Then all processes in the
cgroup are ended, including those that became another user. If both processes
were killed, the next run of the same user in the same place ends the processes
that they left, before its own CMD starts.
Without a cgroup these processes are not ended:
  processes of CMD that became another user (sudo), unless leasehold is root:
  leasehold prints their pids, and after a kill NAME stays taken until they end;
  to avoid that, run leasehold itself under sudo
  processes that CMD started, if both are killed (CMD ends, unless set-uid)
Work that CMD gave to another service is never ended: docker, at, systemd-run,
ssh.

When CMD ends by itself, the processes that it left in the background continue.
On the file engine NAME stays taken until they have ended, as under flock,
unless -o or --at-least is given. On other engines NAME is free, so CMD should
wait for them.

LEASEHOLD_URL and LEASEHOLD_URL_FILE are removed from the environment of CMD:
the URL may contain a password, and CMD and its children could log it. A
leasehold inside CMD then needs a URL (78 without): by --url, or by --pass-url
of the outer run. A CMD of the same user can still read the environment of
leasehold. With ?password_file=/path the URL contains no password. A new
password in that file is used at the next connection.

The first URL found is used: --url, LEASEHOLD_URL, the file named by
LEASEHOLD_URL_FILE (mode 0600), /etc/leasehold/url. Without a URL the file
engine is used, whose locks exclude processes of this machine only. Its default
directory is /var/lib/leasehold for root, and .local/state/leasehold in the home
of other users: different users do not exclude each other without a shared
directory (--url file:///srv/locks).

Exit codes:
  CMD's own (128+n: ended by signal n), or
  64    wrong arguments; or a run inside a run whose wait would never end
  69    the engine cannot be reached, refuses, or did not answer
  70    a bug in leasehold
  75    not acquired: taken (-E gives another code, for this one only)
  76    the lock was lost while CMD ran
  77    missing or wrong credentials or permissions
  78    wrong URL or configuration
  126   CMD cannot be executed
  127   CMD is not found
  128+n signal n ended the wait";

/// Printed after the options of `elect`.
pub(crate) const ELECT: &str = "\
Examples:
  leasehold elect scheduler --value 10.0.0.7:8080 -- ./scheduler
  leasehold leader scheduler                   prints: 17 10.0.0.7:8080

Waits until this process leads, publishes the value, runs CMD, and resigns when
CMD ends: the next candidate leads at once. `leasehold leader` prints the value.
A leader that cannot renew its lease is lost: CMD is ended (76) before another
process leads. To lead again after a loss, start the command again.

The term of a leader is LEASEHOLD_TOKEN in the environment of CMD: each later
leader has a larger one. CMD sends it with its orders, and the receivers refuse
a smaller one.

An election is a lock: `leasehold run` of the same NAME waits for the leader.
All else is as with `leasehold run`: signals, the environment of CMD, its end
when leasehold is killed, and the exit codes (see `leasehold run --help`).
Engines that store no memos have elections without --value (78 with it).";

/// Printed after the options of `leader`.
pub(crate) const LEADER: &str = "\
Examples:
  leasehold leader scheduler                   prints: 17 10.0.0.7:8080
  read -r term addr < <(leasehold leader scheduler) || echo nobody leads
  leasehold leader --follow --json scheduler | ./update-proxy

Prints one line, the term and the value of the leader, with a space between
them. A dash is a leader without a value. With --follow also `vacant` (nobody
leads) and `unsure` (the engine could not be read for 30 s, or shows an earlier
term than before: the last leader may have been replaced).

JSON: name, engine, state (held, vacant, unsure), value, term, lineage. The last
three are null unless the state is held.

Exit codes:
  0     there is a leader
  1     nobody leads (with --json the line is printed all the same)
  69    the engine cannot be reached, refuses, or did not answer
  77    missing or wrong credentials or permissions
  78    wrong URL or configuration; or the engine stores no memos
  128+n signal n ended --follow (141: its reader has gone)";

/// Printed after the options of `once`.
pub(crate) const ONCE: &str = "\
Examples:
  leasehold once --for 30d migrate-v7 -- ./migrate.sh
  leasehold once --for 1d --show-result order-17 -- ./charge.sh 17

Runs CMD, unless it ran with success for this KEY within the time of --for, by
any user of the engine: then exits 0 at once. While another run goes on, waits
for its end (-w and -n limit that: 75).

A CMD that fails, loses the lock, or is killed with leasehold stores nothing:
its exit code is passed on, and the next call runs CMD. LEASEHOLD_PREVIOUS tells
that CMD how the hold before it ended: clean (released, also after a failure),
or lapsed (a crash), broken, abandoned, unknown: then an effect may be half
done. Between the effect of CMD and the record of its success leasehold can be
killed. So CMD runs at least one time, not exactly one time.

With --show-result each call prints the same: the standard output of CMD, which
then is a pipe, is passed on and stored with its success, and later calls print
it. At most 64 KiB are stored; leasehold says when it cuts the output off.
Without it nothing of the output is stored, and later calls print nothing.
Processes that CMD leaves in the background cannot print after its end.

All else is as with `leasehold run`: signals, the environment of CMD, its end
when leasehold is killed, and the exit codes (see `leasehold run --help`). More
exit codes:
  0     CMD ended with 0 and that is stored, or it ran already
  69    CMD ended with 0, but it is not known that this is stored
  75    another run went on during the whole wait
  78    the engine stores no memos";

/// Printed after the options of `break`.
pub(crate) const BREAK: &str = "\
Prints one line: `ended`, with the holder after it, or `broken`, if the name
stays taken: until the holder stops, or until its lease ends. --force does not
wait for that.

JSON: name, engine, token, outcome (ended, broken), free_within_ms (of broken;
null: no time ends the hold), holders (as of show), problem (why it is not known
who holds the name).

Examples:
  leasehold break deploy --token 17
  leasehold break deploy --token 17 --reason 'host 7 is gone' --audit-file audit

Exit codes:
  0     the hold is broken or has ended
  1     NAME is not held, or is held under another token
  64    wrong arguments; an audit file without --reason, or the reverse
  69    the holder was asked to stop and still holds NAME; or the audit file
        cannot be written
  77    the engine cannot break this hold
  78    wrong URL or configuration; or the audit file cannot be used

An audit file has two lines of JSON for each break, as that of the page for
operators (docs/serve.md): who, when, why, which hold, and what became of it.
The first is on the disk before the hold is ended; if it cannot be written,
nothing is broken. journald or syslog receives a copy. If LEASEHOLD_AUDIT_FILE
is set, each break needs --reason, and `leasehold top` breaks nothing.

On the file engine a lock cannot be taken from a program. `leasehold run` is
asked to stop its command and itself. For every other holder the request is
refused, with its pid.";

/// Printed after the options of `doctor`.
pub(crate) const DOCTOR: &str = "\
Examples:
  leasehold doctor                            the engine that is configured
  leasehold doctor --url redis://h --url etcd://h
  leasehold doctor --json | jq -r '.findings[] | select(.severity != \"good\").id'

Connects as a user does and prints one line for each thing that it looked at:
how bad it is (good, unknown, warning, broken), its id, what was found, and
after an arrow what to do. The last line has the level, and what would raise it.
docs/doctor.md explains each id.

It changes nothing, except that it locks and releases a name with a random end,
leasehold/doctor/..., some fifty times, within about 3 s, and breaks a hold of
this name. On the file engine the name is always leasehold/doctor.

JSON: engine, level, severity (the worst), servers, findings (id, severity,
server, found, advice), raised_by, notes, cycles (count, p50_us, p99_us).
Unknown values are null.

Exit codes:
  0     all is good
  1     there is a warning, or something could not be looked at
  2     the engine cannot be reached, or this user cannot lock
  64    wrong arguments
  78    wrong URL or configuration";

/// Printed after the options of `serve`.
#[cfg(feature = "serve")]
pub(crate) const SERVE: &str = "\
It prints the address of the page when it listens, and ends by TERM or INT.
--url may be repeated. The page only looks at the locks: it stores nothing
that locks need. /metrics is for Prometheus, /livez and /readyz for probes.

Exit codes:
  0     ended by TERM or INT
  64    the options contradict each other, or would show locks to anyone
  69    the address cannot be used
  78    a file cannot be used, or is open to others";

/// Printed after the options of `watch`.
pub(crate) const WATCH: &str = "\
Examples:
  leasehold watch                              all names
  leasehold watch --json order/ | jq -c .      the names that begin with order/
  leasehold watch -x nightly                   one name

The first line is `snapshot`. After it come `holds` for each hold and `waits`
for each waiter that is there, and then a line for each change:

  waiting  a request began to wait
  granted  a hold began
  left     a request waits no more: it gave up, or it was granted and its hold
           ended between two looks
  broken   a hold was broken, and the name stays taken until its holder stops
  ended    a hold was released or broken
  lapsed   a hold ended, and its lease may have run out

The engine is asked again after --every, or after three times as long as its
answer took (15s at most), if that is more. So a hold that begins and ends
between two looks is not seen. While the engine does not answer, one message is
on stderr and the watch continues; the first line after that is `resync`, and
the changes of the outage follow. `unreadable` is a name whose data cannot be
read. Times are those of this machine, in UTC.

JSON: seq (1, 2, 3, ...), time, event, engine, name, id, owner, token, foreign,
broken, waited_ms, held_ms, remaining_ms, names (of snapshot), away_ms (of resync),
problem (of unreadable). What does not apply is null.

Exit codes:
  69    the engine cannot be reached at the beginning
  77    missing or wrong credentials or permissions
  78    wrong URL or configuration
  128+n signal n ended it (141: its reader has gone)";

/// Printed after the options of `top`.
#[cfg(feature = "top")]
pub(crate) const TOP: &str = "\
Keys:
  arrows, j k g G    select a hold; the selection stays with the hold
  Enter              details of the name; Esc: back
  s, r               sort by the next column; reverse
  /                  show only what contains a text; Esc: all
  f                  freeze the picture
  Ctrl-D             break the selected hold, after a question
  ?                  help
  q, Ctrl-C          quit

Each row is a hold, or a name without a hold that somebody waits for. The first
order shows on top who makes others wait: waiters times the longest wait. If the
engine does not answer, the last data stay on the screen, with `STALE` and their
age.

A hold is broken as by `leasehold break` without --force, and only after its
name was typed. --readonly forbids it.

No colours are used if NO_COLOR is set. Without a terminal use `leasehold
watch`.

Exit codes:
  0     q was pressed
  64    there is no terminal, or its TERM is `dumb`
  69    the engine cannot be reached at the beginning
  77    missing or wrong credentials or permissions
  78    wrong URL or configuration
  128+n signal n ended it (130: Ctrl-C)";
