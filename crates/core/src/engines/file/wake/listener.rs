//! The listener: which waiting claims of this engine should ask now.
//!
//! It has two sources of events. The first is the wake pipe of this process, which a releasing process writes to; it
//! exists from the first wait of an engine on. The second is for the names where one of our claims is near the head of
//! the queue: an inotify watch on the lock file, which reports a close of the file and so the end of killed holders and
//! of `flock(1)`. The system allows each user few inotify instances. So of a thousand processes that wait for one name
//! only two have one, and no process has one for long without need. Where inotify is not available, a timer replaces
//! it.

use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};
use tokio::sync::Notify;

use super::super::{
    claims::lock_mutex, dir::Dir, kernel::locks::LockFile, table::record::NO_WAKE_PIPE,
    wake::readable_fd::ReadableFd, wake::series::Series, wake::wake_pipe::WakePipe,
};
use crate::{Claim, ClaimId, Env, Instant, Name, driver::keeper::env::sleep};

/// How many positions at the head of the queue watch the lock file: the first, and a second that notices the death of
/// the first.
pub(crate) const WATCHING_POSITIONS: usize = 2;
/// The interval at which the head of the queue asks where inotify is not available.
const NO_INOTIFY_INTERVAL: Duration = Duration::from_millis(10);
/// The longest sleep in one piece, after which the loop checks again.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// How long an unused inotify instance stays open: other programs of the user may need it.
const UNUSED_LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of reads of events in one check: the rest of a flood is left for the next check.
const MAX_READS: usize = 16;

/// What a wait of the listener reports.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    /// The claims that should ask.
    pub(crate) due_claims: Vec<(ClaimId, Name)>,
    /// The wake pipe was written to: check which records have the time of a signal.
    pub(crate) wake_pipe_written: bool,
    /// Events of inotify may have been lost.
    pub(crate) events_lost: bool,
}

/// The listener of one engine.
pub(crate) struct Listener {
    env: Env,
    inner: Mutex<Inner>,
    /// Notified when there is a new source of events, or a claim newly near the head of the queue.
    changed: Notify,
    /// Set by tests: simulates a system without a free inotify instance.
    pub(crate) no_inotify: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: HashMap<ClaimId, WaitingClaim>,
    wake_pipe: Source<WakePipe>,
    inotify: Source<ReadableFd<Inotify>>,
    /// The claims of each watched file, and when they should ask.
    watches: HashMap<WatchDescriptor, Series>,
    /// Watches without a waiting claim. To remove one takes the kernel longer than to grant a lock, so this happens
    /// before the next wait and not on the way to a waiting task.
    unneeded_watches: Vec<WatchDescriptor>,
    /// When the claims without a watch are due next.
    next_poll: Option<Instant>,
    /// When a watch was last needed, while there is an inotify instance.
    inotify_last_needed: Option<Instant>,
}

/// A waiting claim.
#[derive(Debug)]
struct WaitingClaim {
    name: Name,
    /// The slot of its record.
    slot: u32,
    /// It is near the head of the queue: see [`WATCHING_POSITIONS`].
    near: bool,
    /// The watch on its lock file, if it has one.
    watch: Option<WatchDescriptor>,
}

/// A source of events, created at the first need.
#[derive(Debug, Default)]
enum Source<T> {
    #[default]
    NotOpen,
    Open(Arc<T>),
}

impl<T> Source<T> {
    fn get(&self) -> Option<&Arc<T>> {
        if let Self::Open(source) = self { Some(source) } else { None }
    }

    /// The source; created if there is none. After a failure, which is logged with the text `consequence`, the next
    /// caller tries again.
    fn get_or_open(&mut self, consequence: &str, open: impl FnOnce() -> Result<T, Errno>) -> Option<&Arc<T>> {
        if matches!(self, Self::NotOpen) {
            match open() {
                Ok(source) => *self = Self::Open(Arc::new(source)),
                Err(errno) => tracing::debug!(%errno, "{consequence}"),
            }
        }
        self.get()
    }
}

impl Listener {
    pub(crate) fn new(env: Env) -> Self {
        Self { env, inner: Mutex::default(), changed: Notify::new(), no_inotify: AtomicBool::new(false) }
    }

    /// The id of the wake pipe of this engine, created at the first wait; [`NO_WAKE_PIPE`] where none can be created.
    pub(crate) fn wake_pipe(&self, dir: &Dir) -> [u8; 16] {
        let mut inner = lock_mutex(&self.inner);
        if matches!(inner.wake_pipe, Source::NotOpen) {
            self.changed.notify_one();
        }
        let consequence = "no wake pipe for waiting claims: they poll, less often further back in the queue";
        inner
            .wake_pipe
            .get_or_open(consequence, || WakePipe::new(dir, &self.env))
            .map_or(NO_WAKE_PIPE, |wake_pipe| wake_pipe.id)
    }

    /// Whether this engine has a wake pipe, so that its waiting claims are signalled.
    pub(crate) fn has_wake_pipe(&self) -> bool {
        lock_mutex(&self.inner).wake_pipe.get().is_some()
    }

    /// Registers a claim that waits behind `ahead` others. Near the head of the queue its lock file is watched from
    /// now on.
    pub(crate) fn register(&self, claim: &Claim, file: &LockFile, slot: u32, ahead: usize) {
        let mut inner = lock_mutex(&self.inner);
        let Inner { waiting, inotify, watches, unneeded_watches, inotify_last_needed, .. } = &mut *inner;
        let entry = waiting.entry(claim.id).or_insert_with(|| WaitingClaim {
            name: claim.name.clone(),
            slot,
            near: false,
            watch: None,
        });
        let is_newly_near = ahead < WATCHING_POSITIONS && !entry.near;
        entry.near = ahead < WATCHING_POSITIONS;
        let consequence = "no inotify instance (see fs.inotify.max_user_instances): the head of the queue polls every 10 ms";
        if is_newly_near
            && entry.watch.is_none()
            && let Some(inotify) = inotify.get_or_open(consequence, || self.open_inotify())
        {
            *inotify_last_needed = Some(self.env.clock.now());
            let mask = AddWatchFlags::IN_CLOSE | AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVE_SELF;
            if let Ok(watch) = add_watch(inotify.get(), file.file().as_raw_fd(), mask) {
                entry.watch = Some(watch);
                unneeded_watches.retain(|&old| old != watch);
                watches.entry(watch).or_default().add(claim.id);
            }
        }
        if is_newly_near {
            self.changed.notify_one();
        }
    }

    /// Whether the claim was near the head of the queue at the last check.
    pub(crate) fn is_near(&self, id: ClaimId) -> bool {
        lock_mutex(&self.inner).waiting.get(&id).is_some_and(|waiting| waiting.near)
    }

    /// Creates the inotify instance of this engine.
    fn open_inotify(&self) -> Result<ReadableFd<Inotify>, Errno> {
        if self.no_inotify.load(Ordering::Relaxed) {
            return Err(Errno::EMFILE);
        }
        Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map(ReadableFd::new)
    }

    /// Whether this engine has an inotify instance.
    #[cfg(test)]
    pub(crate) fn watches_files(&self) -> bool {
        lock_mutex(&self.inner).inotify.get().is_some()
    }

    /// Unregisters a claim that does not wait any more.
    pub(crate) fn forget(&self, id: ClaimId) {
        let mut inner = lock_mutex(&self.inner);
        let Some(watch) = inner.waiting.remove(&id).and_then(|waiting| waiting.watch) else { return };
        if inner.watches.get_mut(&watch).is_some_and(|series| series.remove(id)) {
            inner.watches.remove(&watch);
            inner.unneeded_watches.push(watch);
        }
    }

    /// The waiting claims with the slots of their records.
    pub(crate) fn waiting(&self) -> Vec<(ClaimId, Name, u32)> {
        lock_mutex(&self.inner)
            .waiting
            .iter()
            .map(|(id, waiting)| (*id, waiting.name.clone(), waiting.slot))
            .collect()
    }

    /// Waits until there is something to report. Dropping the future loses nothing. Needs a tokio runtime with time
    /// and I/O.
    pub(crate) async fn listen(&self) -> Wakeups {
        // A source that is not reported as readable is not read: to read it anyway would add three useless reads each
        // time on the way to a waiting task.
        let mut readable = Readable::default();
        loop {
            let CheckResult { wakeups, sleep_for, wake_pipe, inotify } = self.check(readable);
            if wakeups.wake_pipe_written || wakeups.events_lost || !wakeups.due_claims.is_empty() {
                return wakeups;
            }
            readable = tokio::select! {
                () = until_readable(wake_pipe.as_ref().map(|wake_pipe| wake_pipe.readable_fd())) => Readable { wake_pipe: true, inotify: false },
                () = until_readable(inotify.as_deref()) => Readable { wake_pipe: false, inotify: true },
                () = self.changed.notified() => Readable::default(),
                // Reads inotify again: the kernel does not report a second time the events that were left unread.
                () = sleep(sleep_for) => Readable { wake_pipe: false, inotify: true },
            }
        }
    }

    /// Reads the sources, and finds the claims that are due.
    fn check(&self, readable: Readable) -> CheckResult {
        let now = self.env.clock.now();
        let mut inner = lock_mutex(&self.inner);
        inner.close_unused(now);
        let (wake_pipe, inotify) = (inner.wake_pipe.get().cloned(), inner.inotify.get().cloned());
        let was_signalled = wake_pipe.as_ref().is_some_and(|wake_pipe| {
            (readable.wake_pipe || !wake_pipe.readable_fd().is_registered()) && wake_pipe.was_signalled()
        });
        let mut wakeups = Wakeups { wake_pipe_written: was_signalled, ..Wakeups::default() };
        let mut next_check = now.after(LONGEST_SLEEP);
        if let Some(inotify) = inotify.as_ref().filter(|inotify| {
            readable.inotify || !inotify.is_registered() || !inner.unneeded_watches.is_empty()
        }) {
            let drained = inner.read_events(inotify.get(), now, &mut wakeups);
            next_check = if drained { next_check } else { now };
        }
        let Inner { waiting, watches, .. } = &mut *inner;
        for series in watches.values_mut() {
            if series.take_due(now) {
                let due_claims =
                    series.claims().iter().filter_map(|id| Some((*id, waiting.get(id)?.name.clone())));
                wakeups.due_claims.extend(due_claims);
            }
            next_check = next_check.min(series.next_due().unwrap_or(Instant::NEVER));
        }
        next_check = next_check.min(inner.poll_without_inotify(now, &mut wakeups));
        CheckResult { wakeups, sleep_for: next_check.since(now), wake_pipe, inotify }
    }
}

/// The sources that the kernel reports as readable.
#[derive(Clone, Copy, Debug, Default)]
struct Readable {
    wake_pipe: bool,
    inotify: bool,
}

/// The result of one check.
struct CheckResult {
    wakeups: Wakeups,
    /// For how long nothing else is due.
    sleep_for: Duration,
    /// The sources to wait for.
    wake_pipe: Option<Arc<WakePipe>>,
    inotify: Option<Arc<ReadableFd<Inotify>>>,
}

impl Inner {
    /// Closes the inotify instance after a long time without need.
    fn close_unused(&mut self, now: Instant) {
        if !self.watches.is_empty() {
            self.inotify_last_needed = Some(now);
        }
        if self.inotify_last_needed.is_some_and(|last| now.since(last) >= UNUSED_LIMIT) {
            // Closing it removes its watches.
            (self.inotify_last_needed, self.inotify) = (None, Source::NotOpen);
            self.unneeded_watches.clear();
        }
    }

    /// Reads the events of inotify; false if some are left. Removes the watches that no claim needs.
    fn read_events(&mut self, inotify: &Inotify, now: Instant, wakeups: &mut Wakeups) -> bool {
        let mut drained = false;
        for _ in 0..MAX_READS {
            let Ok(events) = inotify.read_events() else {
                drained = true;
                break;
            };
            events.iter().for_each(|event| self.handle_event(event, now, wakeups));
        }
        for watch in self.unneeded_watches.drain(..) {
            // Fails only for a watch that the kernel removed together with its file.
            let _ = inotify.rm_watch(watch);
        }
        drained
    }

    /// Handles an event of inotify.
    fn handle_event(&mut self, event: &InotifyEvent, now: Instant, wakeups: &mut Wakeups) {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            wakeups.events_lost = true;
        } else if let Some(series) = self.watches.get_mut(&event.wd) {
            series.add_event(now);
        }
    }

    /// Without inotify, claims near the head of the queue are due at a steady interval. Returns when they are due next.
    fn poll_without_inotify(&mut self, now: Instant, wakeups: &mut Wakeups) -> Instant {
        let near = self.waiting.iter().filter(|(_, waiting)| waiting.near && waiting.watch.is_none());
        let near: Vec<_> = near.map(|(id, waiting)| (*id, waiting.name.clone())).collect();
        if near.is_empty() {
            self.next_poll = None;
            return Instant::NEVER;
        }
        let next_poll = *self.next_poll.get_or_insert(now.after(NO_INOTIFY_INTERVAL));
        if now < next_poll {
            return next_poll;
        }
        wakeups.due_claims.extend(near);
        let next_poll = now.after(NO_INOTIFY_INTERVAL);
        self.next_poll = Some(next_poll);
        next_poll
    }
}

/// Resolves when the source is readable; never if there is no source.
async fn until_readable<T: AsFd>(source: Option<&ReadableFd<T>>) {
    match source {
        Some(source) => source.readable().await,
        None => std::future::pending().await,
    }
}

/// Watches an open file, even if its path leads to another file by now.
fn add_watch(inotify: &Inotify, fd: RawFd, mask: AddWatchFlags) -> Result<WatchDescriptor, Errno> {
    inotify.add_watch(format!("/proc/self/fd/{fd}").as_str(), mask)
}
