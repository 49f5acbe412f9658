//! Hearing: which of our waiting claims should ask now. One inotify instance for an engine, made at its first wait.
//!
//! Two sources: our own bell, which a releaser rings; and the lock files of the names where one of our claims is among
//! the first in line, whose closing tells of killed holders and of `flock(1)`. Without inotify, a timer.

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
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
};

use super::{bell::Bell, claims::lock, dir::Dir, locks::LockFile, series::Series};
use crate::{Claim, ClaimId, Env, Instant, Name, keeper::env::sleep};

/// How many places at the head of the line watch the lock file: the first, and one who notices if the first dies.
const WATCHED: usize = 2;
/// The pace of asking for the first in line where inotify is not to be had.
const DEAF_PACE: Duration = Duration::from_millis(10);
/// The longest wait in one piece; a longer one only means to look again.
const LONGEST: Duration = Duration::from_secs(1);
/// How many times the events are read at once: a flood is left for the next batch.
const READS: usize = 16;

/// What an engine heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Claims to ask for.
    pub(super) due: Vec<(ClaimId, Name)>,
    /// Our bell rang: look which cards were rung.
    pub(super) bell: bool,
    /// Something may have been missed.
    pub(super) overflow: bool,
}

/// The hearing of one engine.
pub(super) struct Ear {
    env: Env,
    inner: Mutex<Inner>,
    stirred: Notify,
    /// Set by tests: as if the system had no inotify instance left.
    pub(super) deaf: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: HashMap<ClaimId, Waiting>,
    sense: Sense,
    watches: HashMap<WatchDescriptor, Series>,
    /// Watches that nobody needs any more. Removing one takes the kernel longer than granting a lock, so that is done
    /// before the next wait and not on the way to a waiting task.
    unneeded: Vec<WatchDescriptor>,
    next_look: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    name: Name,
    slot: u32,
    near: bool,
    watch: Option<WatchDescriptor>,
}

#[derive(Debug, Default)]
enum Sense {
    #[default]
    Asleep,
    Hearing {
        bell: Bell,
        bell_watch: WatchDescriptor,
        inotify: Arc<Inotify>,
    },
    Deaf,
}

impl Ear {
    pub(super) fn new(env: Env) -> Self {
        Self { env, inner: Mutex::default(), stirred: Notify::new(), deaf: AtomicBool::new(false) }
    }

    /// The bell of this engine, hung up at the first wait; zeros where there is none to be had.
    pub(super) fn bell(&self, dir: &Dir) -> [u8; 16] {
        let mut inner = lock(&self.inner);
        if matches!(inner.sense, Sense::Asleep) {
            inner.sense = self.hang_up(dir).unwrap_or_else(|errno| {
                tracing::debug!(%errno, "no push for waiting claims: asking at a slow pace instead");
                Sense::Deaf
            });
            self.stirred.notify_one();
        }
        match &inner.sense {
            Sense::Hearing { bell, .. } => bell.id,
            Sense::Asleep | Sense::Deaf => [0; 16],
        }
    }

    fn hang_up(&self, dir: &Dir) -> Result<Sense, Errno> {
        if self.deaf.load(Ordering::Relaxed) {
            return Err(Errno::EMFILE);
        }
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let bell = Bell::new(dir, &self.env)?;
        let bell_watch = watch(&inotify, bell.file().as_raw_fd(), AddWatchFlags::IN_ATTRIB)?;
        Ok(Sense::Hearing { bell, bell_watch, inotify: Arc::new(inotify) })
    }

    /// A claim stands in line, behind `ahead` others. Near the head its lock file is watched from now on.
    pub(super) fn stand(&self, claim: &Claim, file: &LockFile, slot: u32, ahead: usize) {
        let mut inner = lock(&self.inner);
        let Inner { waiting, sense, watches, unneeded, .. } = &mut *inner;
        let entry = waiting.entry(claim.id).or_insert_with(|| Waiting {
            name: claim.name.clone(),
            slot,
            near: false,
            watch: None,
        });
        let came_near = ahead < WATCHED && !entry.near;
        entry.near = ahead < WATCHED;
        if let (Sense::Hearing { inotify, .. }, true, None) = (&*sense, entry.near, entry.watch) {
            let mask = AddWatchFlags::IN_CLOSE | AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVE_SELF;
            if let Ok(number) = watch(inotify, file.file().as_raw_fd(), mask) {
                entry.watch = Some(number);
                unneeded.retain(|&old| old != number);
                watches.entry(number).or_default().join(claim.id);
            }
        }
        if came_near && entry.watch.is_none() {
            self.stirred.notify_one();
        }
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
    pub(super) async fn listen(&self) -> Heard {
        loop {
            let (heard, next, inotify) = self.look();
            if heard.bell || heard.overflow || !heard.due.is_empty() {
                return heard;
            }
            let readable = async {
                match inotify {
                    Some(inotify) => readable(inotify).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = readable => {}
                () = self.stirred.notified() => {}
                () = sleep(next) => {}
            }
        }
    }

    /// What was heard until now, how long nothing more is due, and what to wait on.
    fn look(&self) -> (Heard, Duration, Option<Arc<Inotify>>) {
        let now = self.env.clock.now();
        let mut inner = lock(&self.inner);
        let mut heard = Heard::default();
        let inotify = match &inner.sense {
            Sense::Hearing { inotify, .. } => Some(Arc::clone(inotify)),
            Sense::Asleep | Sense::Deaf => None,
        };
        for _ in 0..READS {
            let Some(Ok(events)) = inotify.as_ref().map(|inotify| inotify.read_events()) else { break };
            events.iter().for_each(|event| inner.note(event, now, &mut heard));
        }
        let mut next = now.after(LONGEST);
        let Inner { waiting, watches, unneeded, .. } = &mut *inner;
        for number in unneeded.drain(..) {
            // Fails only for a watch that ended by itself, with its file.
            let _ = inotify.as_ref().map(|inotify| inotify.rm_watch(number));
        }
        for series in watches.values_mut() {
            if series.is_due(now) {
                let named =
                    series.claims().iter().filter_map(|id| Some((*id, waiting.get(id)?.name.clone())));
                heard.due.extend(named);
            }
            next = next.min(series.next().unwrap_or(Instant::NEVER));
        }
        next = next.min(inner.look_deaf(now, &mut heard));
        (heard, next.since(now), inotify)
    }
}

impl Inner {
    fn note(&mut self, event: &InotifyEvent, now: Instant, heard: &mut Heard) {
        let number = event.wd;
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            heard.overflow = true;
        } else if matches!(self.sense, Sense::Hearing { bell_watch, .. } if bell_watch == number) {
            heard.bell = true;
        } else if let Some(series) = self.watches.get_mut(&number) {
            series.begin(now);
        }
    }

    /// Without inotify, the first in line are due at a steady pace.
    fn look_deaf(&mut self, now: Instant, heard: &mut Heard) -> Instant {
        let near = self.waiting.iter().filter(|(_, waiting)| waiting.near && waiting.watch.is_none());
        let near: Vec<_> = near.map(|(id, waiting)| (*id, waiting.name.clone())).collect();
        if near.is_empty() {
            self.next_look = None;
            return Instant::NEVER;
        }
        let at = *self.next_look.get_or_insert(now.after(DEAF_PACE));
        if now < at {
            return at;
        }
        heard.due.extend(near);
        let next = now.after(DEAF_PACE);
        self.next_look = Some(next);
        next
    }
}

/// Waits until there are events. The registration lasts for one wait, so that the next may be in another runtime.
async fn readable(inotify: Arc<Inotify>) {
    #[allow(
        deprecated,
        reason = "its successor is unsafe; `Owned` keeps what that asks for: one open descriptor"
    )]
    let registered = AsyncFd::with_interest(Owned(inotify), Interest::READABLE);
    let ready = match &registered {
        Ok(fd) => fd.readable().await.map(|mut guard| guard.retain_ready()),
        Err(error) => Err(std::io::Error::from(error.kind())),
    };
    if ready.is_err() {
        // No room in epoll: the news are read at a steady pace instead.
        sleep(DEAF_PACE).await;
    }
}

/// Keeps the descriptor open, and the same, for as long as it is registered.
struct Owned(Arc<Inotify>);

impl AsRawFd for Owned {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// Watches an open file, whatever its path leads to by now.
fn watch(inotify: &Inotify, fd: RawFd, mask: AddWatchFlags) -> Result<WatchDescriptor, Errno> {
    inotify.add_watch(format!("/proc/self/fd/{fd}").as_str(), mask)
}
