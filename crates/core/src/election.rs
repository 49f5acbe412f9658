//! Leader election: an exclusive hold of a name, with a value that its holder publishes in the memo of the name.

mod campaign;
pub(crate) mod candidate;
pub(crate) mod leading;
pub(crate) mod watch;

use std::{fmt, time::Duration};

use crate::{
    Candidate, Error, Leader, LeaderWatch, Locks, MAX_MEMO_KEEP, MemoKind, NewMemo, Pace, Request,
    memo::check_memos,
};

/// A leader election, made by [`Locks::election`]. Nothing happens before one of its methods is awaited. It can be used
/// any number of times.
///
/// An election is an exclusive lock on its name, whose holder is the leader:
///
/// - **The term of a leader is the token of its hold.** So every later leader has a larger term, and the fences of
///   locks refuse what an earlier leader writes. Receivers of a leader's orders do the same: they refuse a smaller
///   term.
/// - **A leader publishes a [`value`](Self::value)**, for instance its address, which everyone can
///   [observe](Self::observe) together with the term, without being a candidate.
/// - **A leader that [resigns](crate::Leading::resign), or is dropped, hands over at once.** After a crash the next
///   candidate waits until the lease has run out (see [`ttl`](Self::ttl)), or until the engine notices the end of the
///   process.
/// - A mutex and an election of the same name exclude each other. Candidates wait first come, first served where the
///   engine does.
///
/// Between two leaders observers find the election *vacant*: the former leader does not hold the name any more, and the
/// next one has not published yet, which is the first thing that it does. No observer sees the value of one leader with
/// the term of another.
///
/// **An engine without memos** ([`Profile::no_memos`](crate::Profile::no_memos) says why) elects leaders without a
/// value. There, an election with a value, [`Leading::proclaim`](crate::Leading::proclaim),
/// [`observe`](Self::observe) and [`leader`](Self::leader) are refused before anything is sent.
///
/// ```
/// # fn main() -> Result<(), leasehold::Error> {
/// # pollster::block_on(async {
/// # let locks = leasehold::Locks::connect("memory:election-type")?;
/// let scheduler = locks.election("scheduler").value("10.0.0.7:8080");
/// let leading = scheduler.campaign().await?;
///
/// // Elsewhere, for instance in a worker that looks for the scheduler:
/// let leader = locks.election("scheduler").leader().await?.expect("there is one");
/// assert_eq!(leader.value.as_deref(), Some("10.0.0.7:8080"));
/// assert_eq!(leader.term, leading.term());
///
/// leading.resign().await?;
/// assert_eq!(locks.election("scheduler").leader().await?, None);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
#[must_use = "an election does nothing until one of its methods is awaited"]
pub struct Election {
    locks: Locks,
    request: Request,
    /// The label of the owner: each campaign is an owner of its own, so that no two share a hold.
    owner: Option<String>,
    value: Option<String>,
}

impl Locks {
    /// The leader election of this name: see [`Election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        let request = self.mutex(name).without_hand_over();
        Election { locks: self.clone(), request, owner: None, value: None }
    }
}

impl Election {
    /// What a leader publishes: a text of 1 to 65,536 bytes, for instance its address. Without a value, observers see
    /// the term alone.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:election-value")?;
    /// let leading = locks.election("scheduler").value("10.0.0.7:8080").campaign_blocking()?;
    /// # leading.resign_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// The lease time of the leader: how long the others wait for the next leader after a crash. See [`Request::ttl`].
    /// Observers that cannot read for so long, and for at least 6 s, are [unsure](crate::Leadership::Unsure).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with_options(|request| request.ttl(ttl))
    }

    /// How often the lease is renewed: see [`Request::renew_every`].
    pub fn renew_every(self, interval: Duration) -> Self {
        self.with_options(|request| request.renew_every(interval))
    }

    /// The longest time for which one leader leads: see [`Request::max_hold`].
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with_options(|request| request.max_hold(max_hold))
    }

    /// How often a waiting candidate asks the engine: see [`Request::retry`].
    pub fn retry(self, pace: Pace) -> Self {
        self.with_options(|request| request.retry(pace))
    }

    /// How many requests of this `Locks` may wait for this name: see [`Request::max_waiting`].
    pub fn max_waiting(self, requests: usize) -> Self {
        self.with_options(|request| request.max_waiting(requests))
    }

    /// Declares that this process ends its work on SIGTERM: see [`Request::stops_on_term`].
    pub fn stops_on_term(self, stops: bool) -> Self {
        self.with_options(|request| request.stops_on_term(stops))
    }

    /// The label of the candidate for operators; `user@host:pid` by default. A label alone: two campaigns never share a
    /// hold.
    pub fn owner(mut self, label: &str) -> Self {
        self.owner = Some(label.to_owned());
        self
    }

    fn with_options(mut self, change: impl FnOnce(Request) -> Request) -> Self {
        self.request = change(self.request);
        self
    }

    /// A candidate that campaigns again whenever it has lost the lead, and reports its role: see [`Candidate`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:stand")?;
    /// use leasehold::Role;
    /// let mut candidate = locks.election("scheduler").value("10.0.0.7:8080").stand()?;
    /// let token = loop {
    ///     if let Role::Leader { token } = candidate.changed().await? {
    ///         break token;
    ///     }
    /// };
    /// println!("leader in term {token}");
    /// candidate.resign().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) and [`is_invalid`](Error::is_invalid) as
    /// [`campaign`](Self::campaign); [`ErrorKind::Closed`](crate::ErrorKind::Closed) and
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn stand(&self) -> Result<Candidate, Error> {
        Candidate::new(self.clone())
    }

    /// Follows who leads, without being a candidate: see [`LeaderWatch`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:observe")?;
    /// use leasehold::Leadership;
    /// let mut watch = locks.election("scheduler").observe()?;
    /// assert_eq!(watch.changed().await?, Leadership::Vacant);
    /// let leading = locks.election("scheduler").value("10.0.0.7:8080").campaign().await?;
    /// let Leadership::Held(leader) = watch.changed().await? else { panic!("there is a leader") };
    /// assert_eq!((leader.value.as_deref(), leader.term), (Some("10.0.0.7:8080"), leading.term()));
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos; [`is_invalid`](Error::is_invalid)
    /// for an invalid name; [`ErrorKind::Closed`](crate::ErrorKind::Closed) and
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn observe(&self) -> Result<LeaderWatch, Error> {
        LeaderWatch::new(&self.locks, &self.request)
    }

    /// The leader now; `None` if the election is vacant. One request. Cancel safe.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:leader")?;
    /// assert_eq!(locks.election("scheduler").leader().await?, None);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos (then nothing was sent), or if a
    /// memo of another kind is stored under the name; [`is_invalid`](Error::is_invalid) for an invalid name; the
    /// engine's error.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let name = self.request.valid_name()?;
        let memo = self.locks.read_memo(name.as_str()).await?;
        memo.map_or(Ok(None), |memo| Leader::of_memo(&self.locks, &name, memo))
    }

    /// [`leader`](Self::leader) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`leader`](Self::leader).
    #[track_caller]
    pub fn leader_blocking(&self) -> Result<Option<Leader>, Error> {
        self.request.handle().block_on(self.leader())?
    }

    /// What a leader publishes at the beginning of its term; `None` on an engine that stores no memos.
    fn publication(&self) -> Result<Option<NewMemo>, Error> {
        let name = self.request.valid_name()?;
        match check_memos(self.locks.shared(), &name) {
            Ok(()) => value_memo(self.value.as_deref()).map(Some).map_err(|error| error.of_name(&name)),
            Err(_) if self.value.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) const fn locks(&self) -> &Locks {
        &self.locks
    }
}

/// The memo of a leader with this value. It is kept for as long as any memo, because nothing writes it again while the
/// leader leads.
fn value_memo(value: Option<&str>) -> Result<NewMemo, Error> {
    if value.is_some_and(str::is_empty) {
        return Err(Error::invalid("the value of a leader is empty: give a text, or no value"));
    }
    NewMemo::new(MemoKind::ELECTION, value.unwrap_or_default(), MAX_MEMO_KEEP)
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("request", &self.request).finish_non_exhaustive()
    }
}
