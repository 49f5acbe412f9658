//! A candidate that stays in an election, and reports whether it leads or follows.

use std::fmt;

use crate::{BoxFuture, Election, Error, LeaderWatch, Leadership, Leading, Token, memo::check_memos};

/// The role of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// It leads, in the term of this token.
    Leader {
        /// The term.
        token: Token,
    },
    /// It waits.
    Follower {
        /// What the leader published; `None` if no leader is known, or it published nothing.
        leader: Option<String>,
    },
}

/// A candidate that stays in an election: it campaigns, leads, and after a loss campaigns again at the end of the
/// queue. From [`Election::stand`]. Dropping it leaves the election.
///
/// The campaign makes progress only while [`changed`](Self::changed) is awaited. So a service awaits it in a loop, and
/// starts and stops the work of the leader by the role.
///
/// ```
/// # pollster::block_on(async {
/// # let locks = leasehold::Locks::connect("memory:candidate")?;
/// use leasehold::Role;
/// let mut candidate = locks.election("scheduler").value("10.0.0.7:8080").stand()?;
/// # let mut rounds = 0;
/// loop {
///     match candidate.changed().await? {
///         Role::Leader { token } => println!("start the work of the leader, with the term {token}"),
///         Role::Follower { leader } => println!("stop that work; the leader is {leader:?}"),
///         _ => {}
///     }
/// #   rounds += 1;
/// #   if rounds == 1 { break }
/// }
/// candidate.resign().await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
pub struct Candidate {
    election: Election,
    state: State,
    /// Who leads while this candidate follows; `None` on an engine that stores no memos.
    watch: Option<LeaderWatch>,
    /// What was returned last.
    last: Option<Role>,
}

/// Whether the candidate waits or leads.
enum State {
    /// The campaign begins at the next call.
    Idle,
    Campaigning(BoxFuture<'static, Result<Leading, Error>>),
    Leading(Leading),
}

impl Candidate {
    pub(super) fn new(election: Election) -> Result<Self, Error> {
        let name = election.request.valid_name()?;
        election.publication()?;
        let has_memos = check_memos(election.locks().shared(), &name).is_ok();
        let watch = if has_memos { Some(election.observe()?) } else { None };
        Ok(Self { election, state: State::Idle, watch, last: None })
    }

    /// The role, as soon as it differs from what this candidate returned last. A loss of the lead is returned at the
    /// moment at which [`Guard::lost`](crate::Guard::lost) resolves; stop the work of the leader then. The first role
    /// may be `Follower { leader: None }`, also if there is no other candidate: until the engine has answered.
    ///
    /// # Cancel safety
    /// Dropping the future keeps the place in the queue and the lead.
    ///
    /// # Errors
    /// Those of [`Election::campaign`] and of [`LeaderWatch::changed`]. After an error of the campaign this candidate
    /// is out of the queue; the next call campaigns again, so pause before it.
    pub async fn changed(&mut self) -> Result<Role, Error> {
        loop {
            let role = self.next_role().await?;
            if self.last.as_ref() != Some(&role) {
                self.last = Some(role.clone());
                return Ok(role);
            }
        }
    }

    /// The lead, while this candidate has it: see [`Leading`]. A lead that was lost is there until the next
    /// [`changed`](Self::changed).
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:candidate-leading")?;
    /// let mut candidate = locks.election("scheduler").stand()?;
    /// while candidate.leading().is_none() {
    ///     candidate.changed().await?;
    /// }
    /// candidate.leading().expect("it leads").proclaim("10.0.0.7:8080").await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub const fn leading(&self) -> Option<&Leading> {
        match &self.state {
            State::Leading(leading) => Some(leading),
            State::Idle | State::Campaigning(_) => None,
        }
    }

    /// Leaves the election. A leader resigns and waits for the engine's answer: see [`Leading::resign`].
    ///
    /// # Errors
    /// As [`Leading::resign`]; none for a candidate that does not lead.
    pub async fn resign(self) -> Result<(), Error> {
        match self.state {
            State::Leading(leading) => leading.resign().await,
            State::Idle | State::Campaigning(_) => Ok(()),
        }
    }

    /// Waits for the next event of this candidate, and returns its role then.
    async fn next_role(&mut self) -> Result<Role, Error> {
        if let State::Leading(leading) = &self.state {
            let token = leading.term();
            if self.last == Some(Role::Leader { token }) {
                leading.lost().await;
                self.state = State::Idle;
                return Ok(Role::Follower { leader: None });
            }
            return Ok(Role::Leader { token });
        }
        if let State::Idle = self.state {
            self.state = State::Campaigning(Box::pin(self.election.campaign()));
        }
        let State::Campaigning(campaign) = &mut self.state else { unreachable!("it was set above") };
        // The campaign is polled first: a watch that is ready cannot keep it from its grant.
        let ended = campaign.as_mut();
        let seen = async {
            match &mut self.watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            campaign = ended => {
                self.state = State::Idle;
                let leading = campaign?;
                let token = leading.term();
                self.state = State::Leading(leading);
                Ok(Role::Leader { token })
            }
            seen = seen => Ok(Role::Follower { leader: published(seen?) }),
        }
    }
}

/// What a leader published, for a follower.
fn published(seen: Leadership) -> Option<String> {
    match seen {
        Leadership::Held(leader) => leader.value,
        Leadership::Vacant | Leadership::Unsure => None,
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("election", &self.election)
            .field("role", &self.last)
            .finish_non_exhaustive()
    }
}
