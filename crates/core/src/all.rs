//! A request for several names: all or none.

use std::{fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    AcquireAll, BlockingAll, Error, Name, Owner, Pace, Request,
    driver::keeper::NameSet,
    driver::local::{Contention, RequestSpec, Tries},
    driver::shared::SharedHandle,
    request::Family,
};

/// The most names of one request, so that it asks for no more than one request to a server can carry.
pub const MAX_NAMES_AT_ONCE: usize = 128;

/// A request for several names, made by [`Locks::all`](crate::Locks::all): all of them are granted, or none. Nothing
/// happens before one of the `acquire` methods is awaited. A request can be used any number of times.
///
/// - **No deadlock.** The names are acquired in the byte order of their texts, in whatever order they were added. So
///   two such requests never wait for each other. A program that waits for a name while it holds another one by a
///   request of its own has to keep the same order: waiting for a name that comes earlier can deadlock. A request made
///   by [`Locks::all`](crate::Locks::all) refuses such a wait if it has the same [`owner`](Self::owner) as the hold. A
///   request of [`Locks::mutex`](crate::Locks::mutex), [`rw`](crate::Locks::rw) or
///   [`semaphore`](crate::Locks::semaphore) is not checked, whatever its owner.
/// - **One step** where the engine can: one request to the server takes all names if they are free. To wait, or on an
///   engine that takes one name at a time, one request follows another, and the earlier holds are renewed meanwhile.
///   The waits are first come, first served for each name alone.
/// - **All valid.** If a hold is lost while the request waits for a later name, all holds are released and the request
///   begins again. A hold that has ended is never returned. With [`renew(false)`](Self::renew) the first holds lapse
///   during a wait that is longer than the ttl, so such a request may begin again many times.
/// - **Nothing remains** after an error or a cancelled future: every name is released, also those whose request was not
///   answered.
/// - **A name that is added twice** is acquired once, in the stronger mode: exclusive rather than shared, and the
///   larger count of permits. Two limits, or a lock and permits, for one name are an error.
///
/// Tokens of different names cannot be compared: let each resource reject old tokens of its own name.
///
/// ```
/// # let locks = leasehold::Locks::connect("memory:")?;
/// use std::time::Duration;
/// let transfer = locks.all().mutex("account/4").mutex("account/17").read("rates").permits("transfers", 1, 8);
/// let guards = transfer.ttl(Duration::from_secs(10)).blocking().acquire_within(Duration::from_secs(2))?;
/// let names: Vec<_> = guards.iter().map(|guard| guard.name().as_str()).collect();
/// assert_eq!(names, ["account/17", "account/4", "rates", "transfers"]);
/// guards.release_blocking()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a request does nothing until it is acquired"]
pub struct All {
    /// The options, which all names share; its own name is not used.
    options: Request,
    entries: SmallVec<[Entry; 1]>,
}

/// One name of the request, as it was added.
#[derive(Clone)]
struct Entry {
    /// The name, or why it is invalid: reported when the request is used.
    name: Result<Name, String>,
    family: Family,
    permits: u32,
}

impl All {
    pub(crate) fn new(handle: &Arc<SharedHandle>) -> Self {
        // The reason is never shown. An empty one is cloned without an allocation.
        let options = Request::new(handle, Err(Error::invalid("")), Family::Exclusive);
        Self { options, entries: SmallVec::new() }
    }

    /// Adds a name that no other holder may have: as [`Locks::mutex`](crate::Locks::mutex), and as the write mode of
    /// [`Locks::rw`](crate::Locks::rw).
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("house/1").mutex("house/2").blocking().acquire()?;
    /// assert!(locks.mutex("house/2").blocking().try_acquire().unwrap_err().is_taken());
    /// # drop(guards);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn mutex(self, name: impl AsRef<str>) -> Self {
        self.with(name.as_ref(), Family::Exclusive, 1)
    }

    /// Adds a name that readers share: as the read mode of [`Locks::rw`](crate::Locks::rw).
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("invoice/9").read("tariff").blocking().acquire()?;
    /// let beside = locks.rw("tariff").read().blocking().acquire()?;
    /// # drop((guards, beside));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn read(self, name: impl AsRef<str>) -> Self {
        self.with(name.as_ref(), Family::Shared, 1)
    }

    /// Adds `count` of the `limit` permits of a name: as [`Locks::semaphore`](crate::Locks::semaphore).
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("film/3").permits("encoders", 2, 3).blocking().acquire()?;
    /// let one_more = locks.semaphore("encoders", 3).blocking().try_acquire()?;
    /// # drop((guards, one_more));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn permits(self, name: impl AsRef<str>, count: u32, limit: u32) -> Self {
        self.with(name.as_ref(), Family::Permits { limit }, count)
    }

    fn with(mut self, name: &str, family: Family, permits: u32) -> Self {
        let name = Name::new(name).map_err(|error| error.to_string());
        self.entries.push(Entry { name, family, permits });
        self
    }

    /// The lease time of every hold: see [`Request::ttl`].
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with_options(|options| options.ttl(ttl))
    }

    /// Whether the leases are renewed in the background: see [`Request::renew`].
    pub fn renew(self, renew: bool) -> Self {
        self.with_options(|options| options.renew(renew))
    }

    /// How often the leases are renewed: see [`Request::renew_every`].
    pub fn renew_every(self, interval: Duration) -> Self {
        self.with_options(|options| options.renew_every(interval))
    }

    /// The longest time for which the guards may use their holds. It counts from the moment at which all names are
    /// held. See [`Request::max_hold`].
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with_options(|options| options.max_hold(max_hold))
    }

    /// Tries at most `attempts` times to take all names, instead of waiting: see [`Request::attempts`]. An error that a
    /// further try cannot mend, such as a wrong kind of lock, ends the tries.
    pub fn attempts(self, attempts: u32) -> Self {
        self.with_options(|options| options.attempts(attempts))
    }

    /// How often a waiting request asks the engine: see [`Request::retry`].
    pub fn retry(self, pace: Pace) -> Self {
        self.with_options(|options| options.retry(pace))
    }

    /// How many requests of this `Locks` may wait for one of the names when this request begins to wait for it: see
    /// [`Request::max_waiting`].
    pub fn max_waiting(self, requests: usize) -> Self {
        self.with_options(|options| options.max_waiting(requests))
    }

    /// The owner of every hold: see [`Request::owner`]. With an owner, a request that may wait for a name while this
    /// owner holds a later one is refused with [`is_invalid`](Error::is_invalid), also if the name is free. For this,
    /// each such request looks, when it begins, through the names that this process holds. A try is not refused.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let owner = leasehold::Owner::new("importer");
    /// let held = locks.mutex("m/2").owner(owner.clone()).blocking().acquire()?;
    /// let earlier = locks.all().mutex("m/1").owner(owner.clone());
    /// assert!(earlier.blocking().acquire().unwrap_err().is_invalid());
    /// let later = locks.all().mutex("m/2").mutex("m/3").owner(owner).blocking().acquire()?;
    /// assert_eq!(later.token("m/2"), Some(held.token()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn owner(self, owner: impl Into<Owner>) -> Self {
        self.with_options(|options| options.owner(owner))
    }

    /// Declares that this process ends its work on SIGTERM: see [`Request::stops_on_term`].
    pub fn stops_on_term(self, stops: bool) -> Self {
        self.with_options(|options| options.stops_on_term(stops))
    }

    fn with_options(mut self, change: impl FnOnce(Request) -> Request) -> Self {
        self.options = change(self.options);
        self
    }

    /// Waits until every name is granted.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("order/17").mutex("stock/4711").acquire().await?;
    /// guards.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`Request::acquire`], for one of the names. [`is_invalid`](Error::is_invalid) also if there is no name,
    /// more than [`MAX_NAMES_AT_ONCE`], or a name with two limits or with a lock and permits, and if the
    /// [`owner`](Self::owner) holds a name that comes later.
    ///
    /// # Cancel safety
    /// Dropping the future, at any point, leaves the queues and leaves nothing behind.
    pub fn acquire(&self) -> AcquireAll {
        self.start(None, self.options.tries())
    }

    /// Waits for at most `limit`, for all names together.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let held = locks.mutex("page/2").acquire().await?;
    /// let error = locks.all().mutex("page/1").mutex("page/2").acquire_within(Duration::ZERO).await.unwrap_err();
    /// assert!(error.is_timed_out() && error.name().is_some_and(|name| name.as_str() == "page/2"));
    /// # drop(held);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Those of [`Request::acquire_within`], for one of the names, else as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn acquire_within(&self, limit: Duration) -> AcquireAll {
        self.start(Some(limit), self.options.tries())
    }

    /// Tries once, without waiting.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let held = locks.mutex("seat/2").acquire().await?;
    /// assert!(locks.all().mutex("seat/1").mutex("seat/2").try_acquire().await.unwrap_err().is_taken());
    /// assert!(locks.mutex("seat/1").try_acquire().await?.check(), "the other name is free");
    /// # drop(held);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_taken`](Error::is_taken) if another client holds one of the names or waits for it;
    /// [`is_lost`](Error::is_lost) if the hold of one name ended before the last name was granted; else as
    /// [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> AcquireAll {
        self.start(None, Tries::Limited(1))
    }

    /// This request for code without an executor.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("left").mutex("right").blocking().acquire()?;
    /// guards.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn blocking(&self) -> BlockingAll {
        BlockingAll(self.clone())
    }

    pub(crate) const fn handle(&self) -> &Arc<SharedHandle> {
        self.options.handle()
    }

    fn start(&self, limit: Option<Duration>, tries: Tries) -> AcquireAll {
        // One name needs no more than a request of its own.
        if let [Entry { name, family, permits }] = &self.entries[..] {
            return AcquireAll::one(self.options.start_as(name, *family, *permits, limit, tries));
        }
        let requests = match self.requests() {
            Ok(requests) => requests,
            Err(error) => return AcquireAll::invalid(error),
        };
        if let [request] = &requests[..] {
            return AcquireAll::one(request.start(limit, tries));
        }
        let mut set = NameSet { specs: Vec::with_capacity(requests.len()), max_hold: None, pace: None };
        for request in requests {
            match request.validated(limit) {
                Ok(spec) => {
                    (set.max_hold, set.pace) = (spec.max_hold, spec.pace);
                    let of_set = Some(Contention::default());
                    set.specs.push(RequestSpec { of_set, max_hold: None, ..spec });
                }
                Err(error) => return AcquireAll::invalid(error),
            }
        }
        AcquireAll::set(self.handle(), set, limit, tries)
    }

    /// One request for each name, in byte order.
    fn requests(&self) -> Result<SmallVec<[Request; 1]>, Error> {
        if self.entries.is_empty() {
            return Err(Error::invalid("no name is given: add at least one to the request"));
        }
        let mut merged: SmallVec<[Entry; 1]> = SmallVec::new();
        let mut sorted = self.entries.clone();
        sorted.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in sorted {
            match merged.last_mut().filter(|last| last.name == entry.name) {
                Some(last) => last.merge(&entry)?,
                None => merged.push(entry),
            }
        }
        if merged.len() > MAX_NAMES_AT_ONCE {
            return Err(Error::invalid(format!(
                "{} names are given: at most {MAX_NAMES_AT_ONCE} are allowed in one request",
                merged.len()
            )));
        }
        let request = |entry: Entry| self.options.for_name(entry.name, entry.family, entry.permits);
        Ok(merged.into_iter().map(request).collect())
    }
}

impl Entry {
    /// Adds the same name once more: the stronger of both modes.
    fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.family = match (self.family, other.family) {
            (Family::Shared, Family::Shared) => Family::Shared,
            (Family::Exclusive | Family::Shared, Family::Exclusive | Family::Shared) => Family::Exclusive,
            (Family::Permits { limit }, Family::Permits { limit: other }) if limit == other => self.family,
            _ => {
                let name = self.name.as_ref().map_or("", Name::as_str);
                return Err(Error::invalid(format!(
                    "lock {name:?}: given twice with different kinds or limits: one name has one kind of lock and one \
                     limit"
                )));
            }
        };
        self.permits = self.permits.max(other.permits);
        Ok(())
    }
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| (&entry.name, entry.family))).finish()
    }
}
