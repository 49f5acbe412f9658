//! `Inspect` for the file engine: looks at names without disturbing claims.

use std::os::unix::fs::{FileExt, OpenOptionsExt};

use nix::sys::stat::lstat;

use super::{
    dir::encode::{self, Decoded},
    dir::open::{Missing, SAFE_FLAGS},
    engine::FileEngine,
    error::classify,
    guarantee::guarantee,
    kernel::locks::{Key, LockFile},
    kernel::proc::program,
    kernel::{Flock, KernelLocks},
    table::layout::{HEAD, name_bytes},
    table::record::{Record, RecordState},
    table::state::StateFile,
    table::wait_order::{IndexedRecord, is_in_min_hold},
    table::{is_alive, read_records, record_zero},
};
use crate::{
    BoxFuture, Broken, EngineError, Guarantee, HolderView, Inspect, Instant, Lineage, Mode, Name, View,
    WaiterView, pure::lock_state::MIN_HOLD_OWNER,
};

/// How often a table that changed during the read is read again before torn records are left out.
const TRIES: usize = 3;
/// How often a name is inspected before a holder counts as foreign: our hold has its flock a moment before its
/// record, and `/proc/locks`, read while it changes, may list a lock twice.
const MAX_LOOKS: usize = 3;

impl Inspect for FileEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        // The first claim creates what is missing.
        Box::pin(async move { self.dir.lock_dir(Missing::Look).map(drop) })
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(async move {
            let shared = self.dir.lock_dir(Missing::Look)?.and_then(|lock_dir| lock_dir.shared);
            Ok(guarantee(&self.dir.path, shared, self.dir.fs()))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move {
            let mut views = Vec::new();
            let kernel = KernelLocks::read(self.dir.fs());
            for name in self.names(prefix)? {
                match self.look(&name, &kernel) {
                    Ok(view) if view.holders.is_empty() && view.waiters.is_empty() => {}
                    Ok(view) => views.push(view),
                    // A damaged state file, or one of another user: it blocks claims of its name, but not the other
                    // names of this list.
                    Err(error) => {
                        let key = Key::new(&self.dir, &name).shown();
                        views.push(View::unreadable(name, key, &error));
                    }
                }
            }
            views.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(views)
        })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async move { self.look(name, &KernelLocks::read(self.dir.fs())) })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        _force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(async move { self.break_now(name, token) })
    }
}

impl FileEngine {
    /// The names that begin with `prefix` and have a lock file.
    fn names(&self, prefix: &str) -> Result<Vec<Name>, EngineError> {
        let failed = |error| classify("cannot list", &self.dir.path.display().to_string(), error);
        let mut names = Vec::new();
        if self.dir.lock_dir(Missing::Look)?.is_none() {
            return Ok(names);
        }
        for entry in std::fs::read_dir(&self.dir.path).map_err(failed)? {
            let file = entry.map_err(failed)?.file_name();
            let name = match file.to_str().and_then(|file| Some((file, encode::decode(file)?))) {
                Some((_, Decoded::Name(name))) => Some(name),
                Some((file, Decoded::Hashed)) => self.hashed(file),
                None => None,
            };
            names.extend(name.filter(|name| name.as_str().starts_with(prefix)));
        }
        Ok(names)
    }

    /// The name of a hashed file name, read from its state file.
    fn hashed(&self, file: &str) -> Option<Name> {
        let mut head = [0; HEAD];
        let mut safely = std::fs::OpenOptions::new();
        let state = safely.read(true).custom_flags(SAFE_FLAGS.bits()).open(self.dir.state_path(file)).ok()?;
        state.read_exact_at(&mut head, 0).ok()?;
        let name = Name::new(std::str::from_utf8(name_bytes(&head)).ok()?).ok()?;
        (encode::file_name(&name) == file).then_some(name)
    }

    fn look(&self, name: &Name, kernel: &KernelLocks) -> Result<View, EngineError> {
        let key = Key::new(&self.dir, name);
        let mut view = self.look_once(&key, kernel)?;
        for _ in 1..MAX_LOOKS {
            if !view.holders.iter().any(|holder| holder.foreign) {
                break;
            }
            view = self.look_once(&key, &KernelLocks::read(self.dir.fs()))?;
        }
        Ok(view)
    }

    fn look_once(&self, key: &Key, kernel: &KernelLocks) -> Result<View, EngineError> {
        let now = self.env.clock.now();
        let mut view = View::free(key.name.clone(), key.shown());
        let Ok(stat) = lstat(key.path.as_c_str()) else { return Ok(view) };
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_nlink > 1 {
            // Returns the same error as a claim.
            LockFile::open(&self.dir, key, Missing::Look)?;
        }
        let mut flocks = kernel.on(stat.st_dev, stat.st_ino);
        let (lineage, records) = self.live_records(key)?;
        view.lineage = lineage;
        for indexed in records {
            let record = &indexed.record;
            match record.state {
                RecordState::Waiting => view.waiters.push(waiter(record, now)),
                RecordState::Empty => continue,
                RecordState::Holding | RecordState::MinHold => {
                    view.add_holder(record.mode, holder(record, now));
                }
            }
            let own = flocks.iter().position(|flock| !flock.waits && flock.pid == Some(record.process.pid));
            if let (RecordState::Holding, Some(own)) = (record.state, own) {
                flocks.swap_remove(own);
            }
        }
        for flock in flocks {
            add_foreign(&mut view, flock);
        }
        Ok(view)
    }

    /// The valid records, holders first, then waiters in order, and the lineage of their tokens. Read without the
    /// latch.
    fn live_records(&self, key: &Key) -> Result<(Option<Lineage>, Vec<IndexedRecord>), EngineError> {
        let Some(state) = self.states.look(&self.dir, key)? else { return Ok((None, Vec::new())) };
        let (lineage, mut records) = self.read_unlatched(&state, &key.name)?;
        if records.is_empty() {
            return Ok((lineage, records));
        }
        let Some(lock) = LockFile::open(&self.dir, key, Missing::Look)? else {
            return Ok((lineage, Vec::new()));
        };
        let now = self.env.clock.now();
        records.retain(|indexed| match indexed.record.state {
            RecordState::MinHold => is_in_min_hold(&indexed.record, now),
            _ => is_alive(&lock, indexed).unwrap_or(true),
        });
        records.sort_by_key(|indexed| (indexed.record.state == RecordState::Waiting, indexed.record.ticket));
        Ok((lineage, records))
    }

    fn read_unlatched(
        &self,
        state: &StateFile,
        name: &Name,
    ) -> Result<(Option<Lineage>, Vec<IndexedRecord>), EngineError> {
        for last in (0..TRIES).rev() {
            let Some((head, bytes)) = state.head(name)? else { break };
            let (mut torn, mut records) = (false, Vec::new());
            if head.table.in_use && head.table.boot == self.boot {
                records = read_records(state, head.table.records, |_| {
                    torn = true;
                    Ok(())
                })?;
            }
            if !torn || last == 0 {
                records.extend(record_zero(&head, &bytes, self.boot));
                return Ok((Some(head.lineage), records));
            }
        }
        Ok((None, Vec::new()))
    }
}

fn holder(record: &Record, now: Instant) -> HolderView {
    let is_min_hold = record.state == RecordState::MinHold;
    HolderView {
        id: record.id.to_string(),
        owner: if is_min_hold { MIN_HOLD_OWNER.to_owned() } else { record.owner.to_string() },
        token: Some(record.token),
        held: Some(now.since(record.since)),
        remaining: is_min_hold.then(|| record.min_hold_until.since(now)),
        of_session: false,
        foreign: false,
    }
}

fn waiter(record: &Record, now: Instant) -> WaiterView {
    WaiterView {
        id: record.id.to_string(),
        owner: record.owner.to_string(),
        waiting: Some(now.since(record.since)),
    }
}

fn add_foreign(view: &mut View, flock: Flock) {
    let id = flock.pid.map_or_else(|| "pid unknown".to_owned(), |pid| format!("pid {pid}"));
    let program = flock.pid.and_then(program);
    let owner = program.map_or_else(|| id.clone(), |program| format!("{program} ({id})"));
    if flock.waits {
        view.waiters.push(WaiterView { id, owner, waiting: None });
        return;
    }
    view.mode = view.mode.or(Some(if flock.exclusive { Mode::Exclusive } else { Mode::Shared }));
    let (token, held, remaining, of_session) = (None, None, None, false);
    view.holders.push(HolderView { id, owner, token, held, remaining, of_session, foreign: true });
}
