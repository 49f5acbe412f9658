//! Messages of a run: who holds the lock that the run waits for, and with `-v` each step of the run.

use std::{
    cell::Cell,
    io::{IsTerminal, stderr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use leasehold::{Error, Event, Locks, Name, Observe, View};
use nix::unistd::{Pid, geteuid, getpid};

use crate::{
    child::Child,
    cmd::run::{label_of, lock_label},
    event_loop::{EventLoop, now},
    holds::Holds,
    log,
    plan::{Run, Wait},
    text::{held_by, short_duration},
    warnings::same_owner,
};

/// A run that acquires the lock sooner than this prints nothing about waiting.
const FIRST_MESSAGE_AFTER: Duration = Duration::from_millis(500);
/// The time between two messages about waiting.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(30);

/// The future of a request to the engine that shows the name.
type ShowFuture<'a> = Pin<Box<dyn Future<Output = Result<View, Error>> + 'a>>;

/// Prints repeatedly who holds the lock while the run waits for it.
pub(crate) struct WaitMessages<'a> {
    plan: &'a Run,
    locks: &'a Locks,
    awaited: &'a AwaitedName,
    /// When the next message is due. `None`: no message is wanted.
    next_message_at: Option<Duration>,
    /// The request that is in flight.
    show_request: Option<(Name, ShowFuture<'a>)>,
}

impl<'a> WaitMessages<'a> {
    pub(crate) fn new(plan: &'a Run, locks: &'a Locks, awaited: &'a AwaitedName) -> Self {
        let is_wanted = plan.verbose > 0 || (!plan.quiet && stderr().is_terminal());
        let next_message_at =
            (is_wanted && plan.wait != Wait::Not).then(|| now().saturating_add(FIRST_MESSAGE_AFTER));
        Self { plan, locks, awaited, next_message_at, show_request: None }
    }

    /// If a message about waiting is due, asks the engine who holds the lock, and prints the answer. Returns the time
    /// until the next message is due. `None`: no message is wanted, or the engine has not answered yet; its answer
    /// wakes `event_loop`.
    pub(crate) fn print_when_due(&mut self, event_loop: &EventLoop) -> Option<Duration> {
        loop {
            if let Some((name, request)) = &mut self.show_request {
                let Poll::Ready(shown) = event_loop.poll(request.as_mut()) else { return None };
                let name = name.clone();
                self.show_request = None;
                self.next_message_at = Some(now().saturating_add(self.print(&name, shown)));
            }
            let left = self.next_message_at?.saturating_sub(now());
            if !left.is_zero() {
                return Some(left);
            }
            let name = self.awaited.get().unwrap_or_else(|| self.plan.name.clone());
            let locks = self.locks;
            let asked = name.clone();
            self.show_request = Some((name, Box::pin(async move { locks.show(asked.as_str()).await })));
        }
    }

    /// Prints who holds the name, and returns the time until the next message. If this run has got the name since the
    /// question, nothing is printed.
    fn print(&self, name: &Name, shown: Result<View, Error>) -> Duration {
        let message = match shown {
            Ok(mut view) => {
                let all = view.holders.len();
                view.holders.retain(|holder| !self.locks.core().has_claim(name, &holder.id));
                if view.holders.is_empty() && all > 0 {
                    return FIRST_MESSAGE_AFTER;
                }
                let held = held_by(&view).unwrap_or_else(|| "it has no holder at the moment".to_owned());
                let same_owner = same_owner(self.plan, &view);
                format!("{}: waiting: {held}{same_owner}", label_of(name, self.locks))
            }
            Err(error) => format!("waiting: {error}"),
        };
        log::print_message(&message);
        MESSAGE_INTERVAL
    }
}

/// The name for which a run of several names waits: the name of the newest event of a queue. The run holds the names
/// before this name already.
#[derive(Default)]
pub(crate) struct AwaitedName(Mutex<Option<Name>>);

impl AwaitedName {
    fn get(&self) -> Option<Name> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observe for AwaitedName {
    fn event(&self, event: &Event<'_>) {
        if let Event::Queued { name, .. } = event {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((*name).clone());
        }
    }
}

/// Prints the steps of a run, for `-v`.
pub(crate) struct Steps<'a> {
    plan: &'a Run,
    /// When the run began to wait.
    start: Duration,
    /// When the lock was granted.
    granted: Cell<Duration>,
}

impl<'a> Steps<'a> {
    pub(crate) fn begin(plan: &'a Run) -> Self {
        let start = now();
        Self { plan, start, granted: Cell::new(start) }
    }

    /// Prints and reports that the lock was granted.
    pub(crate) fn granted(&self, locks: &Locks, holds: Holds<'_>) {
        self.granted.set(now());
        self.plan.granted(holds);
        let waited = short_duration(self.granted.get().saturating_sub(self.start));
        let guard_of = |name: &Name| holds.iter().find(|guard| guard.name() == name);
        let tokens = self.plan.names().filter_map(guard_of).map(|guard| guard.token().to_string());
        let tokens: Vec<_> = tokens.collect();
        let word = if tokens.len() == 1 { "token" } else { "tokens" };
        self.print(locks, &format!("granted after {waited}, {word} {}", tokens.join(", ")));
    }

    /// Prints in which control group CMD was started. If CMD has none, prints why, and which processes cannot be ended.
    pub(crate) fn started(&self, locks: &Locks, child: &Child, front: Pid) {
        self.plan.started();
        let guardian = getpid();
        self.print(
            locks,
            &match child.leaf() {
                Ok(leaf) => format!("CMD runs in cgroup {}, guardian {guardian}", leaf.path().display()),
                Err(why) if geteuid().is_root() => format!(
                    "CMD has no cgroup of its own ({why}), guardian {guardian}: \
                 if that process and {front} are both killed, the processes that CMD started continue"
                ),
                Err(why) => format!(
                    "CMD has no cgroup of its own ({why}), guardian {guardian}: \
                 processes that become another user cannot be ended"
                ),
            },
        );
    }

    /// Prints that CMD has ended and the lock was released.
    pub(crate) fn ended(&self, locks: &Locks) {
        let granted = self.granted.get();
        let (waited, held) = (granted.saturating_sub(self.start), now().saturating_sub(granted));
        self.print(
            locks,
            &format!("released: waited {}, held {}", short_duration(waited), short_duration(held)),
        );
    }

    /// Prints and reports that `once` does not run CMD, because an earlier run has succeeded.
    pub(crate) fn replayed(&self, locks: &Locks) {
        self.plan.course.repeated();
        self.print(locks, "CMD ran already, and is not run again");
    }

    fn print(&self, locks: &Locks, what: &str) {
        if self.plan.verbose > 0 {
            log::print_message(&format!("{}: {what}", lock_label(self.plan, locks)));
        }
    }
}

/// Prints a message if a renewal finds that another program changed the time of the hold, and with `-v` if a renewal
/// is not confirmed.
pub(crate) struct RenewalTrouble {
    /// The label of the lock, for the messages.
    lock: String,
    /// Whether `-v` was given.
    is_verbose: bool,
}

impl RenewalTrouble {
    pub(crate) fn of(plan: &Run) -> Arc<dyn Observe> {
        Arc::new(Self { lock: plan.lock_label(), is_verbose: plan.verbose > 0 })
    }
}

impl Observe for RenewalTrouble {
    fn event(&self, event: &Event<'_>) {
        let lock = &self.lock;
        match event {
            Event::RenewalFailed { error, .. } if self.is_verbose => {
                log::print_message(&format!(
                    "{lock}: a renewal was not confirmed: {error}: it is tried again"
                ));
            }
            Event::TimeChanged { change, .. } => log::print_message(&format!("{lock}: {change}")),
            _ => {}
        }
    }
}
