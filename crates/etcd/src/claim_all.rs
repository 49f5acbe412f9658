//! Several names in one transaction, which creates the keys of all claims or none: one request when all names are free.

use futures_util::future::join_all;
use leasehold_core::{AllAnswer, Answer, Claim, EngineError, Fault, Hint, How, InFlightRequest};

use crate::{
    claim::{FirstBlocker, MAX_TRIES, pause, record_text},
    claim_all_txn::{Found, Member, Members},
    client::{Client, Failed},
    conn::Conn,
    error::{
        changed_again, classify, is_database_full, is_lease_gone, is_reply_too_long, is_too_large, unreadable,
    },
    position::{ClaimReply, QueuePosition},
    runtime,
    session::lease_ended,
    wire::TxnResponse,
};

/// What follows a request for several names.
enum NextStep {
    Answer(AllAnswer),
    /// Send the claims again. For each claim of permits of which other keys exist: the revision at which enough permits
    /// were free.
    Again(Vec<Option<i64>>),
}

impl Client {
    /// Claims all names in one transaction, or none.
    pub(crate) async fn claim_all(&self, claims: &[Claim]) -> Result<AllAnswer, EngineError> {
        for (index, claim) in claims.iter().enumerate() {
            if let Err(error) = self.check_claim(claim) {
                return Ok(AllAnswer::Refused { index, error });
            }
        }
        let mut first_blocker = FirstBlocker::WithValue;
        let mut free_at = vec![None; claims.len()];
        for tries in 0..MAX_TRIES {
            let members = match self.register_all(claims, &free_at).await {
                Ok(members) => members,
                Err(error) => {
                    self.forget_all(claims);
                    return Err(error);
                }
            };
            let now = self.now();
            if let Some(index) = claims.iter().position(|claim| self.in_flight.is_released(claim.id, now)) {
                return self.end_all(claims, AllAnswer::Taken { index, hint: Hint::default() }).await;
            }
            let Some(members) = members else { continue };
            if !members.fit_one_transaction() {
                self.forget_all(claims);
                return Ok(AllAnswer::OneByOne);
            }
            let in_flight = self.note_sending(&members);
            let (conn, reply) = match self.call(members.txn(self.prefix(), first_blocker)).await {
                Ok(answered) => answered,
                Err(Failed::Sent(status))
                    if is_reply_too_long(&status) && first_blocker == FirstBlocker::WithValue =>
                {
                    // A transaction that creates the keys reads nothing, so its reply is short.
                    complete(in_flight);
                    first_blocker = FirstBlocker::KeyOnly;
                    continue;
                }
                Err(Failed::Sent(status)) if is_lease_gone(&status) => {
                    complete(in_flight);
                    self.wake_maintenance.notify_one();
                    if let Some(session) = members.only_session() {
                        session.end();
                        continue;
                    }
                    // The keep-alives find out which of the leases has ended.
                    self.forget_all(claims);
                    return Err(lease_ended());
                }
                Err(failed) => return self.on_all_failed(claims, &members, in_flight, failed).await,
            };
            complete(in_flight);
            if reply.succeeded {
                return self.on_all_created(claims, &members, &conn, reply.revision()).await;
            }
            match self.on_none_created(claims, &members, reply).await? {
                NextStep::Answer(answer) => return Ok(answer),
                NextStep::Again(newer) => {
                    // Other claims arrived after the revision at which enough permits were free.
                    if free_at.iter().any(Option::is_some) {
                        runtime::sleep(pause(claims[0].id, tries)).await;
                    }
                    free_at = newer;
                }
            }
        }
        self.forget_all(claims);
        Err(changed_again())
    }

    /// Adds the claims to the claim table. `None` if a lease has to be confirmed first.
    async fn register_all<'a>(
        &self,
        claims: &'a [Claim],
        free_at: &[Option<i64>],
    ) -> Result<Option<Members<'a>>, EngineError> {
        let mut registered = Vec::with_capacity(claims.len());
        for claim in claims {
            registered.push(self.register(claim).await?);
        }
        let now = self.now();
        let mut members = Vec::with_capacity(claims.len());
        for ((claim, (session, key)), free_at) in claims.iter().zip(registered).zip(free_at) {
            let Some(remaining) = session.remaining(now) else { return Ok(None) };
            let (dir, ttl) = (self.dir(&claim.name), remaining.min(claim.ttl));
            members.push(Member { claim, dir, session, key, ttl, free_at: *free_at });
        }
        Ok(Some(Members::new(members)))
    }

    /// Records that the request of these claims is about to be sent.
    fn note_sending(&self, members: &Members<'_>) -> Vec<InFlightRequest<'_>> {
        let now = self.now();
        let note = |member: &Member<'_>| {
            if let (true, Some(entry)) = (member.dir.has_lock_key(), self.claims().get(member.claim.id)) {
                entry.data.record = record_text(member.claim, member.ttl);
                // An earlier queue key of a lapsed claim was deleted.
                entry.data.queue_revision = None;
            }
            self.in_flight.start(member.claim.id, self.next_request_number(), now)
        };
        members.iter().map(note).collect()
    }

    /// The answer to a request that failed.
    async fn on_all_failed(
        &self,
        claims: &[Claim],
        members: &Members<'_>,
        in_flight: Vec<InFlightRequest<'_>>,
        failed: Failed,
    ) -> Result<AllAnswer, EngineError> {
        let failed = match failed {
            Failed::Sent(status) if is_database_full(&status) => {
                complete(in_flight);
                // The keys may have been created.
                self.end_all(claims, AllAnswer::OneByOne).await?;
                return Err(classify(&status));
            }
            Failed::Sent(status) if is_too_large(&status) => {
                complete(in_flight);
                self.forget_all(claims);
                return Ok(AllAnswer::OneByOne);
            }
            failed => failed.classified(),
        };
        if failed.fault == Fault::Unknown {
            return Err(failed);
        }
        complete(in_flight);
        self.forget_all(claims);
        if failed.fault == Fault::Denied { self.find_denied(members, failed).await } else { Err(failed) }
    }

    /// The user lacks rights, and the server did nothing. Finds the first name to which the user has none, by
    /// transactions that change nothing: the server checks the rights of a transaction whatever its conditions are.
    async fn find_denied(&self, members: &Members<'_>, error: EngineError) -> Result<AllAnswer, EngineError> {
        let probes = members.iter().map(|member| self.ask(member.probe(self.prefix())));
        for (index, probed) in join_all(probes).await.into_iter().enumerate() {
            if let Err(error) = probed.map(drop)
                && error.fault == Fault::Denied
            {
                return Ok(AllAnswer::Refused { index, error });
            }
        }
        Err(error)
    }

    /// Records that the claims hold: their keys were created at this revision. If a claim has ended meanwhile, all end.
    async fn on_all_created(
        &self,
        claims: &[Claim],
        members: &Members<'_>,
        conn: &Conn,
        revision: i64,
    ) -> Result<AllAnswer, EngineError> {
        let mut grants = Vec::with_capacity(claims.len());
        for (index, member) in members.iter().enumerate() {
            if member.dir.has_lock_key() {
                self.note_queue_revision(member.claim.id, revision);
            }
            let (ttl, position) = (member.ttl, QueuePosition::default());
            let claim_reply = ClaimReply { revision, read_revision: revision, ttl, position };
            match self.record_position(member.claim, &member.dir, conn, claim_reply) {
                Ok(Answer::Held(grant)) => grants.push(grant),
                Ok(_) => {
                    return self.end_all(claims, AllAnswer::Taken { index, hint: Hint::default() }).await;
                }
                Err(error) => return self.end_all(claims, AllAnswer::Refused { index, error }).await,
            }
        }
        Ok(AllAnswer::Held(grants))
    }

    /// Reads the reply of a transaction that created no key, and decides what to do next.
    async fn on_none_created(
        &self,
        claims: &[Claim],
        members: &Members<'_>,
        mut reply: TxnResponse,
    ) -> Result<NextStep, EngineError> {
        let revision = reply.revision();
        let has_new_epoch = members.read_epochs(&mut reply)?;
        let mut found = Vec::with_capacity(claims.len());
        for index in 0..claims.len() {
            found.push(members.read(self, index, &mut reply)?);
        }
        let created = found.iter().filter(|found| matches!(found, Found::Created(_))).count();
        if created == claims.len() {
            return self.confirm_all(members, &found).await.map(NextStep::Answer);
        }
        for (member, _) in members.iter().zip(&found).filter(|(_, found)| matches!(found, Found::KeyInUse)) {
            if let Some(entry) = self.claims().get(member.claim.id) {
                entry.data.take_another_key(&member.dir, member.claim.mode);
            }
        }
        let uses_other_keys = found.iter().any(|found| matches!(found, Found::KeyInUse));
        let free_at = |found: &Found| matches!(found, Found::FreeBesideOthers).then_some(revision);
        let free_at: Vec<_> = found.iter().map(free_at).collect();
        let blocked = |(index, found)| match found {
            Found::Taken(hint) => Some(AllAnswer::Taken { index, hint }),
            Found::Refused(error) => Some(AllAnswer::Refused { index, error }),
            // Of the keys that an earlier request of the same claims created, some were deleted.
            Found::Free | Found::FreeBesideOthers if created > 0 => {
                Some(AllAnswer::Taken { index, hint: Hint::default() })
            }
            Found::Created(_) | Found::Free | Found::FreeBesideOthers | Found::KeyInUse => None,
        };
        if let Some(answer) = found.into_iter().enumerate().find_map(blocked) {
            if let AllAnswer::Taken { index, .. } = answer {
                self.contended_names.add(&claims[index].name);
            }
            let now = self.now();
            let may_remain =
                created > 0 || claims.iter().any(|claim| self.in_flight.is_unsettled(claim.id, now));
            if may_remain {
                return self.end_all(claims, answer).await.map(NextStep::Answer);
            }
            self.forget_all(claims);
            return Ok(NextStep::Answer(answer));
        }
        if !has_new_epoch && !uses_other_keys && free_at.iter().all(Option::is_none) {
            // No condition can have failed, yet the keys were not created.
            return Err(unreadable());
        }
        Ok(NextStep::Again(free_at))
    }

    /// The answer to claims whose keys an earlier request created.
    async fn confirm_all(&self, members: &Members<'_>, found: &[Found]) -> Result<AllAnswer, EngineError> {
        for (member, found) in members.iter().zip(found) {
            let Found::Created(revision) = found else { continue };
            if member.dir.has_lock_key() {
                self.note_queue_revision(member.claim.id, *revision);
            }
            self.note_queued(member.claim, *revision);
        }
        let claims: Vec<Claim> = members.iter().map(|member| member.claim.clone()).collect();
        let answers = join_all(claims.iter().map(|claim| Box::pin(self.claim(claim, How::Ask)))).await;
        let mut grants = Vec::with_capacity(claims.len());
        for (index, answer) in answers.into_iter().enumerate() {
            match answer? {
                Answer::Held(grant) => grants.push(grant),
                Answer::Waiting(hint) | Answer::Taken(hint) => {
                    return self.end_all(&claims, AllAnswer::Taken { index, hint }).await;
                }
                Answer::Gone => {
                    return self.end_all(&claims, AllAnswer::Taken { index, hint: Hint::default() }).await;
                }
            }
        }
        Ok(AllAnswer::Held(grants))
    }

    /// Forgets claims whose last request created nothing.
    fn forget_all(&self, claims: &[Claim]) {
        claims.iter().for_each(|claim| self.forget_if_settled(claim));
    }

    /// Ends the claims, of which something may be on the server; then returns `answer`.
    async fn end_all(&self, claims: &[Claim], answer: AllAnswer) -> Result<AllAnswer, EngineError> {
        answer.after_end_of(claims, |releases| async move { self.release(&releases).await }).await
    }
}

/// Records that the request of all these claims was answered.
fn complete(in_flight: Vec<InFlightRequest<'_>>) {
    in_flight.into_iter().for_each(InFlightRequest::complete);
}
