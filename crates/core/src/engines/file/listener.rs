//! Hearing: which of our waiting claims should ask now.
//!
//! Two sources: our own bell, which a releaser rings, from the first wait of an engine on; and, for the names where one
//! of our claims is among the first in line, an inotify watch on the lock file, whose closing tells of killed holders
//! and of `flock(1)`. A user has few inotify instances: of a thousand processes that wait for one name two use one, and
//! nobody keeps one for long that it does not need. Without one, a timer.

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

use super::{claims::lock, dir::Dir, locks::LockFile, ready::Ready, series::Series, wake_pipe::WakePipe};
use crate::{Claim, ClaimId, Env, Instant, Name, driver::keeper::env::sleep};

/// How many places at the head of the line watch the lock file: the first, and one who notices if the first dies.
pub(super) const WATCHED: usize = 2;
/// The pace of asking for the first in line where inotify is not to be had.
const DEAF_INTERVAL: Duration = Duration::from_millis(10);
/// The longest wait in one piece; a longer one only means to look again.
const LONGEST: Duration = Duration::from_secs(60);
/// How long an inotify instance is kept that nobody needs: others of the user may need it.
const KEPT: Duration = Duration::from_secs(10);
/// How many times the events are read at once: a flood is left for the next look.
const READS: usize = 16;

/// What an engine heard.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    /// Claims to ask for.
    pub(super) due: Vec<(ClaimId, Name)>,
    /// Our bell rang: look which cards were rung.
    pub(super) wake_pipe: bool,
    /// Something may have been missed.
    pub(super) overflow: bool,
}

/// The hearing of one engine.
pub(super) struct Listener {
    env: Env,
    inner: Mutex<Inner>,
    stirred: Notify,
    /// Set by tests: as if the system had no inotify instance left.
    pub(super) deaf: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: HashMap<ClaimId, Waiting>,
    wake_pipe: Sense<WakePipe>,
    inotify: Sense<Ready<Inotify>>,
    watches: HashMap<WatchDescriptor, Series>,
    /// Watches that nobody needs any more. Removing one takes the kernel longer than granting a lock, so that is done
    /// before the next wait and not on the way to a waiting task.
    unneeded: Vec<WatchDescriptor>,
    next_look: Option<Instant>,
    /// When a watch was last needed, while there is an inotify instance.
    watched: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    name: Name,
    slot: u32,
    near: bool,
    watch: Option<WatchDescriptor>,
}

/// Something to hear with, made when it is needed first.
#[derive(Debug, Default)]
enum Sense<T> {
    #[default]
    Asleep,
    Awake(Arc<T>),
}

impl<T> Sense<T> {
    fn get(&self) -> Option<&Arc<T>> {
        if let Self::Awake(sense) = self { Some(sense) } else { None }
    }

    /// Makes it, if there is none. Where that fails, the next who needs it tries again.
    fn awake(&mut self, without: &str, make: impl FnOnce() -> Result<T, Errno>) -> Option<&Arc<T>> {
        if matches!(self, Self::Asleep) {
            match make() {
                Ok(sense) => *self = Self::Awake(Arc::new(sense)),
                Err(errno) => tracing::debug!(%errno, "{without}"),
            }
        }
        self.get()
    }
}

impl Listener {
    pub(super) fn new(env: Env) -> Self {
        Self { env, inner: Mutex::default(), stirred: Notify::new(), deaf: AtomicBool::new(false) }
    }

    /// The bell of this engine, hung up at the first wait; zeros where there is none to be had.
    pub(super) fn wake_pipe(&self, dir: &Dir) -> [u8; 16] {
        let mut inner = lock(&self.inner);
        if matches!(inner.wake_pipe, Sense::Asleep) {
            self.stirred.notify_one();
        }
        let without = "no bell for waiting claims: they ask at the pace of their place in line";
        inner
            .wake_pipe
            .awake(without, || WakePipe::new(dir, &self.env))
            .map_or([0; 16], |wake_pipe| wake_pipe.id)
    }

    /// Whether waiting claims of this engine are rung.
    pub(super) fn has_wake_pipe(&self) -> bool {
        lock(&self.inner).wake_pipe.get().is_some()
    }

    /// A claim stands in line, behind `ahead` others. Near the head its lock file is watched from now on.
    pub(super) fn stand(&self, claim: &Claim, file: &LockFile, slot: u32, ahead: usize) {
        let mut inner = lock(&self.inner);
        let Inner { waiting, inotify, watches, unneeded, watched, .. } = &mut *inner;
        let entry = waiting.entry(claim.id).or_insert_with(|| Waiting {
            name: claim.name.clone(),
            slot,
            near: false,
            watch: None,
        });
        let came_near = ahead < WATCHED && !entry.near;
        entry.near = ahead < WATCHED;
        let without =
            "no inotify instance (see fs.inotify.max_user_instances): the first in line ask every 10 ms";
        if came_near
            && entry.watch.is_none()
            && let Some(inotify) = inotify.awake(without, || self.listen_to_files())
        {
            *watched = Some(self.env.clock.now());
            let mask = AddWatchFlags::IN_CLOSE | AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVE_SELF;
            if let Ok(number) = watch(inotify.get(), file.file().as_raw_fd(), mask) {
                entry.watch = Some(number);
                unneeded.retain(|&old| old != number);
                watches.entry(number).or_default().join(claim.id);
            }
        }
        if came_near {
            self.stirred.notify_one();
        }
    }

    /// Whether the claim was among the first in line when that was last looked at.
    pub(super) fn is_near(&self, id: ClaimId) -> bool {
        lock(&self.inner).waiting.get(&id).is_some_and(|waiting| waiting.near)
    }

    fn listen_to_files(&self) -> Result<Ready<Inotify>, Errno> {
        if self.deaf.load(Ordering::Relaxed) {
            return Err(Errno::EMFILE);
        }
        Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map(Ready::new)
    }

    /// Whether this engine took an inotify instance.
    #[cfg(test)]
    pub(super) fn watches_files(&self) -> bool {
        lock(&self.inner).inotify.get().is_some()
    }

    /// A claim waits no more.
    pub(super) fn forget(&self, id: ClaimId) {
        let mut inner = lock(&self.inner);
        let Some(number) = inner.waiting.remove(&id).and_then(|gone| gone.watch) else { return };
        if inner.watches.get_mut(&number).is_some_and(|series| series.leave(id)) {
            inner.watches.remove(&number);
            inner.unneeded.push(number);
        }
    }

    /// The waiting claims with their cards.
    pub(super) fn waiting(&self) -> Vec<(ClaimId, Name, u32)> {
        lock(&self.inner)
            .waiting
            .iter()
            .map(|(id, waiting)| (*id, waiting.name.clone(), waiting.slot))
            .collect()
    }

    /// Waits until something was heard. Dropping the future loses nothing. Needs a tokio runtime with time and I/O.
    pub(super) async fn listen(&self) -> Wakeups {
        // What is not said to be ready is not read: on the way to a waiting task that would be three reads of each for nothing.
        let mut read = Readable::default();
        loop {
            let Look { heard, next, wake_pipe, inotify } = self.look(read);
            if heard.wake_pipe || heard.overflow || !heard.due.is_empty() {
                return heard;
            }
            read = tokio::select! {
                () = readable(wake_pipe.as_ref().map(|wake_pipe| wake_pipe.ready())) => Readable { wake_pipe: true, inotify: false },
                () = readable(inotify.as_deref()) => Readable { wake_pipe: false, inotify: true },
                () = self.stirred.notified() => Readable::default(),
                // Events that were left come without another word of the kernel.
                () = sleep(next) => Readable { wake_pipe: false, inotify: true },
            }
        }
    }

    fn look(&self, read: Readable) -> Look {
        let now = self.env.clock.now();
        let mut inner = lock(&self.inner);
        inner.give_back(now);
        let (wake_pipe, inotify) = (inner.wake_pipe.get().cloned(), inner.inotify.get().cloned());
        let was_signalled = wake_pipe.as_ref().is_some_and(|wake_pipe| {
            (read.wake_pipe || !wake_pipe.ready().is_registered()) && wake_pipe.was_signalled()
        });
        let mut heard = Wakeups { wake_pipe: was_signalled, ..Wakeups::default() };
        let mut next = now.after(LONGEST);
        if let Some(inotify) = inotify
            .as_ref()
            .filter(|inotify| read.inotify || !inotify.is_registered() || !inner.unneeded.is_empty())
        {
            let drained = inner.read(inotify.get(), now, &mut heard);
            next = if drained { next } else { now };
        }
        let Inner { waiting, watches, .. } = &mut *inner;
        for series in watches.values_mut() {
            if series.is_due(now) {
                let named =
                    series.claims().iter().filter_map(|id| Some((*id, waiting.get(id)?.name.clone())));
                heard.due.extend(named);
            }
            next = next.min(series.next().unwrap_or(Instant::NEVER));
        }
        next = next.min(inner.look_deaf(now, &mut heard));
        Look { heard, next: next.since(now), wake_pipe, inotify }
    }
}

/// What the kernel says that there is something to read from.
#[derive(Clone, Copy, Debug, Default)]
struct Readable {
    wake_pipe: bool,
    inotify: bool,
}

/// What was heard until now, how long nothing more is due, and what to wait on.
struct Look {
    heard: Wakeups,
    next: Duration,
    wake_pipe: Option<Arc<WakePipe>>,
    inotify: Option<Arc<Ready<Inotify>>>,
}

impl Inner {
    /// Gives the inotify instance back that nobody has needed for long.
    fn give_back(&mut self, now: Instant) {
        if !self.watches.is_empty() {
            self.watched = Some(now);
        }
        if self.watched.is_some_and(|last| now.since(last) >= KEPT) {
            // The numbers of its watches end with it.
            (self.watched, self.inotify) = (None, Sense::Asleep);
            self.unneeded.clear();
        }
    }

    /// Reads the events; false if some are left. Ends the watches that nobody needs.
    fn read(&mut self, inotify: &Inotify, now: Instant, heard: &mut Wakeups) -> bool {
        let mut drained = false;
        for _ in 0..READS {
            let Ok(events) = inotify.read_events() else {
                drained = true;
                break;
            };
            events.iter().for_each(|event| self.note(event, now, heard));
        }
        for number in self.unneeded.drain(..) {
            // Fails only for a watch that ended by itself, with its file.
            let _ = inotify.rm_watch(number);
        }
        drained
    }

    fn note(&mut self, event: &InotifyEvent, now: Instant, heard: &mut Wakeups) {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            heard.overflow = true;
        } else if let Some(series) = self.watches.get_mut(&event.wd) {
            series.begin(now);
        }
    }

    /// Without inotify, the first in line are due at a steady pace.
    fn look_deaf(&mut self, now: Instant, heard: &mut Wakeups) -> Instant {
        let near = self.waiting.iter().filter(|(_, waiting)| waiting.near && waiting.watch.is_none());
        let near: Vec<_> = near.map(|(id, waiting)| (*id, waiting.name.clone())).collect();
        if near.is_empty() {
            self.next_look = None;
            return Instant::NEVER;
        }
        let at = *self.next_look.get_or_insert(now.after(DEAF_INTERVAL));
        if now < at {
            return at;
        }
        heard.due.extend(near);
        let next = now.after(DEAF_INTERVAL);
        self.next_look = Some(next);
        next
    }
}

async fn readable<T: AsFd>(source: Option<&Ready<T>>) {
    match source {
        Some(source) => source.readable().await,
        None => std::future::pending().await,
    }
}

/// Watches an open file, whatever its path leads to by now.
fn watch(inotify: &Inotify, fd: RawFd, mask: AddWatchFlags) -> Result<WatchDescriptor, Errno> {
    inotify.add_watch(format!("/proc/self/fd/{fd}").as_str(), mask)
}
