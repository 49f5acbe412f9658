//! `FileEngine`: its parts, its constructor, its profile, and its verbs, which call `take` and `release`.

use std::{fmt, os::fd::OwnedFd, path::PathBuf, sync::Mutex, time::Duration};

use super::{
    claims::{ClaimCell, ClaimState, Claims, lock_mutex},
    dir::Dir,
    dir::idle::IdleFiles,
    dir::open::Access,
    error::open_error,
    kernel::clock::machine_clock,
    kernel::locks::NamePaths,
    kernel::proc::{Process, boot_id},
    memo::sweep::Sweep,
    table::state::StateFiles,
    wake::listener::Listener,
    wake::wake_pipe,
};
use crate::{
    AllAnswer, Answer, BoxFuture, Breaking, Claim, ClaimId, Engine, EngineError, Env, Error, Hold, How, Life,
    Lineage, Memos, Name, Notification, Profile, Release, Released, Renewed, cannot_claim_all,
};

/// The tokens of one grant: one for the hold itself, and one for each of 64 hand-overs between tasks of this process
/// before another process is granted. Compared with 64 hand-overs inside the process, one hand-over to another process
/// costs little.
const TOKENS_PER_GRANT: u32 = 1 + 64;

/// Locks in a directory of one host, held by the kernel: exact, not leased. See the [module](super).
pub struct FileEngine {
    pub(super) dir: Dir,
    pub(super) env: Env,
    /// The id of the current boot of the machine, which every state file names.
    pub(super) boot_id: [u8; 16],
    /// This process, as its records name it.
    pub(super) process: Process,
    pub(super) claims: Claims,
    pub(super) state_files: StateFiles,
    pub(super) idle_files: IdleFiles,
    pub(super) listener: Listener,
    /// How far ended memos were removed.
    pub(super) memo_sweep: Sweep,
    /// Holds whose holder was asked to stop: name and token.
    pub(super) asked_to_stop: Mutex<Vec<(Name, u64)>>,
    profile: Profile,
}

impl FileEngine {
    /// Opens the lock directory `dir`, or the default one: `/var/lib/leasehold` for root, `.local/state/leasehold` in
    /// the passwd home of any other user. The first claim creates missing directories, for this user alone;
    /// inspection creates nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) for a relative path, something that is no
    /// directory, or a network file system; [`Denied`](crate::ErrorKind::Denied) for a symbolic link, a directory that
    /// all users can write or that is another user's, and missing permissions;
    /// [`Refused`](crate::ErrorKind::Refused) for a full or read-only file system.
    pub fn open(dir: Option<PathBuf>, env: Env) -> Result<Self, Error> {
        let boot_id = boot_id().map_err(open_error)?;
        let env = Env { clock: machine_clock(env.clock), ..env };
        Self::open_in_boot(dir, env, boot_id)
    }

    /// As [`open`](Self::open), with `boot_id` as the id of the current boot.
    pub(super) fn open_in_boot(dir: Option<PathBuf>, env: Env, boot_id: [u8; 16]) -> Result<Self, Error> {
        Ok(Self {
            dir: Dir::open(dir).map_err(open_error)?,
            boot_id,
            process: Process::own(),
            claims: Claims::default(),
            state_files: StateFiles::default(),
            idle_files: IdleFiles::default(),
            listener: Listener::new(env.clone()),
            memo_sweep: Sweep::default(),
            asked_to_stop: Mutex::default(),
            env,
            profile: profile(),
        })
    }

    /// Duplicates the descriptor of the lock file that claim `id` holds, closed on exec. A child that inherits the
    /// duplicate holds the name as long as the child runs, even after this process ends. `None` when `id`
    /// holds nothing.
    ///
    /// # Errors
    /// The limit of open files.
    pub fn descriptor(&self, id: ClaimId) -> std::io::Result<Option<OwnedFd>> {
        let Some(cell) = self.claims.find(id) else { return Ok(None) };
        match &*lock_mutex(&cell) {
            ClaimCell::Live(entry) if matches!(entry.claim_state, ClaimState::Holding { .. }) => {
                entry.lock_file.duplicate().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// A random lineage, for a new token counter.
    pub(super) fn new_lineage(&self) -> Lineage {
        let mut bytes = [0; 16];
        self.env.entropy.fill(&mut bytes);
        Lineage::new(u128::from_be_bytes(bytes))
    }

    /// A notification for each waiting claim that was signalled: its record has the time of a signal that it has not
    /// answered.
    fn recheck_signalled(&self) -> Vec<Notification> {
        let mut notifications = Vec::new();
        let waiting = self.listener.waiting();
        // With a single waiting claim, the signal can only be for that one.
        if let [(id, name, _)] = &waiting[..] {
            return vec![Notification::Recheck { name: name.clone(), id: *id }];
        }
        for (id, name, slot) in waiting {
            let paths = NamePaths::new(&self.dir, &name);
            let state_file = self.state_files.get(&self.dir, &paths, Access::Existing);
            // A claim whose record cannot be read asks too.
            let is_not_signalled =
                matches!(state_file, Ok(Some(state_file)) if !wake_pipe::is_signalled(&state_file, slot));
            if !is_not_signalled {
                notifications.push(Notification::Recheck { name, id });
            }
        }
        notifications
    }

    /// The verb `notifications`: waits until a claim of this engine should ask.
    async fn listen(&self) -> Vec<Notification> {
        loop {
            let wakeups = self.listener.listen().await;
            if wakeups.events_lost {
                return vec![Notification::AskAll];
            }
            let mut notifications: Vec<Notification> =
                wakeups.due_claims.into_iter().map(|(id, name)| Notification::Recheck { name, id }).collect();
            if wakeups.wake_pipe_written {
                notifications.extend(self.recheck_signalled());
            }
            if !notifications.is_empty() {
                return notifications;
            }
        }
    }
}

impl Engine for FileEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, _: &Name) -> Option<u16> {
        None
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move { self.claim_now(claim, how) })
    }

    fn claim_all<'a>(&'a self, _: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        cannot_claim_all()
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move { holds.iter().map(|hold| self.renew_one(hold)).collect() })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move { releases.iter().map(|release| self.release_one(release)).collect() })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(self.listen())
    }

    fn memos(&self) -> Option<&dyn Memos> {
        Some(self)
    }

    fn conversions(&self) -> Option<&dyn crate::Conversions> {
        None
    }
}

impl fmt::Debug for FileEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileEngine").field("dir", &self.dir.path).finish_non_exhaustive()
    }
}

fn profile() -> Profile {
    let mut profile = Profile::new("file");
    profile.life = Life::Process;
    profile.push = true;
    // Polling is the fallback: a foreign `flock -u` without a close sends no event, nor does the end of a minimum
    // hold time.
    profile.poll = Duration::from_millis(5)..=super::take::FAR_INTERVAL;
    profile.inline = true;
    profile.tokens = TOKENS_PER_GRANT;
    profile.fifo = true;
    profile.supports_min_hold = true;
    profile.no_memos = None;
    profile.no_conversion =
        Some("the kernel converts a flock by letting go of it first, and another could take it");
    profile.breaking = Breaking::Ask;
    // Requests never leave the process: none is in flight after the call returns.
    profile.request_life = Duration::ZERO;
    profile
}
