//! Claims and renewals of one client: one algorithm for every layout.
//!
//! A claim is one transaction in two round trips. The first inserts the row or takes it over, and reads what is there
//! now with a token. The second writes the token into the owner text and commits. The commit is the only request that
//! grants. It is sent only while the row is locked by this transaction, and only by a claim that still wants it. So a
//! late commit cannot come after a release (R9): a release of a claim whose commit was not answered waits for the lock
//! of that transaction, and then sees what it did. A claim that is dropped leaves its commit to a task, so that the
//! commit is answered all the same (see [`Commit`]).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use leasehold_core::{
    Answer, Claim, ClaimId, Clock, EngineError, Env, Fault, Grant, Hint, Hold, How, InFlight, Lineage, Loss,
    Mode, Name, Previous, Renewed, TimeLeft, Token,
};

use super::{
    commit::{Commit, Outcome},
    format::Key,
    owner_text::{OwnerText, State},
    pool::Pool,
    row::StoredRow,
    statements::Reading,
    store::{Access, Connection, Connector, Rows, Step},
};
use crate::{
    client::{lock_mutex, within_request_timeout},
    database::Failed,
};

/// How often a claim is tried that certainly had no effect, because its connection broke or two transactions waited for
/// each other.
const TRIES: usize = 3;
/// The connection on which all claims count as sent, for [`InFlight`].
const CLAIM_CONNECTION: u64 = 0;
/// How long to wait before asking again for a name that has just changed hands.
const SOON: std::time::Duration = std::time::Duration::from_millis(50);
/// The shortest pause before asking again for a name that a time frees.
const LEAST_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// A hold of this client, or a claim whose commit was sent.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) name: Name,
    /// What the row says in its owner column.
    pub(super) owner: OwnerText,
    /// What tells the row of this hold from others, where the row has no owner.
    pub(super) identity: String,
    pub(super) token: Token,
    pub(super) commit: Commit,
}

/// One client of a table.
pub(crate) struct Client {
    pub(super) pool: Arc<Pool>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) in_flight: InFlight,
    /// The holds of this client, and its claims whose commit was sent, until they are released.
    pub(super) own: Mutex<HashMap<ClaimId, Own>>,
}

/// What the first round trip of a claim found.
enum Claimed {
    /// The row is locked by the transaction, which is still open.
    Written { identity: String, token: Token },
    /// Somebody else holds; nothing was written.
    Taken(Hint),
}

impl Client {
    /// A client with `connections` connections at most.
    pub(crate) fn new(connector: Box<dyn Connector>, env: &Env, connections: usize) -> Self {
        let (in_flight, own) = Default::default();
        let clock = Arc::clone(&env.clock);
        let pool = Arc::new(Pool::new(connector, Arc::clone(&clock), connections));
        Self { pool, clock, in_flight, own }
    }

    /// What this client knows of a claim whose commit it has sent.
    pub(super) fn own(&self, id: ClaimId, name: &Name) -> Option<Own> {
        lock_mutex(&self.own).get(&id).filter(|own| own.name == *name).cloned()
    }

    pub(super) fn forget(&self, id: ClaimId) {
        lock_mutex(&self.own).remove(&id);
    }

    /// The verb `claim`.
    pub(crate) async fn claim(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        if claim.mode != Mode::Exclusive {
            let why = "tables of other programs have exclusive locks only: no shared locks and no permits";
            return Err(EngineError::new(Fault::Misconfigured, why));
        }
        let now = self.clock.now();
        if self.in_flight.is_released(claim.id, now) {
            return Ok(Answer::Gone);
        }
        // A claim that waits has nothing in the table.
        let own = self.own(claim.id, &claim.name);
        if how == How::Ask && own.is_none() {
            return Ok(Answer::Gone);
        }
        let was_unsettled = self.in_flight.is_unsettled(claim.id, now);
        let in_flight = self.in_flight.start(claim.id, CLAIM_CONNECTION, now);
        if let Some(own) = own {
            let repeated = self.repeat(claim, &own).await?;
            match repeated {
                Some(answer) => {
                    self.in_flight.settle(claim.id);
                    in_flight.complete();
                    return Ok(answer);
                }
                // The commit that was not answered did nothing, and its transaction has ended.
                None if how == How::Create && was_unsettled => self.in_flight.settle(claim.id),
                None => {
                    in_flight.complete();
                    return Ok(Answer::Gone);
                }
            }
        }
        let answer = self.create(claim).await?;
        in_flight.complete();
        Ok(answer)
    }

    /// Answers a repeated claim that holds, with a lease of the full ttl from now; `None` if it does not hold.
    async fn repeat(&self, claim: &Claim, own: &Own) -> Result<Option<Answer>, EngineError> {
        let (id, name) = (claim.id, claim.name.clone());
        let hold = Hold { id, name, mode: claim.mode, token: own.token, ttl: claim.ttl };
        match self.renew_one(&hold).await {
            Renewed::Extended { ttl, .. } => Ok(Some(Answer::Held(grant(own.token, ttl)))),
            Renewed::Unknown(error) => Err(error),
            Renewed::Lost(_) => Ok(None),
        }
    }

    /// Claims the name, and tries again if that certainly had no effect.
    async fn create(&self, claim: &Claim) -> Result<Answer, EngineError> {
        let mut tries = 1..TRIES;
        loop {
            match within_request_timeout(self.try_create(claim)).await {
                Err(failed) if failed.fault == Fault::Retry && tries.next().is_some() => {
                    self.pool.close_idle()
                }
                answer => return Ok(answer?),
            }
        }
    }

    async fn try_create(&self, claim: &Claim) -> Result<Answer, Failed> {
        let row_wait = self.pool.row_wait().await;
        let mut borrowed = self.pool.borrow(Access::Lock).await?;
        let key = borrowed.conn.format().key_of(&claim.name)?;
        let owner = OwnerText::claiming(claim.id, &claim.owner);
        match first_round(&mut *borrowed.conn, &key, claim, &owner).await? {
            Claimed::Taken(hint) => {
                borrowed.conn.run(&[Step::Rollback]).await?;
                borrowed.give_back();
                Ok(Answer::Taken(hint))
            }
            Claimed::Written { identity, token } => {
                let format = borrowed.conn.format();
                let (room, ttl) = (format.owner_room(), format.layout.has_time().then_some(claim.ttl));
                let granted = owner.with_token(token.number);
                let marked = format.change_owner(&key, &owner.text(room), &granted.text(room));
                let steps: Vec<Step> = marked.map(Step::Run).into_iter().chain([Step::Commit]).collect();
                let (committing, commit) = Commit::begin();
                let own = Own { name: claim.name.clone(), owner: granted, identity, token, commit };
                if !self.announce(claim.id, own) {
                    borrowed.conn.run(&[Step::Rollback]).await?;
                    borrowed.give_back();
                    return Ok(Answer::Gone);
                }
                if let Err(failed) = committing.run(borrowed, row_wait, steps).await {
                    if failed.fault != Fault::Unknown {
                        self.forget(claim.id);
                    }
                    return Err(failed);
                }
                Ok(Answer::Held(grant(token, ttl)))
            }
        }
    }

    /// Makes a claim known whose commit is sent next, so that an unanswered commit can be asked for, and released.
    /// False if the claim was released meanwhile: its commit must not be sent, because the release did not wait for it.
    fn announce(&self, id: ClaimId, own: Own) -> bool {
        // A release marks the claim as released before it takes this lock.
        let mut known = lock_mutex(&self.own);
        let is_wanted = !self.in_flight.is_released(id, self.clock.now());
        if is_wanted {
            known.insert(id, own);
        }
        is_wanted
    }

    /// The verb `renew`.
    pub(crate) async fn renew(&self, holds: &[Hold]) -> Vec<Renewed> {
        futures_util::future::join_all(holds.iter().map(|hold| self.renew_one(hold))).await
    }

    /// Extends one hold. Where holds have no time, checks that the row is still ours.
    async fn renew_one(&self, hold: &Hold) -> Renewed {
        let Some(own) = self.own(hold.id, &hold.name).filter(|own| own.token == hold.token) else {
            return Renewed::Lost(Loss::Gone);
        };
        let mut extended = within_request_timeout(self.extend(hold, &own)).await;
        if matches!(&extended, Err(failed) if matches!(failed.fault, Fault::Retry | Fault::Unknown)) {
            // The connection broke, perhaps long ago. A renewal can be repeated.
            self.pool.close_idle();
            extended = within_request_timeout(self.extend(hold, &own)).await;
        }
        match extended {
            Ok(Ok(ttl)) => Renewed::Extended { ttl, left: TimeLeft::Unknown },
            Ok(Err(loss)) => {
                // The row of a hold that was broken or lapsed is still there, for the release.
                if loss == Loss::Gone {
                    self.forget(hold.id);
                }
                Renewed::Lost(loss)
            }
            Err(failed) => Renewed::Unknown(failed.into()),
        }
    }

    async fn extend(
        &self,
        hold: &Hold,
        own: &Own,
    ) -> Result<Result<Option<std::time::Duration>, Loss>, Failed> {
        let is_unsettled = match own.commit.outcome().await {
            Outcome::Done => false,
            Outcome::Failed => return Ok(Err(Loss::Gone)),
            Outcome::Unknown => self.in_flight.is_unsettled(hold.id, self.clock.now()),
        };
        let mut borrowed = self.pool.borrow(Access::Lock).await?;
        let format = borrowed.conn.format();
        let key = format.key_of(&hold.name)?;
        let mut steps = if is_unsettled { settling(&*borrowed.conn, &key, own) } else { Vec::new() };
        steps.push(Step::Begin);
        steps.extend(format.extend(&key, &own.owner.text(format.owner_room()), hold.ttl).map(Step::Run));
        steps.extend([Step::Run(format.read(&key, Reading::WithServer)), Step::Commit]);
        let rows = borrowed.conn.run(&steps).await?.pop().unwrap_or_default();
        let format = borrowed.conn.format();
        let ttl = format.layout.has_time().then_some(hold.ttl);
        let is_known = format.tells_rows_apart() || !is_unsettled;
        let answer = match rows.first() {
            None => Err(Loss::Gone),
            Some(row) => {
                let (row, more) = StoredRow::read(row)?;
                let state = if is_known { own.state_in(&row) } else { None };
                match state {
                    _ if lineage(&*borrowed.conn, more) != hold.token.lineage => Err(Loss::Gone),
                    Some(State::Held) if !row.is_free => Ok(ttl),
                    Some(State::Held) => Err(Loss::Lapsed),
                    Some(State::Broken) => Err(Loss::Broken),
                    Some(State::Released) | None => Err(Loss::Gone),
                }
            }
        };
        borrowed.give_back();
        Ok(answer)
    }
}

impl Own {
    /// The state in which this hold is in the row; `None` if the row is of another hold.
    pub(super) fn state_in(&self, row: &StoredRow) -> Option<State> {
        match row.ours() {
            Some(ours) if (ours.id, ours.token) == (self.owner.id, self.owner.token) => Some(ours.state),
            Some(_) => None,
            // A row without an owner.
            None => (row.owner.is_none() && row.identity == self.identity).then_some(State::Held),
        }
    }
}

/// The first round trip of a claim.
async fn first_round(
    conn: &mut dyn Connection,
    key: &Key,
    claim: &Claim,
    owner: &OwnerText,
) -> Result<Claimed, Failed> {
    let format = conn.format();
    let text = owner.text(format.owner_room());
    let mut steps = vec![Step::Begin, Step::Run(format.insert(key, &text, claim.ttl))];
    steps.extend(format.take(key, &text, claim.ttl).map(Step::Run));
    steps.push(Step::Run(format.read_claimed(key, &text)));
    let rows: Rows = conn.run(&steps).await?.pop().unwrap_or_default();
    // The row was inserted, or deleted by a release, in this moment.
    let Some(row) = rows.first() else { return Ok(Claimed::Taken(Hint::ask_in(SOON))) };
    let (row, more) = StoredRow::read(row)?;
    let [is_mine, token, server] = more else { return Err(unreadable_token()) };
    if is_mine.as_deref() != Some("1") {
        let ask_in = if row.is_free { Some(SOON) } else { row.free_in() };
        return Ok(Claimed::Taken(Hint {
            ask_in: ask_in.map(|ask_in| ask_in.max(LEAST_PAUSE)),
            ..Hint::default()
        }));
    }
    let number = token.as_deref().and_then(|digits| digits.parse().ok()).ok_or_else(unreadable_token)?;
    let lineage = conn.lineage(server.as_deref().unwrap_or_default());
    Ok(Claimed::Written { identity: row.identity, token: Token { lineage, number } })
}

/// The steps that wait until a claim's transaction whose commit was not answered has ended: an insert of the same key
/// waits for a transaction that inserted it, and a read with a lock for one that changed it. Both are rolled back.
pub(super) fn settling(conn: &dyn Connection, key: &Key, own: &Own) -> Vec<Step> {
    let format = conn.format();
    let text = own.owner.in_state(State::Released).text(format.owner_room());
    let insert = format.wait_for_insert(key, &text);
    let read = format.read(key, Reading::Locking);
    vec![Step::Begin, Step::Run(insert), Step::Run(read), Step::Rollback]
}

/// The lineage, from the columns behind those of the row.
fn lineage(conn: &dyn Connection, more: &[Option<String>]) -> Lineage {
    conn.lineage(more.first().and_then(Option::as_deref).unwrap_or_default())
}

/// A grant of one token; how the previous hold ended is in no column.
const fn grant(token: Token, ttl: Option<std::time::Duration>) -> Grant {
    Grant { token, tokens: 1, ttl, previous: Previous::Unknown }
}

fn unreadable_token() -> Failed {
    Failed::new(Fault::Internal, "the answer to a claim has no token")
}
