//! Locks a name that nobody uses: what this user may do, and how long it takes.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::{Duration, Instant},
};

use leasehold::{Breaking, Broken, Diagnostic, Error, Guard, Life, Locks, Severity};

use super::{Options, times::Times};

/// What the random names begin with. A right on names with this prefix is enough.
const PREFIX: &str = "leasehold/doctor";
/// How long one request may wait for the scratch name: a new connection and a busy server are slower than usual.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
/// The number of lock cycles that are measured.
const CYCLES: usize = 50;
/// When no further cycle begins: an answer within seconds is worth more than the last cycles of a slow server.
const CYCLES_LIMIT: Duration = Duration::from_secs(3);

/// What the attempts to lock found.
pub(super) struct Tried {
    pub(super) findings: Vec<Diagnostic>,
    /// `None` if the name could not be locked.
    pub(super) times: Option<Times>,
}

/// Locks and releases the scratch name, shows it meanwhile, and breaks a hold of it.
pub(super) fn lock_and_release(locks: &Locks, options: &Options) -> Tried {
    let name = options.scratch_name.clone().unwrap_or_else(|| unused_name(locks.profile().life));
    let range = &locks.profile().ttl;
    let scratch = Scratch { locks, name, ttl: options.ttl.clamp(*range.start(), *range.end()) };
    let mut findings = Vec::new();
    let times = scratch.first_cycle(&mut findings).map(|()| scratch.measured(&mut findings));
    if times.is_some() {
        findings.push(scratch.broken());
    }
    Tried { findings, times }
}

/// A name that nobody uses. On the file engine, where a name leaves a lock file for ever, it is always the same.
fn unused_name(life: Life) -> String {
    match life {
        Life::Process => PREFIX.to_owned(),
        _ => format!("{PREFIX}/{:016x}", RandomState::new().build_hasher().finish()),
    }
}

/// The name that is locked.
struct Scratch<'a> {
    locks: &'a Locks,
    name: String,
    ttl: Duration,
}

impl Scratch<'_> {
    fn acquire(&self) -> Result<Guard, Error> {
        self.locks.mutex(&self.name).ttl(self.ttl).blocking().acquire_within(LOCK_LIMIT)
    }

    /// Locks, shows and releases. `None` if this user cannot lock.
    fn first_cycle(&self, findings: &mut Vec<Diagnostic>) -> Option<()> {
        let guard = match self.acquire() {
            Ok(guard) => guard,
            Err(error) => {
                findings.push(self.not_locked(&error));
                return None;
            }
        };
        let shown = self.shown();
        let released = guard.release_blocking();
        findings.push(match &released {
            Ok(()) => Diagnostic::good("lock", format!("this user can lock and release {:?}", self.name)),
            Err(error) => Diagnostic::new(
                "lock",
                Severity::Broken,
                format!("the lock {:?} was granted, and not released: {error}", self.name),
                "mend what the message names",
            ),
        });
        findings.push(shown);
        released.ok()
    }

    /// Why the name could not be locked.
    fn not_locked(&self, error: &Error) -> Diagnostic {
        if error.is_taken() || error.is_timed_out() {
            let found =
                format!("the test name {:?} was taken for {} s: {error}", self.name, LOCK_LIMIT.as_secs());
            return Diagnostic::new(
                "lock",
                Severity::Unknown,
                found,
                "run doctor again, or give --scratch NAME",
            );
        }
        let advice = if error.is_denied() {
            "grant this user the rights on the page of the engine; if it may lock certain names only, give --scratch NAME"
        } else if error.is_misconfigured() {
            "mend what the message names; if only certain names have a row, give --scratch NAME"
        } else {
            "mend what the message names"
        };
        Diagnostic::new("lock", Severity::Broken, error.to_string(), advice)
    }

    /// Whether this user sees who holds a name.
    fn shown(&self) -> Diagnostic {
        let view = match self.locks.show_blocking(&self.name) {
            Ok(view) => view,
            Err(error) => {
                let advice = "grant the right that the message names: `leasehold show` and `break` need it";
                let found = format!("holders cannot be shown: {error}");
                return Diagnostic::new("show", Severity::Warning, found, advice);
            }
        };
        // Of a name that nobody else uses. Not every layout stores the id of the claim.
        if !view.holders.is_empty() {
            return Diagnostic::good("show", "this user sees who holds a name");
        }
        let found = format!("the hold of {:?} is not shown", self.name);
        let advice = "find out whether the URL leads to a replica, which may be late";
        Diagnostic::new("show", Severity::Unknown, found, advice)
    }

    /// Measures lock cycles.
    fn measured(&self, findings: &mut Vec<Diagnostic>) -> Times {
        let (mut times, begin) = (Times::default(), Instant::now());
        while times.cycles() < CYCLES && begin.elapsed() < CYCLES_LIMIT {
            let started = Instant::now();
            let cycle = self.acquire().and_then(|guard| {
                let granted = Instant::now();
                guard.release_blocking()?;
                Ok((granted - started, granted.elapsed()))
            });
            match cycle {
                Ok((acquire, release)) => times.add(acquire, release),
                Err(error) => {
                    let found = format!("after {} lock cycles one failed: {error}", times.cycles());
                    let advice = "see the message, and the log of the server";
                    findings.push(Diagnostic::new("latency", Severity::Warning, found, advice));
                    break;
                }
            }
        }
        times
    }

    /// Whether this user may break a hold, tried with a hold of its own.
    fn broken(&self) -> Diagnostic {
        match self.locks.profile().breaking {
            Breaking::No => return Diagnostic::good("break", "holds cannot be broken in this layout"),
            Breaking::Ask => {
                let found = "`leasehold break` asks `leasehold run` to stop; other holders have to be ended by their pid";
                return Diagnostic::good("break", found);
            }
            _ => {}
        }
        match self.try_to_break() {
            Ok(Broken::Done) => Diagnostic::good("break", "this user may break holds"),
            Ok(_) => {
                let found = format!("the hold of {:?} was not found by its token", self.name);
                Diagnostic::new("break", Severity::Unknown, found, "run doctor again")
            }
            Err(error) => {
                let advice = "grant the right that the message names to those who are to break holds";
                let found = format!("this user cannot break holds: {error}");
                Diagnostic::new("break", Severity::Unknown, found, advice)
            }
        }
    }

    /// Breaks a hold of this process, and checks that the name is free again.
    fn try_to_break(&self) -> Result<Broken, Error> {
        let guard = self.acquire()?;
        let broken = self.locks.break_hold_blocking(&self.name, guard.token().number, true);
        // Released even if it was not broken. After the break this fails, because the hold is lost.
        let _ = guard.release_blocking();
        if matches!(broken, Ok(Broken::Done)) {
            self.acquire()?.release_blocking()?;
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: Option<&str>) -> Options {
        Options { ttl: Duration::from_secs(30), scratch_name: name.map(str::to_owned) }
    }

    #[test]
    fn a_scratch_name_is_locked_shown_broken_and_free_at_the_end() {
        let locks = Locks::connect("memory:doctor-scratch").unwrap();
        let tried = lock_and_release(&locks, &options(Some("scratch")));
        let found: Vec<_> = tried.findings.iter().map(|found| (found.id, found.severity)).collect();
        assert_eq!(found, [("lock", Severity::Good), ("show", Severity::Good), ("break", Severity::Good)]);
        assert!(tried.times.is_some_and(|times| times.cycles() > 0));
        assert!(locks.list_blocking("").unwrap().is_empty());
    }

    #[test]
    fn a_name_that_cannot_be_locked_is_broken() {
        let locks = Locks::connect("memory:").unwrap();
        let tried = lock_and_release(&locks, &options(Some("not\na name")));
        assert_eq!(tried.findings.len(), 1, "{:?}", tried.findings);
        assert_eq!((tried.findings[0].id, tried.findings[0].severity), ("lock", Severity::Broken));
        assert!(tried.times.is_none());
    }

    #[test]
    fn names_are_random_unless_they_leave_a_file() {
        assert_ne!(unused_name(Life::Lease), unused_name(Life::Lease));
        assert_eq!(unused_name(Life::Process), unused_name(Life::Process));
        assert!(unused_name(Life::Lease).starts_with("leasehold/doctor/"));
    }
}
