//! Memos: a small record beside a name, in a persistent node of its own (see `memo_place.rs`). A write is one multi
//! that also checks, or deletes, the node of the hold. Times are those of the server: a reader sets the data of the
//! directory of all memos, and compares the time of this change with the time at which the memo was written.

use std::sync::Arc;

use leasehold_core::{
    BoxFuture, ClaimId, DEFAULT_TTL, EngineError, Fault, Followed, HoldAfter, Memo, MemoHead, MemoVerdict,
    MemoWrite, Memos, Mode, Name, Written, foreign_memo_error, judge_memo,
};

use crate::{
    check::UNTOUCHED,
    claims::{OwnNodes, State},
    client::{Client, unsent_error},
    conn::Conn,
    error::Failed,
    memo_place::MemoPlace,
    memo_record::MemoRecord,
    runtime,
    sessions::{Session, SessionSlot},
    wire::{
        ANY_VERSION, Create, Delete, ErrorCode, Exists, GetData, Multi, MultiOp, NodeKind, SetData, Stat,
    },
};

/// The most attempts of a write. A write is attempted again if memos of other names were created in its directory
/// meanwhile, or an ended memo was deleted: both are rare.
const MAX_TRIES: u32 = 16;

/// What a write needs of its hold.
struct MemoHold {
    session: Arc<Session>,
    own: OwnNodes,
}

/// What is stored, and what the conditions of a write are made from.
struct Found {
    /// The node of the hold exists, and no operator has changed it.
    is_held: bool,
    /// The node of the hold does not exist.
    is_gone: bool,
    memo: Option<(MemoRecord, Stat)>,
    /// The directory of the memo; `None` if it does not exist.
    directory: Option<Stat>,
}

/// The result of one attempt of a write.
enum Attempt {
    Written {
        /// The claim looks at other memos.
        sweeps: bool,
    },
    Overtaken {
        is_gone: bool,
    },
    /// Something on which the attempt relied has changed.
    Again,
}

impl Memos for Client {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(self.read_memo(name))
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(self.write_memo(write))
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        Some(self.followers.follow(name))
    }
}

impl Client {
    async fn read_memo(&self, name: &Name) -> Result<Option<Memo>, EngineError> {
        let (_session_slot, conn) = self.memo_conn().await?;
        let place = self.memo_place(name);
        let stored = self.stored_memo(&conn, &place, name).await;
        if matches!(stored, Ok(None)) {
            self.sweep_for_holder(&place, name);
        }
        // A reader changes nothing but the clock.
        stored.map_err(|failed| unsent_error(place.failed(failed)))
    }

    /// A session for a short request about a memo, and its connection. Without any session, the client makes the one
    /// that claims of the default ttl and followers share.
    pub(crate) async fn memo_conn(&self) -> Result<(SessionSlot, Arc<Conn>), EngineError> {
        let session_slot = match self.sessions.take_any_slot() {
            Some(session_slot) => session_slot,
            None => self.take_session_slot(DEFAULT_TTL, 0)?,
        };
        let conn = session_slot.session().conn().await?;
        Ok((session_slot, conn))
    }

    async fn stored_memo(&self, conn: &Conn, place: &MemoPlace, name: &Name) -> Result<Option<Memo>, Failed> {
        // Only a quorum can answer the change of the clock, and its server has then applied all earlier changes. So the
        // memo, which is read after it on the same connection, is not older than this request.
        let (clock, stored) =
            (conn.send(&set_clock(place)), conn.send(&GetData { path: &place.node, watch: false }));
        let now = match clock.answer().await {
            // No memo was ever written.
            Err(failed) if failed.is(ErrorCode::NO_NODE) => return Ok(None),
            clock => clock?.mtime,
        };
        let Some((record, stat)) = read_record(&place.node, stored.answer().await)? else { return Ok(None) };
        let Some(left) = record.left(&stat, now) else { return Ok(None) };
        let is_held = self.is_held(conn, name, &record).await?;
        let MemoRecord { kind, version, token, print, bytes, .. } = record;
        Ok(Some(Memo { kind, bytes, print, version, token, left, is_held }))
    }

    /// Whether the hold that wrote a memo still lasts, unbroken. A deleted node never comes back, so a hold that exists
    /// now has existed since the memo was written.
    async fn is_held(&self, conn: &Conn, name: &Name, record: &MemoRecord) -> Result<bool, Failed> {
        match conn.send(&Exists { path: &self.dir(name).child_path(&record.holder) }).answer().await {
            Ok(stat) => Ok(stat.version == UNTOUCHED),
            Err(failed) if failed.is(ErrorCode::NO_NODE) => Ok(false),
            Err(failed) => Err(failed),
        }
    }

    async fn write_memo(&self, write: &MemoWrite) -> Result<Written, EngineError> {
        let place = self.memo_place(&write.name);
        for _ in 0..MAX_TRIES {
            let Some(hold) = self.memo_hold(write) else { return Ok(Written::Overtaken) };
            let attempt = match self.try_write(write, &place, &hold).await {
                Err(WriteError::Failed(failed)) if failed.is_expired() => {
                    hold.session.state.end();
                    return Ok(Written::Overtaken);
                }
                attempt => attempt.map_err(EngineError::from)?,
            };
            match attempt {
                Attempt::Written { sweeps } => {
                    if write.after == HoldAfter::Release {
                        self.end_hold_of_memo(write.version.id).await;
                    }
                    self.after_memo(write);
                    if sweeps {
                        self.sweep(&place, write.version.id);
                    }
                    return Ok(Written::Done);
                }
                Attempt::Overtaken { is_gone } => {
                    if write.after == HoldAfter::Release && is_gone {
                        // An earlier attempt has possibly ended the hold, and its answer was lost: then core sends no
                        // release.
                        self.end_hold_of_memo(write.version.id).await;
                    }
                    return Ok(Written::Overtaken);
                }
                Attempt::Again => {}
            }
        }
        let directory = &place.directory;
        let message =
            format!("the directory of the memo {directory} changed during {MAX_TRIES} tries: try again");
        Err(EngineError::new(Fault::Retry, message))
    }

    /// The hold of a write; `None` if this client has no such hold.
    fn memo_hold(&self, write: &MemoWrite) -> Option<MemoHold> {
        let now = self.now();
        let mut claims = self.claims();
        let entry = claims.get(write.version.id)?;
        let State::Held { own, .. } = &entry.state else { return None };
        let session = entry.data.session_slot.session();
        let is_hold = entry.name == write.name
            && entry.mode == Mode::Exclusive
            && self.config.token_blocks.first(own.czxid) == Some(write.hold_token.number)
            && session.state.lineage() == Some(write.hold_token.lineage);
        if !is_hold || session.state.has_ended() || self.in_flight.is_released(write.version.id, now) {
            return None;
        }
        Some(MemoHold { session: Arc::clone(session), own: own.clone() })
    }

    /// Reads what is stored, and writes the memo if that is unchanged.
    async fn try_write(
        &self,
        write: &MemoWrite,
        place: &MemoPlace,
        hold: &MemoHold,
    ) -> Result<Attempt, WriteError> {
        let conn = hold.session.conn().await.map_err(WriteError::NotSent)?;
        let found = find(&conn, place, hold).await?;
        if !found.is_held {
            return Ok(Attempt::Overtaken { is_gone: found.is_gone });
        }
        let has_ended = match &found.memo {
            // Only the kind of a memo that has not ended counts.
            Some((record, stat)) if record.kind != *write.memo.kind() => {
                let now = conn.send(&set_clock(place)).answer().await.map_err(not_sent(place))?.mtime;
                record.left(stat, now).is_none()
            }
            _ => false,
        };
        let head = found.memo.as_ref().map(|(record, _)| MemoHead {
            kind: &record.kind,
            version: record.version,
            has_ended,
        });
        let is_stored = match judge_memo(write, found.is_held, head) {
            MemoVerdict::Store => true,
            MemoVerdict::LeaveLater if write.after == HoldAfter::Keep => {
                return Ok(Attempt::Written { sweeps: false });
            }
            MemoVerdict::LeaveLater => false,
            MemoVerdict::Overtaken => return Ok(Attempt::Overtaken { is_gone: false }),
            MemoVerdict::Refuse(error) => return Err(WriteError::NotSent(error)),
        };
        if is_stored && found.directory.is_none() {
            self.create_memo_directory(&conn, place).await.map_err(not_sent(place))?;
            return Ok(Attempt::Again);
        }
        let mut steps = vec![end_or_check(write.after, &hold.own)];
        if is_stored {
            steps.extend(self.store_steps(write, place, hold, &found));
        }
        let sweeps = is_stored && found.memo.is_none() && self.takes_sweep(write.version.id);
        self.send_memo(write, place, (&conn, hold), steps, sweeps).await
    }

    /// The changes that store the memo, on the condition that nothing has changed since `found` was read.
    fn store_steps(
        &self,
        write: &MemoWrite,
        place: &MemoPlace,
        hold: &MemoHold,
        found: &Found,
    ) -> Vec<MultiOp> {
        let data = MemoRecord::of(write, hold.own.name()).data();
        let (path, directory) = (place.node.clone(), place.directory.clone());
        match &found.memo {
            // The change of the directory counts the new node.
            None => vec![
                MultiOp::SetData(SetData { path: directory, data: Vec::new(), version: ANY_VERSION }),
                MultiOp::Create(Create { path, data, acl: self.acl.clone(), kind: NodeKind::Persistent }),
            ],
            // No other client writes under this hold, and none deletes the memo of a hold that lasts. So the version
            // of the data tells apart all writes of the hold.
            Some((record, stat)) if record.claim() == write.version.id => {
                vec![MultiOp::SetData(SetData { path, data, version: stat.version })]
            }
            // The memo of an earlier hold may be deleted and created again, and its versions then start again. A late
            // request must not take the new node for the old one.
            Some((_, stat)) => {
                let version = found.directory.map_or(UNTOUCHED, |directory| directory.version);
                vec![
                    MultiOp::Check { path: directory, version },
                    MultiOp::SetData(SetData { path, data, version: stat.version }),
                ]
            }
        }
    }

    /// Sends the changes of a write, of which the first ends or checks the hold.
    async fn send_memo(
        &self,
        write: &MemoWrite,
        place: &MemoPlace,
        (conn, hold): (&Conn, &MemoHold),
        steps: Vec<MultiOp>,
        sweeps: bool,
    ) -> Result<Attempt, WriteError> {
        let (id, ends_hold) = (write.version.id, write.after == HoldAfter::Release);
        if ends_hold {
            // The deletion of the node by this write is no loss.
            self.set_may_have_ended(id, true);
            self.unwatch(id);
        }
        let applied = self.apply_changes(&hold.session, conn, steps).await;
        let is_unapplied = match &applied {
            Ok(outcome) => outcome.is_err(),
            Err(failed) => !failed.is_unknown(),
        };
        if ends_hold && is_unapplied {
            self.set_may_have_ended(id, false);
            self.watch_hold_again(id);
        }
        match applied? {
            Ok(()) => Ok(Attempt::Written { sweeps }),
            Err((0, ErrorCode::NO_NODE)) => Ok(Attempt::Overtaken { is_gone: true }),
            Err((0, ErrorCode::BAD_VERSION)) => Ok(Attempt::Overtaken { is_gone: false }),
            Err((_, ErrorCode::NO_NODE | ErrorCode::NODE_EXISTS | ErrorCode::BAD_VERSION)) => {
                Ok(Attempt::Again)
            }
            // The directory of the name has an access list of its own.
            Err((0, code)) => Err(Failed::Refused(code).into()),
            Err((_, code)) => Err(place.failed(Failed::Refused(code)).into()),
        }
    }

    fn set_may_have_ended(&self, id: ClaimId, may_have_ended: bool) {
        if let Some(entry) = self.claims().get(id) {
            entry.data.may_have_ended = may_have_ended;
        }
    }

    /// Watches the node of a hold that did not end.
    fn watch_hold_again(&self, id: ClaimId) {
        if let Some(client) = self.weak_self.upgrade() {
            runtime::spawn(async move { client.watch_hold(id).await });
        }
    }

    /// Creates the directory of a memo, and the directory of all memos, unless they exist.
    async fn create_memo_directory(&self, conn: &Conn, place: &MemoPlace) -> Result<(), Failed> {
        for (path, acl) in [(&place.clock, self.clock_acl()), (&place.directory, self.acl.clone())] {
            let (path, data, kind) = (path.clone(), Vec::new(), NodeKind::Persistent);
            let create = MultiOp::Create(Create { path, data, acl, kind });
            match conn.send(&Multi(vec![create])).answer().await? {
                Ok(()) | Err((_, ErrorCode::NODE_EXISTS)) => {}
                Err((_, code)) => return Err(Failed::Refused(code)),
            }
        }
        Ok(())
    }
}

/// Why a write failed.
enum WriteError {
    /// No request that writes was sent.
    NotSent(EngineError),
    /// The request that writes failed.
    Failed(Failed),
}

impl From<Failed> for WriteError {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl From<WriteError> for EngineError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::NotSent(error) => error,
            WriteError::Failed(failed) => failed.into(),
        }
    }
}

/// The error of a write whose preparation failed.
fn not_sent(place: &MemoPlace) -> impl Fn(Failed) -> WriteError {
    |failed| match place.failed(failed) {
        failed if failed.is_expired() => WriteError::Failed(failed),
        failed => WriteError::NotSent(unsent_error(failed)),
    }
}

/// The change of the clock, whose answer tells the time of the server.
pub(crate) fn set_clock(place: &MemoPlace) -> SetData {
    SetData { path: place.clock.clone(), data: Vec::new(), version: ANY_VERSION }
}

/// The first step of a write: it fails unless the node of the hold exists and no operator has changed its data.
fn end_or_check(after: HoldAfter, own: &OwnNodes) -> MultiOp {
    let (path, version) = (own.path.clone(), UNTOUCHED);
    match after {
        HoldAfter::Keep => MultiOp::Check { path, version },
        HoldAfter::Release => MultiOp::Delete(Delete { path, version }),
    }
}

/// Reads what a write depends on, in one round trip. The server of this connection has applied the grant of the hold,
/// so it also has the last memo of an earlier hold.
async fn find(conn: &Conn, place: &MemoPlace, hold: &MemoHold) -> Result<Found, WriteError> {
    let (own, directory, memo) = (
        conn.send(&Exists { path: &hold.own.path }),
        // Before the memo: if another memo is created after it was read, the version is not that of the directory.
        conn.send(&Exists { path: &place.directory }),
        conn.send(&GetData { path: &place.node, watch: false }),
    );
    let own = none_if_missing(own.answer().await).map_err(not_sent(place))?;
    let directory = none_if_missing(directory.answer().await).map_err(not_sent(place))?;
    let is_held = own.is_some_and(|stat| hold.own.is_first_node(&stat) && stat.version == UNTOUCHED);
    let memo = match is_held {
        true => read_record(&place.node, memo.answer().await).map_err(not_sent(place))?,
        false => None,
    };
    Ok(Found { is_held, is_gone: own.is_none(), memo, directory })
}

/// `None` if the node does not exist.
pub(crate) fn none_if_missing<T>(answer: Result<T, Failed>) -> Result<Option<T>, Failed> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failed) if failed.is(ErrorCode::NO_NODE) => Ok(None),
        Err(failed) => Err(failed),
    }
}

/// The memo at this path, also if it has ended; `None` if there is none.
fn read_record(
    path: &str,
    answer: Result<(Vec<u8>, Stat), Failed>,
) -> Result<Option<(MemoRecord, Stat)>, Failed> {
    let Some((data, stat)) = none_if_missing(answer)? else { return Ok(None) };
    let record = MemoRecord::read(&data).ok_or_else(|| Failed::from(foreign_memo_error(path)))?;
    Ok(Some((record, stat)))
}
