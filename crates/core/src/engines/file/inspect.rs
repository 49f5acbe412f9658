//! `Inspect` for the file engine: reads the state of names and takes no lock.

use std::{
    collections::HashMap,
    os::unix::fs::{FileExt, OpenOptionsExt},
    time::Duration,
};

use nix::sys::stat::{fstat, lstat};

use super::{
    diagnose,
    dir::encode::{self, Decoded},
    dir::open::{Access, SAFE_FLAGS},
    engine::FileEngine,
    error::classify,
    guarantee::guarantee,
    kernel::locks::{LockFile, NamePaths},
    kernel::proc::{has_open, program_name, state_of},
    kernel::{Flock, KernelLocks},
    table::layout::{HEADER_SIZE, name_bytes},
    table::record::{Record, RecordState},
    table::state::StateFile,
    table::wait_order::{StoredRecord, is_in_min_hold},
    table::{is_alive, read_records, record_zero},
};
use crate::{
    BoxFuture, Broken, Diagnostic, EngineError, Guarantee, HolderProcess, HolderView, Inspect, Instant,
    Lineage, Mode, Name, NoticeSender, View, WaiterView, Watched, pure::lock_state::MIN_HOLD_OWNER,
};

/// How often a table that changes during the read is read, before torn records are left out.
const MAX_READS: usize = 3;
/// How often a name is inspected before a holder counts as foreign: `/proc/locks`, read while it changes, may list a
/// lock twice.
const MAX_LOOKS: usize = 3;
/// How often a name is inspected while the process of a flock without a record has the lock directory open, as only a
/// process of leasehold has: it has the flock a moment before its record, and a moment longer.
const MAX_LOOKS_AT_OURS: usize = 200;
/// How many of these looks come without a pause. After that, the process waits for a processor of a busy machine.
const LOOKS_WITHOUT_PAUSE: usize = 50;
/// The pause before each further look.
const PAUSE: Duration = Duration::from_millis(1);

impl Inspect for FileEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        // The first claim creates what is missing.
        Box::pin(async move { self.dir.lock_dir(Access::ExistingToRead).map(drop) })
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(async move {
            let sharing_group =
                self.dir.lock_dir(Access::ExistingToRead)?.and_then(|lock_dir| lock_dir.sharing_group);
            Ok(guarantee(&self.dir.path, sharing_group, self.dir.file_system_type()))
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(async move { Ok(diagnose::diagnose(self)) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move { self.list_now(prefix) })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async move { self.look(name, &KernelLocks::read(self.dir.file_system_type())) })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        _force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(async move { self.break_now(name, token) })
    }

    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(self.tell_changes_now(watched, notices))
    }
}

impl FileEngine {
    /// The verb `list`.
    pub(super) fn list_now(&self, prefix: &str) -> Result<Vec<View>, EngineError> {
        let mut views = Vec::new();
        let kernel_locks = KernelLocks::read(self.dir.file_system_type());
        for name in self.names(prefix)? {
            match self.look(&name, &kernel_locks) {
                Ok(view) if view.holders.is_empty() && view.waiters.is_empty() => {}
                Ok(view) => views.push(view),
                // A damaged state file, or one of another user: it blocks claims of its name, but not the other names
                // of this list.
                Err(error) => {
                    let lock_path = NamePaths::new(&self.dir, &name).shown_path();
                    views.push(View::unreadable(name, lock_path, &error));
                }
            }
        }
        views.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(views)
    }

    /// The names that begin with `prefix` and have a lock file.
    fn names(&self, prefix: &str) -> Result<Vec<Name>, EngineError> {
        let list_error = |error| classify("cannot list", &self.dir.path.display().to_string(), error);
        let mut names = Vec::new();
        if self.dir.lock_dir(Access::ExistingToRead)?.is_none() {
            return Ok(names);
        }
        for entry in std::fs::read_dir(&self.dir.path).map_err(list_error)? {
            let file = entry.map_err(list_error)?.file_name();
            let name = file.to_str().and_then(|file| self.name_of_file(file));
            names.extend(name.filter(|name| name.as_str().starts_with(prefix)));
        }
        Ok(names)
    }

    /// The name of a lock file.
    pub(super) fn name_of_file(&self, file: &str) -> Option<Name> {
        match encode::decode(file)? {
            Decoded::Name(name) => Some(name),
            Decoded::Hashed => self.name_of_hashed_file(file),
        }
    }

    /// The name of a hashed file name, read from its state file.
    fn name_of_hashed_file(&self, file: &str) -> Option<Name> {
        let mut header = [0; HEADER_SIZE];
        let mut options = std::fs::OpenOptions::new();
        let state_file =
            options.read(true).custom_flags(SAFE_FLAGS.bits()).open(self.dir.state_path(file)).ok()?;
        state_file.read_exact_at(&mut header, 0).ok()?;
        let name = Name::new(std::str::from_utf8(name_bytes(&header)).ok()?).ok()?;
        (encode::file_name(&name) == file).then_some(name)
    }

    /// The view of a name. Looks again while a holder seems to be foreign.
    #[expect(
        clippy::disallowed_methods,
        reason = "a look waits for another process, which no clock of a test moves"
    )]
    fn look(&self, name: &Name, kernel_locks: &KernelLocks) -> Result<View, EngineError> {
        let paths = NamePaths::new(&self.dir, name);
        let mut view = self.look_once(&paths, kernel_locks)?;
        let mut seen = HashMap::new();
        for looks in 1..MAX_LOOKS_AT_OURS {
            if !view.holders.iter().any(|holder| holder.foreign) {
                break;
            }
            if looks >= MAX_LOOKS {
                if !self.may_be_ours(&view, &mut seen) {
                    break;
                }
                match looks < LOOKS_WITHOUT_PAUSE {
                    true => std::thread::yield_now(),
                    false => std::thread::sleep(PAUSE),
                }
            }
            view = self.look_once(&paths, &KernelLocks::read(self.dir.file_system_type()))?;
        }
        Ok(view)
    }

    /// Whether the process of a foreign holder has the lock directory open. `seen` has the answer for the processes
    /// that were looked at before.
    fn may_be_ours(&self, view: &View, seen: &mut HashMap<u32, bool>) -> bool {
        let Ok(Some(lock_dir)) = self.dir.lock_dir(Access::ExistingToRead) else { return false };
        let Ok(stat) = fstat(&lock_dir.fd) else { return false };
        let foreign = view.holders.iter().filter(|holder| holder.foreign);
        let mut pids = foreign.filter_map(|holder| holder.process.as_ref()).map(|process| process.pid);
        pids.any(|pid| *seen.entry(pid).or_insert_with(|| has_open(pid, (stat.st_dev, stat.st_ino))))
    }

    /// The view of a name, from its records and from the kernel's list of locks.
    fn look_once(&self, paths: &NamePaths, kernel_locks: &KernelLocks) -> Result<View, EngineError> {
        let now = self.env.clock.now();
        let mut view = View::free(paths.name.clone(), paths.shown_path());
        let Ok(stat) = lstat(paths.lock_path.as_c_str()) else { return Ok(view) };
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_nlink > 1 {
            // Returns the same error as a claim.
            LockFile::open(&self.dir, paths, Access::ExistingToRead)?;
        }
        let mut flocks = kernel_locks.flocks_on(stat.st_dev, stat.st_ino);
        let (lineage, records) = self.live_records(paths)?;
        view.lineage = lineage;
        for stored in records {
            let record = &stored.record;
            match record.state {
                RecordState::Waiting => view.waiters.push(waiter_view(record, now)),
                RecordState::Empty => continue,
                RecordState::Holding | RecordState::MinHold => {
                    view.add_holder(record.mode, holder_view(record, now));
                }
            }
            // What is left in `flocks` belongs to no record: other programs have these flocks.
            let index = flocks.iter().position(|flock| !flock.waits && flock.pid == Some(record.process.pid));
            if let (RecordState::Holding, Some(index)) = (record.state, index) {
                flocks.swap_remove(index);
            }
        }
        for flock in flocks {
            add_foreign_flock(&mut view, flock);
        }
        Ok(view)
    }

    /// The records whose owners are alive or whose minimum hold time still runs: holders first, then waiters in order.
    /// Also returns the lineage of their tokens. Reads without the latch.
    pub(super) fn live_records(
        &self,
        paths: &NamePaths,
    ) -> Result<(Option<Lineage>, Vec<StoredRecord>), EngineError> {
        let Some(state_file) = self.state_files.get_to_inspect(&self.dir, paths)? else {
            return Ok((None, Vec::new()));
        };
        let (lineage, mut records) = self.read_unlatched(&state_file, &paths.name)?;
        if records.is_empty() {
            return Ok((lineage, records));
        }
        let Some(lock_file) = LockFile::open(&self.dir, paths, Access::ExistingToRead)? else {
            return Ok((lineage, Vec::new()));
        };
        let now = self.env.clock.now();
        records.retain(|stored| match stored.record.state {
            RecordState::MinHold => is_in_min_hold(&stored.record, now),
            _ => is_alive(&lock_file, stored).unwrap_or(true),
        });
        records.sort_by_key(|stored| (stored.record.state == RecordState::Waiting, stored.record.ticket));
        Ok((lineage, records))
    }

    /// All records in use and the lineage of their tokens, read without the latch.
    fn read_unlatched(
        &self,
        state_file: &StateFile,
        name: &Name,
    ) -> Result<(Option<Lineage>, Vec<StoredRecord>), EngineError> {
        for reads_left in (0..MAX_READS).rev() {
            let Some((header, bytes)) = state_file.header(name)? else { break };
            let (mut torn, mut records) = (false, Vec::new());
            if header.table.in_use && header.table.boot_id == self.boot_id {
                records = read_records(state_file, header.table.records, |_| {
                    torn = true;
                    Ok(())
                })?;
            }
            if !torn || reads_left == 0 {
                records.extend(record_zero(&header, &bytes, self.boot_id));
                return Ok((Some(header.lineage), records));
            }
        }
        Ok((None, Vec::new()))
    }
}

/// A hold, or a minimum hold time, as an operator sees it.
fn holder_view(record: &Record, now: Instant) -> HolderView {
    let is_min_hold = record.state == RecordState::MinHold;
    let owner = if is_min_hold { MIN_HOLD_OWNER.to_owned() } else { record.owner.to_string() };
    let remaining = is_min_hold.then(|| record.min_hold_until.since(now));
    HolderView::new(record.id.to_string(), owner)
        .token(Some(record.token))
        .times(Some(now.since(record.since)), remaining)
        .broken(!is_min_hold && record.is_broken())
        .process(if is_min_hold { None } else { holder_process(record) })
}

/// The process of a hold, if this process sees it. A process in another pid namespace has another pid there.
fn holder_process(record: &Record) -> Option<HolderProcess> {
    let process = record.process;
    process.is_running().then(|| HolderProcess::new(process.pid, state_of(process.pid)))
}

/// A waiter as an operator sees it.
fn waiter_view(record: &Record, now: Instant) -> WaiterView {
    let (id, owner) = (record.id.to_string(), record.owner.to_string());
    WaiterView::new(id, owner, Some(now.since(record.since))).of_mode(record.mode)
}

/// Adds the flock of another program to the view, as a holder or as a waiter.
fn add_foreign_flock(view: &mut View, flock: Flock) {
    let id = flock.pid.map_or_else(|| "pid unknown".to_owned(), |pid| format!("pid {pid}"));
    let owner = match flock.pid.and_then(program_name) {
        Some(program) => format!("{program} ({id})"),
        None => id.clone(),
    };
    let mode = if flock.exclusive { Mode::Exclusive } else { Mode::Shared };
    if flock.waits {
        view.waiters.push(WaiterView::new(id, owner, None).of_mode(mode));
        return;
    }
    view.mode = view.mode.or(Some(mode));
    let process = flock.pid.map(|pid| HolderProcess::new(pid, state_of(pid)));
    let holder = HolderView::new(id, owner).foreign(true).process(process);
    view.holders.push(HolderView { mode: Some(mode), ..holder });
}
