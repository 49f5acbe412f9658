//! Permits, as Curator's `InterProcessSemaphoreV2` has them: who is first in a line of its own takes as many as it wants once there is
//! room, and leaves the line
//! (<https://github.com/apache/curator/blob/apache-curator-5.4.0/curator-recipes/src/main/java/org/apache/curator/framework/recipes/locks/InterProcessSemaphoreV2.java>).
//! So nobody but the first in line adds to those that are taken. Curator adds its own before it looks whether there is room, and
//! stays in line until then.

use leasehold_core::{Answer, Claim, EngineError, Hint};

use crate::{
    book::{Before, Own, Place},
    card::{limit as limit_of, limit_text},
    claim::{Tried, Way, children},
    client::Client,
    error::{Failed, agreed},
    keys::{self, Node},
    stand::in_use,
    watches::{Expecting, Target},
    wire::{Children, Code, Create, Data, Delete, Exists, Kind, Multi, SetData, Step},
};

impl Client {
    /// The directories of a semaphore, below that of its name.
    pub(crate) async fn make_semaphore(&self, way: &Way, limit: u32) -> Result<(), Failed> {
        self.make(&way.conn, &way.dir.queue(), Kind::Container, Vec::new()).await?;
        self.make(&way.conn, &way.dir.permits(), Kind::Container, limit_text(limit)).await
    }

    /// The claim is the first in line: takes its permits if there is room, else watches those that are taken.
    pub(crate) async fn take_permits(
        &self,
        claim: &Claim,
        way: &Way,
        own: &Own,
        (count, limit): (u32, u32),
    ) -> Result<Tried, Failed> {
        let permits = way.dir.permits();
        let expecting = Expecting::new(&way.conn.watches, &permits, Target::Before(claim.id));
        // Written down and watched before it is looked at, so that nothing is missed.
        self.waits(claim, own, Before::Room { path: permits.clone() });
        let taken = match way.conn.send(&Children { path: &permits, watch: claim.may_queue }).answer().await {
            Ok(taken) => taken.len(),
            Err(failed) if failed.is(Code::NO_NODE) => {
                self.make_semaphore(way, limit).await?;
                return Ok(Tried::Again);
            }
            Err(failed) => return Err(failed),
        };
        if taken + count as usize > limit as usize {
            if claim.may_queue {
                expecting.keep();
                return Ok(Tried::Answer(self.waiting(claim)));
            }
            self.take_back(claim, way, own).await?;
            return Ok(Tried::Answer(Answer::Taken(Hint::default())));
        }
        drop(expecting);
        let card = self.card(claim, way);
        let paths: Vec<String> = (0..count).map(|number| way.dir.permit(claim.id, number)).collect();
        let permit = |path: &String| {
            let (path, data) = (path.clone(), card.text());
            Step::Create(Create { path, data, acl: self.acl.clone(), kind: Kind::Ephemeral })
        };
        let mut steps = vec![Step::Delete(Delete { path: own.path.clone(), version: -1 })];
        steps.extend(paths.iter().map(permit));
        self.set_unsettled(claim, true);
        let sent = self.now();
        let (did, made) = (way.conn.send(&Multi(steps)), way.conn.send(&Exists { path: &paths[0] }));
        let did = agreed(did.answer().await);
        if !matches!(did, Ok(Ok(()))) && !did.as_ref().is_err_and(Failed::is_unknown) {
            self.set_unsettled(claim, false);
        }
        match did? {
            Ok(()) => {
                way.session.facts.confirmed(sent, self.now());
                let token = made.answer().await?.czxid;
                let own = Own::permits(paths, token).ok_or(Failed::Unreadable)?;
                let answer = self.holds(claim, way, own)?;
                // From here on it is known by what it holds.
                self.set_unsettled(claim, false);
                Ok(Tried::Answer(answer))
            }
            Err((0, Code::NO_NODE)) => Ok(Tried::Answer(self.give_up(claim))),
            Err((_, Code::NO_NODE)) => {
                self.make_semaphore(way, limit).await?;
                Ok(Tried::Again)
            }
            Err((_, code)) => Err(Failed::Refused(code)),
        }
    }

    /// Whether the claim got its permits by a change that was not answered.
    pub(crate) async fn find_permits(&self, claim: &Claim, way: &Way) -> Result<bool, Failed> {
        let paths = self.nodes_of(&way.conn, &way.dir.permits(), claim.id).await?;
        let Some(mut own) = Own::permits(paths, 0) else { return Ok(false) };
        let stat = match way.conn.send(&Exists { path: &own.path }).answer().await {
            Err(failed) if failed.is(Code::NO_NODE) => return Ok(false),
            stat => stat?,
        };
        if stat.owner != way.session.facts.id() {
            return Ok(false);
        }
        own.czxid = stat.czxid;
        let now = self.now();
        let until = now.after(way.session.facts.left(now).unwrap_or_default());
        let mut book = self.book();
        if let Some(entry) = book.get(claim.id) {
            entry.data.looked_for();
            if matches!(entry.state, Place::Made | Place::Waiting { .. }) {
                book.hold(claim.id, own, true, (now, until));
            }
        }
        Ok(true)
    }

    /// Another kind of lock, or another limit, under the name of the claim, which is in `line`. Where nobody else is, its limit
    /// counts from now on.
    pub(crate) async fn clash_of_permits(
        &self,
        claim: &Claim,
        way: &Way,
        limit: u32,
        line: &[String],
    ) -> Result<Option<EngineError>, Failed> {
        let permits = way.dir.permits();
        let (beside, written, taken) = (
            way.conn.send(&Children { path: way.dir.path(), watch: false }),
            way.conn.send(&Data { path: &permits, watch: false }),
            way.conn.send(&Children { path: &permits, watch: false }),
        );
        if beside.answer().await?.iter().any(|name| Node::read(name).is_some()) {
            return Ok(Some(in_use(claim, "a mutex or read-write lock")));
        }
        let (data, stat) = match written.answer().await {
            Err(failed) if failed.is(Code::NO_NODE) => return Ok(None),
            written => written?,
        };
        let others = taken.answer().await?.iter().any(|name| !keys::is_of(name, claim.id))
            || line.iter().any(|name| !keys::is_of(name, claim.id));
        match limit_of(&data) {
            Some(same) if same == limit => return Ok(None),
            Some(other) if others => return Ok(Some(in_use(claim, &format!("a semaphore of {other}")))),
            _ => {}
        }
        let set = SetData { path: permits, data: limit_text(limit), version: stat.version };
        match self.change(&way.session, &way.conn, vec![Step::SetData(set)]).await? {
            // Who writes of others may not be allowed to; then each program has to know the limit itself.
            Ok(_) | Err((_, Code::NO_AUTH | Code::NO_NODE)) => Ok(None),
            // Somebody else wrote meanwhile.
            Err((_, Code::BAD_VERSION)) => {
                let line = children(&way.conn, &way.dir.queue()).await?;
                Box::pin(self.clash_of_permits(claim, way, limit, &line)).await
            }
            Err((_, code)) => Err(Failed::Refused(code)),
        }
    }
}
