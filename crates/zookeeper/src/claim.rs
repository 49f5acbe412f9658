//! Making a claim, and asking where it stands.

use std::sync::Arc;

use leasehold_core::{Answer, Claim, EngineError, Fault, Hint, How, Lineage, Mode, queue::MAX_WAITERS};

use crate::{
    book::{Before, Own, Place},
    card::{Card, is_broken},
    client::{Client, grant},
    conn::Conn,
    error::Failed,
    keys::{self, Dir, LINE, PERMITS},
    line::standing,
    lock_of,
    session::over,
    sessions::Session,
    watches::Target,
    wire::{Children, Code, Create, Data, Delete, Exists, Kind},
};

/// How often a claim is tried again because what it depends on changed meanwhile.
const TRIES: u32 = 8;
/// How long the longest node is beside its directory: a word, a uuid and a number.
const NODE_BYTES: usize = 70;

/// What a claim is made with: valid as long as its connection is.
pub(crate) struct Way {
    pub(crate) session: Arc<Session>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) lineage: Lineage,
    pub(crate) dir: Dir,
}

/// Whether an answer was found, or it is to be tried again.
pub(crate) enum Tried {
    Answer(Answer),
    Again,
}

impl Client {
    pub(crate) async fn claim(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        keys::check(claim.mode)?;
        if self.flights.is_released(claim.id, self.now()) {
            return Ok(Answer::Gone);
        }
        let known = self
            .book()
            .get(claim.id)
            .map(|entry| (entry.place.clone(), entry.seat.session().facts.is_gone()));
        match known {
            None if how == How::Ask => Ok(Answer::Gone),
            Some((Place::Gone, _)) => Ok(Answer::Gone),
            Some((Place::Ending { .. }, _)) => Ok(Answer::Waiting(Hint::default())),
            // What it had is gone with its session.
            Some((Place::Waiting { .. } | Place::Held { .. }, true)) => Ok(self.is_gone(claim)),
            _ => self.make_or_ask(claim).await,
        }
    }

    async fn make_or_ask(&self, claim: &Claim) -> Result<Answer, EngineError> {
        for _ in 0..TRIES {
            let way = self.enter(claim).await?;
            if self.flights.is_released(claim.id, self.now()) {
                return Ok(Answer::Gone);
            }
            match self.try_once(claim, &way).await {
                Ok(Tried::Answer(answer)) => return Ok(answer),
                Ok(Tried::Again) => {}
                Err(failed) if failed.is_expired() => way.session.facts.end(),
                Err(failed) => return Err(failed.into()),
            }
        }
        Err(EngineError::new(Fault::Retry, "what the claim depends on changed again and again"))
    }

    /// Writes the claim down before anything of it leaves, so that whatever becomes of it can be undone.
    async fn enter(&self, claim: &Claim) -> Result<Way, EngineError> {
        let dir = self.dir(&claim.name);
        loop {
            let now = self.now();
            let known = self.book().get(claim.id).map(|entry| {
                entry.speaks(now);
                Arc::clone(entry.seat.session())
            });
            let session = match known.filter(|session| !session.facts.is_gone()) {
                Some(session) => session,
                // A claim whose session ended begins anew: nothing of it can be there.
                None => {
                    let permits = match claim.mode {
                        Mode::Permits { count, .. } => count as usize,
                        _ => 0,
                    };
                    let bytes = (permits + 1) * (dir.path().len() + NODE_BYTES);
                    let seat = self.seat(claim.ttl, bytes).await?;
                    let session = Arc::clone(seat.session());
                    self.book().enter(claim, seat, self.now());
                    session
                }
            };
            let fresh = self.freshen(&session).await;
            if session.facts.is_gone() {
                continue;
            }
            fresh?;
            let conn = session.conn().await?;
            let lineage = self.lineage(&session, &conn).await?;
            return Ok(Way { session, conn, lineage, dir });
        }
    }

    async fn try_once(&self, claim: &Claim, way: &Way) -> Result<Tried, Failed> {
        let unsettled = self.book().get(claim.id).is_some_and(|entry| entry.unsettled);
        if unsettled {
            self.settle(claim, way).await?;
        }
        let place = self.book().get(claim.id).map(|entry| entry.place.clone());
        match place {
            None | Some(Place::Gone) => Ok(Tried::Answer(Answer::Gone)),
            Some(Place::Ending { .. } | Place::Lapsed) => Ok(Tried::Answer(Answer::Waiting(Hint::default()))),
            Some(Place::Made) => self.create(claim, way).await,
            Some(Place::Waiting { node, before }) => self.ask_waiting(claim, way, &node, &before).await,
            Some(Place::Held { token, paths, .. }) => self.ask_held(claim, way, token, paths).await,
        }
    }

    /// Looks for what a change made that was not answered: it was done by now, or will never be, for the server does not take
    /// anything from an older connection of the session any more.
    async fn settle(&self, claim: &Claim, way: &Way) -> Result<(), Failed> {
        if claim.mode.limit().is_some() && self.find_permits(claim, way).await? {
            return Ok(());
        }
        let own = self.find(claim, way, &way.dir.line(claim.mode)).await?;
        let now = self.now();
        if let Some(entry) = self.book().get(claim.id) {
            entry.unsettled = false;
            match own {
                Some(own) if entry.place == Place::Made => entry.waits(own, Before::Unknown, now),
                Some(_) => {}
                None if matches!(entry.place, Place::Waiting { .. }) => entry.place = Place::Gone,
                None => {}
            }
        }
        Ok(())
    }

    /// The node of a claim in this directory, if this session has it there.
    async fn find(&self, claim: &Claim, way: &Way, path: &str) -> Result<Option<Own>, Failed> {
        for path in self.nodes_of(&way.conn, path, claim.id).await? {
            match way.conn.send(&Exists { path: &path }).answer().await {
                // One of a session that is over is on its way out.
                Ok(stat) if stat.owner == way.session.facts.id() => {
                    return Ok(Some(Own { path, czxid: stat.czxid }));
                }
                Ok(_) => {}
                Err(failed) if failed.is(Code::NO_NODE) => {}
                Err(failed) => return Err(failed),
            }
        }
        Ok(None)
    }

    /// The paths of all nodes in this directory that were made for the claim.
    pub(crate) async fn nodes_of(
        &self,
        conn: &Conn,
        path: &str,
        id: leasehold_core::ClaimId,
    ) -> Result<Vec<String>, Failed> {
        let mut names = children(conn, path).await?;
        names.retain(|name| keys::is_of(name, id));
        names.sort();
        Ok(names.iter().map(|name| format!("{path}/{name}")).collect())
    }

    async fn create(&self, claim: &Claim, way: &Way) -> Result<Tried, Failed> {
        if self.is_worn(claim, way).await? {
            self.leave(claim);
            return Err(worn().into());
        }
        // An attempt that would only have to be taken back is not made.
        if !claim.may_queue {
            let free = self.looks_free(claim, way).await;
            if !matches!(free, Ok(true)) {
                self.leave(claim);
                return free.map(|_| Tried::Answer(Answer::Taken(Hint::default())));
            }
        }
        let line = way.dir.line(claim.mode);
        let time = way.session.facts.left(self.now()).unwrap_or_default().min(claim.ttl);
        let card = Card { broken: false, time, owner: claim.owner.to_string() };
        let path = way.dir.place(claim.id, claim.mode, self.config.layout);
        let create = Create { path, data: card.text(), acl: self.acl.clone(), kind: Kind::Sequential };
        let sent = self.now();
        if let Some(entry) = self.book().get(claim.id) {
            entry.unsettled = true;
        }
        let (created, listed) =
            (way.conn.send(&create), way.conn.send(&Children { path: &line, watch: false }));
        let created = created.answer().await;
        let settled = !created.as_ref().is_err_and(Failed::is_unknown);
        if settled && let Some(entry) = self.book().get(claim.id) {
            entry.unsettled = false;
        }
        match created {
            Ok(created) => {
                way.session.facts.confirmed(sent);
                let own = Own { path: created.path, czxid: created.stat.czxid };
                let now = self.now();
                if let Some(entry) = self.book().get(claim.id)
                    && entry.place == Place::Made
                {
                    entry.waits(own.clone(), Before::Unknown, now);
                }
                let children = listed.answer().await?;
                self.stand(claim, way, &own, children).await
            }
            Err(failed) if failed.is(Code::NO_NODE) => {
                self.make_dirs(claim, way).await?;
                Ok(Tried::Again)
            }
            Err(failed) => {
                if settled && !failed.is_expired() {
                    self.leave(claim);
                }
                Err(failed)
            }
        }
    }

    async fn make_dirs(&self, claim: &Claim, way: &Way) -> Result<(), Failed> {
        self.make(&way.conn, way.dir.path(), Kind::Container, Vec::new()).await?;
        if let Some(limit) = claim.mode.limit() {
            self.make_semaphore(way, limit).await?;
        }
        Ok(())
    }

    /// Whether the counter of a line is used up, or nearly. Where nobody is in it any more, it is begun anew.
    async fn is_worn(&self, claim: &Claim, way: &Way) -> Result<bool, Failed> {
        let line = way.dir.line(claim.mode);
        if !lock_of(&self.worn).contains(&line) {
            return Ok(false);
        }
        if !keys::line(&children(&way.conn, &line).await?).is_empty() {
            return Ok(true);
        }
        match way.conn.send(&Delete { path: line.clone(), version: -1 }).answer().await {
            // Where permits are taken, the line alone begins anew: their directory is beside it.
            Ok(()) | Err(Failed::Refused(Code::NO_NODE | Code::NOT_EMPTY)) => {}
            // The server itself deletes it some time later.
            Err(Failed::Refused(Code::NO_AUTH)) => return Ok(true),
            Err(failed) => return Err(failed),
        }
        lock_of(&self.worn).remove(&line);
        Ok(false)
    }

    /// Whether an attempt may succeed.
    async fn looks_free(&self, claim: &Claim, way: &Way) -> Result<bool, Failed> {
        if claim.mode.limit().is_some() {
            let line = children(&way.conn, &way.dir.line(claim.mode)).await?;
            // There is more to look at than the line; that is done when it is first.
            if line.is_empty() {
                return Ok(true);
            }
            let clash = self.clash(claim, way, &line).await?;
            return clash.map_or(Ok(false), |clash| Err(clash.into()));
        }
        let nodes = keys::line(&children(&way.conn, way.dir.path()).await?);
        Ok(nodes.iter().all(|node| claim.mode == Mode::Shared && node.shared))
    }

    /// Where the claim stands by what is in its line; watches what it has to wait for.
    pub(crate) async fn stand(
        &self,
        claim: &Claim,
        way: &Way,
        own: &Own,
        mut children: Vec<String>,
    ) -> Result<Tried, Failed> {
        let line = way.dir.line(claim.mode);
        for _ in 0..TRIES {
            let nodes = keys::line(&children);
            let Some(standing) = standing(&nodes, &own.path[line.len() + 1..], claim.mode) else {
                return Ok(Tried::Answer(self.is_gone(claim)));
            };
            if let Some(clash) = self.clash(claim, way, &children).await? {
                self.take_back(claim, way, own).await?;
                return Err(clash.into());
            }
            if standing.worn {
                self.take_back(claim, way, own).await?;
                lock_of(&self.worn).insert(line);
                return Ok(Tried::Again);
            }
            let Some((before, sole)) = standing.before else {
                return match claim.mode {
                    Mode::Permits { count, limit } => {
                        self.take_permits(claim, way, own, (count, limit)).await
                    }
                    _ => self.holds(claim, way, own.czxid, vec![own.path.clone()]).map(Tried::Answer),
                };
            };
            if !claim.may_queue {
                self.take_back(claim, way, own).await?;
                return Ok(Tried::Answer(Answer::Taken(Hint::default())));
            }
            if standing.ahead as usize > MAX_WAITERS {
                self.take_back(claim, way, own).await?;
                return Err(EngineError::new(Fault::Refused, "too many claims stand in line already").into());
            }
            // A permit is never held by being first in line alone.
            let sole = sole && claim.mode.limit().is_none();
            let path = format!("{line}/{before}");
            if self.waits_for(claim, way, own, Before::Node { path, sole, ahead: standing.ahead }).await? {
                return Ok(Tried::Answer(self.waiting(claim)));
            }
            if sole {
                return self.holds(claim, way, own.czxid, vec![own.path.clone()]).map(Tried::Answer);
            }
            children = self::children(&way.conn, &line).await?;
        }
        Ok(Tried::Answer(self.waiting(claim)))
    }

    /// Watches what the claim waits for. False if that is not there any more.
    pub(crate) async fn waits_for(
        &self,
        claim: &Claim,
        way: &Way,
        own: &Own,
        before: Before,
    ) -> Result<bool, Failed> {
        let Some(path) = before.path().map(str::to_owned) else { return Ok(true) };
        let now = self.now();
        let before_this = {
            let mut book = self.book();
            let Some(entry) = book.get(claim.id) else { return Ok(true) };
            let Place::Waiting { before: last, .. } = &entry.place else { return Ok(true) };
            let last = last.path().map(str::to_owned);
            entry.waits(own.clone(), before, now);
            last
        };
        let target = Target::Before(claim.id);
        if let Some(last) = before_this.filter(|last| *last != path) {
            way.conn.watches.leave(&last, target);
        }
        way.conn.watches.expect(&path, target);
        // Unlike a look at its data, this tells nothing when that changes.
        match way.conn.send(&Children { path: &path, watch: true }).answer().await {
            Ok(_) => Ok(true),
            Err(failed) => {
                way.conn.watches.leave(&path, target);
                if failed.is(Code::NO_NODE) { Ok(false) } else { Err(failed) }
            }
        }
    }

    pub(crate) fn waiting(&self, claim: &Claim) -> Answer {
        let mut book = self.book();
        match book.get(claim.id).map(|entry| &entry.place) {
            Some(Place::Waiting { before, .. }) => {
                Answer::Waiting(Hint { ahead: before.ahead(), ask_in: None })
            }
            Some(Place::Gone) | None => Answer::Gone,
            _ => Answer::Waiting(Hint::default()),
        }
    }

    async fn ask_waiting(
        &self,
        claim: &Claim,
        way: &Way,
        own: &Own,
        before: &Before,
    ) -> Result<Tried, Failed> {
        if let Before::Node { path, .. } = before
            && way.conn.watches.has(path, Target::Before(claim.id))
        {
            let (own_there, before_there) =
                (way.conn.send(&Exists { path: &own.path }), way.conn.send(&Exists { path }));
            if own_there.answer().await.is_err_and(|failed| failed.is(Code::NO_NODE)) {
                return Ok(Tried::Answer(self.is_gone(claim)));
            }
            match before_there.answer().await {
                Ok(_) => return Ok(Tried::Answer(self.waiting(claim))),
                Err(failed) if failed.is(Code::NO_NODE) => {}
                Err(failed) => return Err(failed),
            }
        }
        let children = children(&way.conn, &way.dir.line(claim.mode)).await?;
        self.stand(claim, way, own, children).await
    }

    async fn ask_held(
        &self,
        claim: &Claim,
        way: &Way,
        token: i64,
        paths: Vec<String>,
    ) -> Result<Tried, Failed> {
        let Some(path) = paths.first() else { return Ok(Tried::Answer(Answer::Gone)) };
        match way.conn.send(&Data { path, watch: false }).answer().await {
            Ok((data, _)) if is_broken(&data) => Ok(Tried::Answer(self.is_gone(claim))),
            Ok(_) => self.holds(claim, way, token, paths).map(Tried::Answer),
            Err(failed) if failed.is(Code::NO_NODE) => Ok(Tried::Answer(self.is_gone(claim))),
            Err(failed) => Err(failed),
        }
    }

    /// Writes down that the claim holds, and answers it. What was done while the answer was under way counts more.
    pub(crate) fn holds(
        &self,
        claim: &Claim,
        way: &Way,
        token: i64,
        paths: Vec<String>,
    ) -> Result<Answer, Failed> {
        let now = self.now();
        let Some(ttl) = way.session.facts.left(now).map(|left| left.min(claim.ttl)) else {
            return Err(if way.session.facts.is_gone() { over() } else { unconfirmed() }.into());
        };
        let mut book = self.book();
        match book.get(claim.id).map(|entry| &entry.place) {
            None | Some(Place::Gone) => return Ok(Answer::Gone),
            Some(Place::Ending { .. } | Place::Lapsed) => return Ok(Answer::Waiting(Hint::default())),
            Some(Place::Made | Place::Waiting { .. } | Place::Held { .. }) => {}
        }
        book.holds(claim.id, Place::Held { token, paths, spoken: true }, (now, now.after(ttl)));
        drop(book);
        self.sooner.notify_one();
        Ok(Answer::Held(grant(way.lineage, token, ttl)?))
    }

    /// Another kind of lock, or another limit, in the directory of the claim.
    async fn clash(&self, claim: &Claim, way: &Way, line: &[String]) -> Result<Option<EngineError>, Failed> {
        if let Some(limit) = claim.mode.limit() {
            return self.clash_of_permits(claim, way, limit, line).await;
        }
        for (name, path) in
            [(LINE, way.dir.line(Mode::Permits { count: 1, limit: 1 })), (PERMITS, way.dir.permits())]
        {
            if line.iter().any(|child| child == name) && !children(&way.conn, &path).await?.is_empty() {
                return Ok(Some(in_use(claim, "a semaphore")));
            }
        }
        Ok(None)
    }

    /// Nothing of the claim is on the server, nor will be.
    pub(crate) fn leave(&self, claim: &Claim) {
        self.unwatch(claim.id);
        drop(self.book().remove(claim.id));
    }

    /// Nothing will come of the claim. What is left of it its release removes.
    pub(crate) fn is_gone(&self, claim: &Claim) -> Answer {
        self.unwatch(claim.id);
        if let Some(entry) = self.book().get(claim.id) {
            entry.place = Place::Gone;
            entry.unsettled = true;
        }
        Answer::Gone
    }

    /// Deletes what an attempt made that is not to stand in line. While that is not certain, the claim is unknown.
    pub(crate) async fn take_back(&self, claim: &Claim, way: &Way, own: &Own) -> Result<(), Failed> {
        self.delete_all(&way.session, &way.conn, std::slice::from_ref(&own.path)).await?;
        self.leave(claim);
        Ok(())
    }
}

/// The children of a directory; none if it is not there.
pub(crate) async fn children(conn: &Conn, path: &str) -> Result<Vec<String>, Failed> {
    match conn.send(&Children { path, watch: false }).answer().await {
        Err(failed) if failed.is(Code::NO_NODE) => Ok(Vec::new()),
        children => children,
    }
}

pub(crate) fn in_use(claim: &Claim, as_what: &str) -> EngineError {
    EngineError::new(
        Fault::Misconfigured,
        format!(
            "it is in use now as {as_what} and cannot be claimed as {}: one name is one kind of lock with one limit",
            claim.mode
        ),
    )
}

fn worn() -> EngineError {
    let why =
        "the counter of its directory is nearly used up, and begins anew when nobody is in line any more";
    EngineError::new(Fault::Retry, why)
}

fn unconfirmed() -> EngineError {
    EngineError::new(Fault::Unknown, "no quorum confirmed the session in time")
}
