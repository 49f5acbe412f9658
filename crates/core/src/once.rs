//! Work that is done one time for a key: its result is stored with the release of the lock, and repeats receive it.

pub(crate) mod outcome;
pub(crate) mod turn;

use std::{fmt, time::Duration};

use crate::{
    Error, Guard, Locks, OnceError, Pace, Ran, Request,
    memo::check_memos,
    turn::{Turn, Waiting},
};

/// For how long a result is stored unless [`Once::keep`] says otherwise.
const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 3600);

/// Work that is done one time for a key, made by [`Locks::once`]: the repeated click, the message that is delivered
/// twice. Nothing happens before one of the `run` methods is awaited.
///
/// - **The first run** for the key acquires a lock of this name, does the work, and stores its result (at most 64 KiB)
///   in the atomic step that releases the lock. That is a [`Ran::Fresh`].
/// - **A repeat** within [`keep`](Self::keep) receives the stored result by one request, without the lock:
///   [`Ran::Replayed`]. A repeat while the work runs waits for the result. Repeats that wait share a lock behind the
///   run, so all of them wake together, on engines with shared locks; elsewhere one after another.
/// - **Work that fails** (an error, a panic, a cancelled future, a lost lock, a killed process) stores nothing, and the
///   next one runs. [`Guard::previous`] tells it how the run before it ended.
/// - **Another payload** under the same key is an error ([`is_mismatch`](Error::is_mismatch)), if both runs give a
///   [`digest`](Self::digest). It is known only when a result is stored.
///
/// **Not promised:** between the effect of the work and the record of its result a process can be killed. Then the work
/// runs again, so its effect happens at least one time, not exactly one time. Work whose lock was lost may still run
/// when the next one begins; let the resource refuse its writes by the [token](Guard::token).
///
/// The results need an engine that stores memos; [`Profile::no_memos`](crate::Profile::no_memos) says which one does
/// not. There every call is refused before anything is sent. Do not lock the key in the work itself: that would wait
/// for itself.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # pollster::block_on(async {
/// # async fn charge(order: u32, token: leasehold::Token) -> Result<String, std::io::Error> { Ok("receipt 1".into()) }
/// # let locks = leasehold::Locks::connect("memory:once-type")?;
/// use std::time::Duration;
/// let order = locks.once("order-17").keep(Duration::from_secs(24 * 3600));
/// for _click in 0..2 {
///     let ran = order.run(async |guard| charge(17, guard.token()).await).await?;
///     assert_eq!(ran.bytes(), b"receipt 1");
/// }
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
#[must_use = "this does nothing until one of its methods is awaited"]
pub struct Once {
    locks: Locks,
    request: Request,
    /// The label of the owner: each run is an owner of its own, so that no two share a hold.
    owner: Option<String>,
    keep: Duration,
    digest: Option<[u8; 32]>,
}

impl Locks {
    /// Work that is done one time for a key: see [`Once`]. The key is the name of the lock.
    pub fn once(&self, key: impl AsRef<str>) -> Once {
        let request = self.mutex(key);
        Once { locks: self.clone(), request, owner: None, keep: DEFAULT_KEEP, digest: None }
    }
}

impl Once {
    /// For how long the result is stored, counted from its record by the clock of the engine: 1 ms to 400 days; a day
    /// by default. After that the work runs again.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// The digest of the payload, for instance the SHA-256 of the body of the request. It is stored with the result. A
    /// repeat with another digest is refused with [`is_mismatch`](Error::is_mismatch); without a digest, on one side or
    /// the other, nothing is compared.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:digest")?;
    /// use std::convert::Infallible;
    /// let work = async |_: &leasehold::Guard| Ok::<_, Infallible>("paid");
    /// locks.once("order-17").digest([1; 32]).run(work).await.unwrap();
    /// let error = locks.once("order-17").digest([2; 32]).run(work).await.unwrap_err();
    /// assert!(error.lock_error().is_some_and(|error| error.is_mismatch()));
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub const fn digest(mut self, digest: [u8; 32]) -> Self {
        self.digest = Some(digest);
        self
    }

    /// The lease time of the lock: how long repeats wait after a crash. See [`Request::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with_options(|request| request.ttl(ttl))
    }

    /// How often the lease is renewed: see [`Request::renew_every`].
    pub fn renew_every(self, interval: Duration) -> Self {
        self.with_options(|request| request.renew_every(interval))
    }

    /// The longest time for one run: see [`Request::max_hold`].
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with_options(|request| request.max_hold(max_hold))
    }

    /// How often a waiting repeat asks the engine: see [`Request::retry`].
    pub fn retry(self, pace: Pace) -> Self {
        self.with_options(|request| request.retry(pace))
    }

    /// How many requests of this `Locks` may wait for this key: see [`Request::max_waiting`].
    pub fn max_waiting(self, requests: usize) -> Self {
        self.with_options(|request| request.max_waiting(requests))
    }

    /// Declares that this process ends its work on SIGTERM: see [`Request::stops_on_term`].
    pub fn stops_on_term(self, stops: bool) -> Self {
        self.with_options(|request| request.stops_on_term(stops))
    }

    /// The label of the run for operators; `user@host:pid` by default. A label alone: two runs never share a hold.
    pub fn owner(mut self, label: &str) -> Self {
        self.owner = Some(label.to_owned());
        self
    }

    fn with_options(mut self, change: impl FnOnce(Request) -> Request) -> Self {
        self.request = change(self.request);
        self
    }

    /// Runs the work, or receives the result of the run that did it. Waits for a run that is going on. At the moment at
    /// which the lock is lost, the work is cancelled by dropping its future.
    ///
    /// The work gets the guard of the lock: for its [token](Guard::token), which belongs to every write, and for
    /// [`previous`](Guard::previous), which is not [`Clean`](crate::Previous::Clean) if an earlier run crashed and may
    /// have left its effect half done. The work returns the bytes to store.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:once-run")?;
    /// use leasehold::{Previous, Ran};
    /// let ran = locks.once("order-17").run(async |guard| {
    ///     if guard.previous() != Previous::Clean {
    ///         println!("look whether the order was charged already");
    ///     }
    ///     Ok::<_, std::io::Error>("receipt 1")
    /// }).await?;
    /// assert!(matches!(ran, Ran::Fresh(_)));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`OnceError::NotBegun`]: nothing ran. With the errors of [`Request::acquire`];
    ///   [`is_mismatch`](Error::is_mismatch) if the stored result is of another payload;
    ///   [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos (then nothing was sent), or if a
    ///   memo of another kind is stored under the key; [`is_invalid`](Error::is_invalid) for an invalid key or keep. An
    ///   engine that cannot be reached is not waited for: [`is_unreachable`](Error::is_unreachable).
    /// - [`OnceError::Work`]: the work failed; nothing is stored.
    /// - [`OnceError::Cancelled`]: the lock was lost while the work ran; nothing is stored.
    /// - [`OnceError::NotStored`]: the work is done, and its result is not stored, or that is unknown.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, or drops the work and then releases in the background; nothing is stored,
    /// and [`previous`](Guard::previous) of the next run is [`Abandoned`](crate::Previous::Abandoned). A web server
    /// drops the future of a handler when the client hangs up: call this in a task of its own there (`tokio::spawn`).
    pub fn run<B, E, W>(&self, work: W) -> impl Future<Output = Result<Ran, OnceError<E>>> + use<B, E, W>
    where
        W: AsyncFnOnce(&Guard) -> Result<B, E>,
        B: Into<Vec<u8>>,
    {
        self.clone().run_or_replay(Waiting::UntilDone, work)
    }

    /// [`run`](Self::run), but waits for at most `limit` until the work begins or its result is there, also if the
    /// engine does not answer. The limit includes the requests after the grant, which look for a result: a run that is
    /// granted near its end may be given up, so choose a limit of many round trips. The work itself has no limit; see
    /// [`max_hold`](Self::max_hold).
    ///
    /// # Errors
    /// As [`run`](Self::run); [`is_timed_out`](Error::is_timed_out) if another run went on all the time;
    /// [`is_unreachable`](Error::is_unreachable) if the engine did not answer within the limit.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn run_within<B, E, W>(
        &self,
        limit: Duration,
        work: W,
    ) -> impl Future<Output = Result<Ran, OnceError<E>>> + use<B, E, W>
    where
        W: AsyncFnOnce(&Guard) -> Result<B, E>,
        B: Into<Vec<u8>>,
    {
        self.clone().run_or_replay(Waiting::AtMost(limit), work)
    }

    /// [`run`](Self::run), but does not wait for a run that is going on.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`is_taken`](Error::is_taken) if another run goes on now.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn try_run<B, E, W>(&self, work: W) -> impl Future<Output = Result<Ran, OnceError<E>>> + use<B, E, W>
    where
        W: AsyncFnOnce(&Guard) -> Result<B, E>,
        B: Into<Vec<u8>>,
    {
        self.clone().run_or_replay(Waiting::Never, work)
    }

    /// [`run`](Self::run) for code without an executor: blocks the thread. The work is not cancelled when the lock is
    /// lost: it looks at [`Guard::check`] before each step that others can see.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:once-blocking")?;
    /// let ran = locks.once("order-17").run_blocking(|_| Ok::<_, std::io::Error>("receipt 1")).unwrap();
    /// assert_eq!(ran.bytes(), b"receipt 1");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), without [`OnceError::Cancelled`].
    #[track_caller]
    pub fn run_blocking<B, E>(&self, work: impl FnOnce(&Guard) -> Result<B, E>) -> Result<Ran, OnceError<E>>
    where
        B: Into<Vec<u8>>,
    {
        let turn = self.request.handle().block_on(self.turn(Waiting::UntilDone)).and_then(|turn| turn);
        let guard = match turn.map_err(OnceError::NotBegun)? {
            Turn::Done(bytes) => return Ok(Ran::Replayed(bytes)),
            Turn::Run(guard, ()) => guard,
        };
        let bytes = work(&guard).map_err(OnceError::Work)?.into();
        match self.memo(bytes.clone()).and_then(|memo| guard.release_with_memo_blocking(memo)) {
            Ok(()) => Ok(Ran::Fresh(bytes)),
            Err(error) => Err(OnceError::NotStored { bytes, error }),
        }
    }

    /// The stored result, without running anything; `None` if there is none. One request. Cancel safe.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:stored")?;
    /// assert_eq!(locks.once("order-17").stored().await?, None);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`OnceError::NotBegun`] of [`run`](Self::run), without those of the lock.
    pub async fn stored(&self) -> Result<Option<Vec<u8>>, Error> {
        let name = self.request.valid_name()?;
        check_memos(self.locks.shared(), &name)?;
        let memo = self.locks.read_memo_of(&name).await?;
        memo.map(|memo| self.result_of(&name, memo)).transpose()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("request", &self.request)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}
