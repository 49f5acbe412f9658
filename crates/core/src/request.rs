//! A request for a lock: its name, its mode and its options.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Acquire, Blocking, Error, Mode, Name, Owner, Pace,
    contract::time::format_duration,
    driver::local::{RequestSpec, Terms, Tries},
    driver::shared::SharedHandle,
    pure::{due::LONGEST_INTERVAL, lease::Renewal},
};

/// The default lease time of a request.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// The most renewals within one ttl: with a shorter interval, most renewals would report nothing that a notification or
/// the next renewal does not report.
const RENEWALS_AT_MOST: u32 = 20;
/// The fewest renewals within one ttl: with a longer interval, one lost renewal would stop the work of the holder.
const RENEWALS_AT_LEAST: u32 = 2;

/// A request for a lock. Nothing happens before one of the `acquire` methods is awaited. A request can be used any
/// number of times.
#[derive(Clone)]
#[must_use = "a request does nothing until it is acquired"]
pub struct Request {
    handle: Arc<SharedHandle>,
    /// The name, or why it is invalid: reported when the request is used.
    name: Result<Name, String>,
    family: Family,
    /// How many permits of a semaphore to take.
    permits: u32,
    ttl: Duration,
    renewal: Renewal,
    max_hold: Option<Duration>,
    /// The number of tries; `None`: wait in the queue.
    attempts: Option<u32>,
    pace: Option<Pace>,
    max_waiting: Option<usize>,
    owner: Option<Owner>,
    stops_on_term: bool,
    /// A hold may go to the next request of this process without a release on the engine.
    hands_over: bool,
}

/// The kind of lock that a request is for, before its count of permits is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Family {
    Exclusive,
    Shared,
    Permits { limit: u32 },
}

impl Request {
    pub(crate) fn new(handle: &Arc<SharedHandle>, name: Result<Name, Error>, family: Family) -> Self {
        Self {
            handle: Arc::clone(handle),
            name: name.map_err(|error| error.to_string()),
            family,
            permits: 1,
            ttl: DEFAULT_TTL,
            renewal: Renewal::Background,
            max_hold: None,
            attempts: None,
            pace: None,
            max_waiting: None,
            owner: None,
            stops_on_term: false,
            hands_over: true,
        }
    }

    /// The lease time; 30 s by default. The engine's [`Profile::ttl`](crate::Profile::ttl) is the allowed range.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("order/17").ttl(Duration::from_secs(10)).blocking().acquire()?;
    /// assert!(guard.remaining().is_some_and(|left| left <= Duration::from_secs(10)));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Whether the lease is renewed in the background; it is by default.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// // Work that must be over in a minute, or not at all.
    /// let guard = locks.mutex("order/17").ttl(Duration::from_secs(60)).renew(false).blocking().acquire()?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn renew(mut self, renew: bool) -> Self {
        self.renewal = if renew { Renewal::Background } else { Renewal::Off };
        self
    }

    /// How often the lease is renewed in the background: from a twentieth of the ttl (or 20 s if that is shorter) to
    /// half of it; by default each third of the ttl, and at least every 20 s. Renewals every half of the ttl cost less,
    /// but leave time for few further tries if a renewal fails; renewals every twentieth of the ttl report the end of
    /// the hold on the engine earlier, where the engine does not push that end.
    ///
    /// On engines where a hold lives on the session of its process (ZooKeeper) or on a lease for many holds (etcd),
    /// this is how often the hold is checked; the session or lease itself is kept alive at an interval of the engine.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let request = locks.mutex("order/17").ttl(Duration::from_secs(30)).renew_every(Duration::from_secs(5));
    /// request.blocking().acquire()?.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn renew_every(mut self, interval: Duration) -> Self {
        self.renewal = Renewal::Every(interval);
        self
    }

    /// The longest time, from the grant on, for which the guard is allowed to use the hold. After this time the guard
    /// reports the hold lost. If several guards share the hold, it is renewed until this time has passed for all of
    /// them.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("order/17").max_hold(Duration::from_secs(2)).blocking().acquire()?;
    /// assert!(guard.remaining().is_some_and(|left| left <= Duration::from_secs(2)));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Tries at most `attempts` times, with the pauses of [`retry`](Self::retry) (by default growing, jittered pauses),
    /// instead of waiting in the queue.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let held = locks.mutex("order/17").blocking().acquire()?;
    /// let error = locks.mutex("order/17").attempts(2).blocking().acquire().unwrap_err();
    /// assert!(error.is_taken());
    /// # drop(held);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// How often a waiting request asks the engine. A notification of the engine still ends a pause at once. By default
    /// the engine decides: most engines notify a waiting request, and are asked rarely.
    ///
    /// The requests of one `Locks` that wait for the same name ask the engine together, at the pace of the first of
    /// them.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use leasehold::Pace;
    /// use std::time::Duration;
    /// let pace = Pace::doubled(Duration::from_millis(10), Duration::from_secs(1));
    /// let guard = locks.mutex("order/17").retry(pace).blocking().acquire()?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn retry(mut self, pace: Pace) -> Self {
        self.pace = Some(pace);
        self
    }

    /// How many requests of this `Locks` may wait for this name when this one begins to wait; by default any number. If
    /// so many wait already, this request is refused at once with [`is_busy`](Error::is_busy), without a request to the
    /// engine. Tries do not count. For all names together, `Connect` has a limit of its own.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// // A web server that would rather refuse a request than let a hundred wait.
    /// let guard = locks.mutex("order/17").max_waiting(100).acquire().await?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub const fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = Some(requests);
        self
    }

    /// The owner. Its label is shown to others. A request with a clone of the holder's [`Owner`] is granted at once and
    /// shares the holder's hold; see [`Owner`] for the exceptions.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("import").owner("importer, batch 17").blocking().acquire()?;
    /// assert_eq!(locks.show_blocking("import")?.holders[0].owner, "importer, batch 17");
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn owner(mut self, owner: impl Into<Owner>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// The same request, of a new owner with this label, if there is one: no two such requests share a hold.
    pub(crate) fn for_new_owner(&self, label: Option<&str>) -> Self {
        let request = self.clone();
        match label {
            Some(label) => request.owner(Owner::new(label)),
            None => request,
        }
    }

    /// How many permits of a semaphore to take; 1 by default. For other locks, the request is
    /// [`is_invalid`](crate::Error::is_invalid) with another number.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let heavy = locks.semaphore("uploads", 8).permits(4).blocking().acquire()?;
    /// # drop(heavy);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn permits(mut self, count: u32) -> Self {
        self.permits = count;
        self
    }

    /// Declares that this process ends its work under the lock on SIGTERM, so that `leasehold break` is allowed to send
    /// SIGTERM to it where nothing else can end a hold.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("import").stops_on_term(true).blocking().acquire()?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn stops_on_term(mut self, stops: bool) -> Self {
        self.stops_on_term = stops;
        self
    }

    /// Waits until the name is granted; first come, first served where the engine supports it.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").acquire().await?;
    /// guard.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Every kind but [`is_taken`](Error::is_taken). With [`attempts`](Self::attempts), also `is_taken`, if the name is
    /// taken at the last try.
    ///
    /// # Cancel safety
    /// Dropping the future, at any point, leaves the queue and leaves nothing behind.
    pub fn acquire(&self) -> Acquire {
        self.start(None, self.tries())
    }

    /// Waits for at most `limit`.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("order/17").acquire_within(Duration::from_secs(2)).await?;
    /// let error = locks.mutex("order/17").acquire_within(Duration::ZERO).await.unwrap_err();
    /// assert!(error.is_timed_out());
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_timed_out`](Error::is_timed_out) if the name was taken during all of the wait,
    /// [`is_unreachable`](Error::is_unreachable) if the engine could not be reached when the wait ended,
    /// [`is_misconfigured`](Error::is_misconfigured) if at the end of the wait the name was taken by something that
    /// does not end by itself, else as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn acquire_within(&self, limit: Duration) -> Acquire {
        self.start(Some(limit), self.tries())
    }

    /// Tries once, without waiting.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").try_acquire().await?;
    /// assert!(locks.mutex("order/17").try_acquire().await.unwrap_err().is_taken());
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_taken`](Error::is_taken) if another client holds the name or waits for it, else as
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> Acquire {
        self.start(None, Tries::Limited(1))
    }

    /// This request for code without an executor.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// guard.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn blocking(&self) -> Blocking {
        Blocking::new(self.clone())
    }

    /// A request for another name, with the options of this one.
    pub(crate) fn for_name(&self, name: Result<Name, String>, family: Family, permits: u32) -> Self {
        Self { name, family, permits, ..self.clone() }
    }

    /// Every hold ends on the engine: none goes to the next request of this process under the id of the same claim. For
    /// an election, whose memo says by the id of its claim whether the leader that wrote it still leads.
    pub(crate) const fn without_hand_over(mut self) -> Self {
        self.hands_over = false;
        self
    }

    /// The name, checked.
    pub(crate) fn valid_name(&self) -> Result<Name, Error> {
        self.name.clone().map_err(Error::invalid)
    }

    /// The name as text, for messages; empty if it is invalid.
    pub(crate) fn name_text(&self) -> &str {
        self.name.as_ref().map_or("", |name| name.as_str())
    }

    pub(crate) const fn lease_time(&self) -> Duration {
        self.ttl
    }

    pub(crate) const fn handle(&self) -> &Arc<SharedHandle> {
        &self.handle
    }

    pub(crate) fn tries(&self) -> Tries {
        self.attempts.map_or(Tries::UntilGranted, Tries::Limited)
    }

    pub(crate) fn start(&self, limit: Option<Duration>, tries: Tries) -> Acquire {
        self.start_as(&self.name, self.family, self.permits, limit, tries)
    }

    /// Starts a request for another name, with the options of this one.
    pub(crate) fn start_as(
        &self,
        name: &Result<Name, String>,
        family: Family,
        permits: u32,
        limit: Option<Duration>,
        tries: Tries,
    ) -> Acquire {
        match self.validated_as(name, family, permits, limit) {
            Ok(spec) => Acquire::new(&self.handle, spec, limit, tries),
            Err(error) => Acquire::invalid(error),
        }
    }

    /// Checks the name and the options, as each acquisition does, for languages where a request is made long before it
    /// is used. Asks no server.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), Error> {
        self.validated(None).map(drop)
    }

    /// The options, checked before anything is sent.
    pub(crate) fn validated(&self, limit: Option<Duration>) -> Result<RequestSpec, Error> {
        self.validated_as(&self.name, self.family, self.permits, limit)
    }

    fn validated_as(
        &self,
        name: &Result<Name, String>,
        family: Family,
        permits: u32,
        limit: Option<Duration>,
    ) -> Result<RequestSpec, Error> {
        let name = name.as_ref().map_err(|reason| Error::invalid(reason.clone()))?.clone();
        let invalid =
            |problem: String| Error::invalid(format!("lock {:?}: {problem}", name.as_str())).of_name(&name);
        let range = &self.handle.profile.ttl;
        if !range.contains(&self.ttl) {
            let [ttl, min, max] = [self.ttl, *range.start(), *range.end()].map(format_duration);
            return Err(invalid(format!("ttl {ttl} is out of range: {min} to {max} are allowed")));
        }
        // The default interval is allowed for every ttl.
        let (min, max) = ((self.ttl / RENEWALS_AT_MOST).min(LONGEST_INTERVAL), self.ttl / RENEWALS_AT_LEAST);
        if let Renewal::Every(interval) = self.renewal
            && !(min..=max).contains(&interval)
        {
            let [min, max, interval, ttl] = [min, max, interval, self.ttl].map(format_duration);
            return Err(Error::misconfigured(format!(
                "lock {:?}: renew_every {interval} is out of range: with a ttl of {ttl}, {min} to {max} are allowed",
                name.as_str()
            )));
        }
        if self.max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return Err(invalid("max_hold is zero".into()));
        }
        if self.attempts == Some(0) {
            return Err(invalid("attempts is zero: at least 1 is needed".into()));
        }
        if self.max_waiting == Some(0) {
            return Err(invalid(
                "max_waiting is zero: use try_acquire for a request that does not wait".into(),
            ));
        }
        if let Some(problem) = self.pace.and_then(|pace| pace.problem(limit)) {
            return Err(invalid(format!("retry: {problem}")));
        }
        let mode = match family {
            Family::Exclusive | Family::Shared if permits != 1 => {
                return Err(invalid("permits are taken from a semaphore only: see Locks::semaphore".into()));
            }
            Family::Exclusive => Mode::Exclusive,
            Family::Shared => Mode::Shared,
            Family::Permits { limit } if permits >= 1 && permits <= limit => {
                Mode::Permits { count: permits, limit }
            }
            Family::Permits { limit } => {
                return Err(invalid(format!(
                    "{permits} of {limit} permits: the count must be from 1 to the limit"
                )));
            }
        };
        let terms = Terms {
            mode,
            ttl: self.ttl,
            renewal: self.renewal,
            owner: self.owner.clone(),
            stops_on_term: self.stops_on_term,
            hands_over: self.hands_over,
        };
        Ok(RequestSpec {
            name,
            terms,
            max_hold: self.max_hold,
            pace: self.pace,
            max_waiting: self.max_waiting,
            of_set: None,
        })
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("name", &self.name)
            .field("family", &self.family)
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
