//! The request that creates the nodes of a set.

use futures_util::future::join_all;
use leasehold_core::{AllAnswer, Claim, EngineError, Fault, Hint};

use crate::{
    claim::{ClaimContext, none_if_absent},
    claim_all::Attempt,
    claims::{Blocker, OwnNodes, State},
    client::Client,
    conn::Conn,
    error::{Failed, multi_outcome},
    keys, plain,
    position::refusing_node,
    wire::{Create, CreateAll, Created, ErrorCode, GetChildren, Stat, Sync},
};

impl Client {
    /// Creates the nodes of all claims, and reads their positions in the same round trip.
    pub(crate) async fn create_all(
        &self,
        claims: &[Claim],
        contexts: &[ClaimContext],
    ) -> Result<Attempt, Failed> {
        // A set that cannot succeed creates no nodes, which would have to be deleted again.
        if let Some(answer) = self.find_contended(claims, contexts).await? {
            return Ok(Attempt::Answer(self.forget_all(claims, answer).await?));
        }
        let (session, conn) = (&contexts[0].session, &contexts[0].conn);
        let create = |(claim, context): (&Claim, &ClaimContext)| self.node_of(claim, context);
        let creates = CreateAll(claims.iter().zip(contexts).map(create).collect());
        let set_unsettled = |unsettled| claims.iter().for_each(|claim| self.set_unsettled(claim, unsettled));
        set_unsettled(true);
        let sent = self.now();
        let created = conn.send(&creates);
        let queues = queues_of(claims, contexts);
        let lists = list_all(conn, &queues);
        let created = created.answer_and_zxid().await;
        let (created, zxid) = created.map_or_else(|failed| (Err(failed), 0), |(done, zxid)| (Ok(done), zxid));
        // An answer with unexpected paths leaves unknown what was created.
        let created = multi_outcome(created).and_then(|created| match created {
            Ok(paths) => own_nodes(&creates.0, paths, zxid).map(Ok).ok_or(Failed::Unreadable),
            Err(refused) => Ok(Err(refused)),
        });
        if !created.as_ref().is_err_and(Failed::is_unknown) {
            set_unsettled(false);
        }
        let own_nodes = match created? {
            Ok(own_nodes) => own_nodes,
            Err((_, ErrorCode::NO_NODE)) => {
                return self.create_missing_dirs(claims, contexts, lists.await).await;
            }
            Err((index, code)) => {
                return self.refused(claims, index, Failed::Refused(code)).await.map(Attempt::Answer);
            }
        };
        let now = self.now();
        session.state.record_answer(sent, now);
        let mut are_known = true;
        for (claim, own) in claims.iter().zip(&own_nodes) {
            let mut table = self.claims();
            let entry = table.get(claim.id).filter(|entry| entry.state == State::Made);
            are_known &= entry.is_some();
            entry.into_iter().for_each(|entry| entry.waits(own.clone(), Blocker::Unknown, now));
        }
        if !are_known {
            // A claim was given up while the request was in flight.
            let paths: Vec<String> = own_nodes.iter().flat_map(OwnNodes::paths).collect();
            self.delete_all(session, conn, &paths).await?;
            let answer = AllAnswer::Taken { index: 0, hint: Hint::default() };
            return Ok(Attempt::Answer(self.end_all(claims, answer).await?));
        }
        let lists = lists.await;
        let is_denied =
            |list: &Result<_, Failed>| list.as_ref().is_err_and(|failed| failed.is(ErrorCode::NO_AUTH));
        if let Some(index) = lists.iter().position(is_denied) {
            let error = Failed::Refused(ErrorCode::NO_AUTH).into();
            let answer = AllAnswer::Refused { index, error };
            return Ok(Attempt::Answer(self.end_all(claims, answer).await?));
        }
        let children = lists.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.decide_all(claims, contexts, &own_nodes, children).await.map(Attempt::Answer)
    }

    /// If a name was taken at the last claim of it: the answer if a name is taken now. As for a single try, a `sync` in
    /// the same round trip brings the server up to date, so that the answer is true (I13).
    async fn find_contended(
        &self,
        claims: &[Claim],
        contexts: &[ClaimContext],
    ) -> Result<Option<AllAnswer>, Failed> {
        if !claims.iter().any(|claim| self.contended_names.has(&claim.name)) {
            return Ok(None);
        }
        let conn = &contexts[0].conn;
        let synced = conn.send(&Sync { path: contexts[0].dir.path() });
        let queues = queues_of(claims, contexts);
        let lists = list_all(conn, &queues);
        synced.answer().await?;
        for (index, list) in lists.await.into_iter().enumerate() {
            let (claim, context) = (&claims[index], &contexts[index]);
            let children = match none_if_absent(list) {
                // The creation of the nodes finds out which rights are missing.
                Err(failed) if failed.is(ErrorCode::NO_AUTH) => return Ok(None),
                children => children?,
            };
            let nodes = keys::queue_nodes(&children);
            if refusing_node(&nodes, claim.mode).is_some() {
                let persistent = self.persistent_node(context, &queues[index], nodes.first()).await?;
                return Ok(Some(AllAnswer::Taken { index, hint: plain::hint(persistent.is_some()) }));
            }
            if let Some(error) = self.kind_mismatch(claim, context, &children).await? {
                return Ok(Some(AllAnswer::Refused { index, error }));
            }
            self.contended_names.set(&claim.name, false);
        }
        Ok(None)
    }

    /// Creates the directories that the lists did not find.
    async fn create_missing_dirs(
        &self,
        claims: &[Claim],
        contexts: &[ClaimContext],
        lists: Vec<Result<Vec<String>, Failed>>,
    ) -> Result<Attempt, Failed> {
        let missing =
            lists.iter().map(|list| list.as_ref().is_err_and(|failed| failed.is(ErrorCode::NO_NODE)));
        let missing: Vec<(usize, bool)> = missing.enumerate().filter(|(_, missing)| *missing).collect();
        let create = |&(index, _): &(usize, bool)| {
            let context = &contexts[index];
            self.create_dirs(&context.conn, context.dir.path(), self.dir_kind(), Vec::new())
        };
        for ((index, _), created) in missing.iter().zip(join_all(missing.iter().map(create)).await) {
            if let Err(failed) = created {
                return self.refused(claims, *index, failed).await.map(Attempt::Answer);
            }
        }
        Ok(Attempt::Again)
    }

    /// The answer after the server refused the request because of this claim. Nothing was created.
    async fn refused(&self, claims: &[Claim], index: usize, failed: Failed) -> Result<AllAnswer, Failed> {
        let error = EngineError::from(failed.clone());
        if matches!(error.fault, Fault::Retry | Fault::Unknown) {
            return Err(failed);
        }
        Ok(self.forget_all(claims, AllAnswer::Refused { index, error }).await?)
    }
}

/// The paths of the queues of the claims.
pub(crate) fn queues_of(claims: &[Claim], contexts: &[ClaimContext]) -> Vec<String> {
    claims.iter().zip(contexts).map(|(claim, context)| context.dir.queue_of(claim.mode)).collect()
}

/// Asks for the nodes of these queues. The requests are queued before this function returns.
pub(crate) fn list_all<'a>(
    conn: &Conn,
    queues: &'a [String],
) -> impl Future<Output = Vec<Result<Vec<String>, Failed>>> + use<'a> {
    let list = |path: &'a String| conn.send(&GetChildren { path, watch: false }).answer();
    join_all(queues.iter().map(list).collect::<Vec<_>>())
}

/// The nodes that the server reports as created by the change `zxid`; `None` if these paths cannot be the result of the
/// requests.
fn own_nodes(creates: &[Create], paths: Vec<String>, zxid: i64) -> Option<Vec<OwnNodes>> {
    if paths.len() != creates.len() {
        return None;
    }
    // The answer to a change has the number of this change: a server answers a change before it applies the next one.
    let stat = Stat { czxid: zxid, ..Stat::default() };
    creates
        .iter()
        .zip(paths)
        .map(|(create, path)| OwnNodes::created(&create.path, Created { path, stat }))
        .collect()
}
