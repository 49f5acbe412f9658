//! Latches: processes wait until a number of named parties have counted down.

mod arrivals;
mod wait;

pub use arrivals::Arrivals;

use std::{fmt, time::Duration};

use crate::{
    Error, Locks, Memo, MemoKind, Name, NewMemo, Request,
    memo::{check_kind, check_memos},
};

/// For how long a latch is stored unless [`Latch::keep`] says otherwise.
const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 3600);

/// The lease time of the hold under which a party counts down: it takes two requests, and how long others wait if a
/// process dies in it.
const COUNT_TTL: Duration = Duration::from_secs(10);

/// The most parties. Their names must fit into one memo too.
const MAX_PARTIES: u32 = 10_000;

/// A latch, made by [`Locks::latch`]: it opens when so many parties have counted down, and never closes again. Nothing
/// happens before one of its methods is awaited.
///
/// - **A party counts one time**, whatever its name: counting down again, also after an unknown outcome or a restart,
///   changes nothing. So each call can be repeated.
/// - **A latch that nobody has counted down is closed**: [`wait`](Self::wait) can come first. There is nothing to
///   create.
/// - **An open latch stays open** until [`keep`](Self::keep) has passed since the last party counted down; then it is
///   forgotten, and the name begins anew. Parties that come later change nothing.
/// - All calls for one name give **the same count**; another count is refused.
///
/// **Not promised:** a latch is no lock. A party that has counted down can still be running; and who waited has no
/// token, so nothing refuses its writes. There is no barrier that closes again: use a latch for each phase, with the
/// number of the phase in its name.
///
/// A party counts down under a short exclusive hold of the name, so a mutex of this name delays it. The engine must
/// store memos: [`Profile::no_memos`](crate::Profile::no_memos).
///
/// ```
/// # pollster::block_on(async {
/// # let locks = leasehold::Locks::connect("memory:latch-type")?;
/// let import = locks.latch("import", 3);
/// for shard in ["shard-a", "shard-b", "shard-b", "shard-c"] {
///     import.count_down(shard).await?;
/// }
/// // Elsewhere:
/// let arrivals = import.wait().await?;
/// assert_eq!(arrivals.parties().len(), 3);
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "a latch does nothing until one of its methods is awaited"]
pub struct Latch {
    locks: Locks,
    request: Request,
    count: u32,
    keep: Duration,
}

impl Locks {
    /// A latch that opens when `count` parties have counted down: see [`Latch`].
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        let range = &self.profile().ttl;
        let request = self.mutex(name).ttl(COUNT_TTL.clamp(*range.start(), *range.end()));
        Latch { locks: self.clone(), request, count, keep: DEFAULT_KEEP }
    }
}

impl Latch {
    /// For how long the latch is stored, counted from the last party that counted down, by the clock of the engine:
    /// 1 ms to 400 days; a day by default.
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Counts down as `party`: 1 to 512 bytes without control characters, and different for each party. Returns who has
    /// counted down until now. Nothing is changed if this party has counted down already, or if the latch is open: that
    /// costs one request, and otherwise it takes a short exclusive hold of the name.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:count-down")?;
    /// let import = locks.latch("import", 2);
    /// assert_eq!(import.count_down("shard-a").await?.missing(), 1);
    /// assert_eq!(import.count_down("shard-a").await?.missing(), 1, "it counts one time");
    /// assert!(import.count_down("shard-b").await?.is_open());
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`Request::acquire`]. [`is_unknown`](Error::is_unknown) and [`is_lost`](Error::is_lost) if it is not
    /// known whether this party has counted down: call it again. [`is_misconfigured`](Error::is_misconfigured) also
    /// if the engine stores no memos (then nothing was sent), if the latch was made for another count, or if another
    /// memo is stored under the name. [`is_invalid`](Error::is_invalid) also for a count of 0 or of more than 10,000,
    /// and if the names of all parties need more than 64 KiB.
    ///
    /// # Cancel safety
    /// If the future is dropped, the party has counted down or not: call it again.
    pub async fn count_down(&self, party: impl AsRef<str>) -> Result<Arrivals, Error> {
        let party = party.as_ref();
        let name = self.checked()?;
        arrivals::check_party(party).map_err(|problem| self.error_of(&name, &problem))?;
        let found = self.read(&name).await?;
        if found.is_open() || found.contains(party) {
            return Ok(found);
        }
        let guard = self.request.acquire().await?;
        // R33: another party may have counted down since.
        let found = self.read(&name).await?;
        if found.is_open() || found.contains(party) {
            drop(guard.in_transit());
            return Ok(found);
        }
        let arrivals = found.with(party);
        guard.release_with_memo(self.memo(&arrivals).map_err(|error| error.of_name(&name))?).await?;
        Ok(arrivals)
    }

    /// [`count_down`](Self::count_down) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:count-down-blocking")?;
    /// assert!(locks.latch("import", 1).count_down_blocking("shard-a")?.is_open());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`count_down`](Self::count_down).
    #[track_caller]
    pub fn count_down_blocking(&self, party: impl AsRef<str>) -> Result<Arrivals, Error> {
        self.request.handle().block_on(self.count_down(party))?
    }

    /// Who has counted down until now, without waiting. One request. Cancel safe.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:arrivals")?;
    /// assert_eq!(locks.latch("import", 3).arrivals().await?.missing(), 3);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`count_down`](Self::count_down), without those of the lock.
    pub async fn arrivals(&self) -> Result<Arrivals, Error> {
        self.read(&self.checked()?).await
    }

    /// The name, if all options are valid and the engine stores memos. Nothing is sent.
    fn checked(&self) -> Result<Name, Error> {
        let name = self.request.validated(None)?.name;
        check_memos(self.locks.shared(), &name)?;
        if !(1..=MAX_PARTIES).contains(&self.count) {
            let problem =
                format!("a count of {} is out of range: 1 to {MAX_PARTIES} are allowed", self.count);
            return Err(self.error_of(&name, &problem));
        }
        self.memo(&Arrivals::none(self.count))?;
        Ok(name)
    }

    async fn read(&self, name: &Name) -> Result<Arrivals, Error> {
        let memo = self.locks.read_memo_of(name).await?;
        self.arrivals_of(name, memo)
    }

    /// The arrivals in a memo; none without a memo.
    fn arrivals_of(&self, name: &Name, memo: Option<Memo>) -> Result<Arrivals, Error> {
        let Some(memo) = memo else { return Ok(Arrivals::none(self.count)) };
        let (engine, name_text) = (self.locks.profile().engine, name.as_str());
        check_kind(&memo, &MemoKind::LATCH, name, engine)?;
        let arrivals = Arrivals::decode(&memo.bytes).ok_or_else(|| {
            Error::misconfigured(format!(
                "{engine} latch {name_text:?}: its memo is no list of parties that this version of leasehold can read: \
                 use another name"
            ))
            .of_name(name)
        })?;
        if arrivals.count() != self.count {
            let (stored, own) = (arrivals.count(), self.count);
            return Err(Error::misconfigured(format!(
                "{engine} latch {name_text:?}: it was made for {stored} parties, and this call says {own}: give the \
                 same count everywhere, or use another name"
            ))
            .of_name(name));
        }
        Ok(arrivals)
    }

    fn memo(&self, arrivals: &Arrivals) -> Result<NewMemo, Error> {
        NewMemo::new(MemoKind::LATCH, arrivals.encode(), self.keep)
    }

    fn error_of(&self, name: &Name, problem: &str) -> Error {
        Error::invalid(format!("latch {:?}: {problem}", name.as_str())).of_name(name)
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("request", &self.request)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
