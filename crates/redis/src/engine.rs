//! One client of a server.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{
    Answer, BoxFuture, Breaking, Claim, ClaimId, Engine, EngineError, Env, Fault, Grant, Hint, Hold, How, Life,
    Loss, Mode, News, Profile, Release, Released, Renewed, Token, queue::entry_life,
};

use crate::{
    config::Config,
    error::{is_foreign_type, said_in_script},
    flights::Flights,
    keys::{Keys, channel},
    link::{Conn, Link},
    news::{Ears, LINEAGE, letter, previous},
    reply::Reply,
    scripts::{Call, Script},
};

/// The paces at which waiting claims are asked. Grants are pushed, so this is a net for pushes that were lost and for
/// foreign locks.
const POLL: std::ops::RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(2);
/// How long a request may take before its outcome is unknown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after it was sent a request may still be applied; `lua/name.lua` keeps tombstones as long.
const REQUEST_LIFE: Duration = Duration::from_secs(10);
/// Holds renewed or released by one script: it takes well under a millisecond, so that others are not held up.
const BATCH: usize = 100;

/// Locks on one Redis server.
pub struct RedisEngine {
    pub(crate) link: Link,
    ears: Arc<Ears>,
    flights: Flights,
    channel: String,
    clock: Arc<dyn leasehold_core::Clock>,
    profile: Profile,
}

impl RedisEngine {
    /// A client of the server. It is contacted at the first request, not here.
    ///
    /// The futures of this engine run on a tokio runtime with its timers and I/O, as the keeper's.
    #[must_use]
    pub fn new(config: Config, env: &Env) -> Self {
        let client = ClaimId(env.lineage().get().to_be_bytes());
        let (channel, clock) = (channel(client), Arc::clone(&env.clock));
        let ears = Ears::new(&config.prefix);
        let link = Link::new(config, channel.clone(), Arc::clone(&clock), Arc::clone(&ears));
        Self { link, ears, flights: Flights::default(), channel, clock, profile: profile() }
    }

    pub(crate) fn keys(&self, name: &leasehold_core::Name) -> Result<Keys, EngineError> {
        Keys::of(&self.link.config().prefix, name)
    }

    async fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let keys = self.keys(&claim.name)?;
        if self.flights.is_released(claim.id, self.clock.now()) {
            return Ok(Answer::Gone);
        }
        let call = self.claim_call(claim, how, keys)?;
        let conn = self.link.conn().await?;
        let flight = self.flights.start(claim.id, conn.number);
        let answer = match conn.run(&call).await {
            Ok(value) => answer(claim, Reply::new(value)?),
            Err(error) if error.fault == Fault::Unknown => return Err(error),
            Err(error) => Err(error),
        };
        flight.land();
        self.ears.waits(claim.id, matches!(answer, Ok(Answer::Waiting(_))));
        answer
    }

    fn claim_call(&self, claim: &Claim, how: How, keys: Keys) -> Result<Call, EngineError> {
        let (mode, count, limit) = match claim.mode {
            Mode::Exclusive => ("x", 1, 0),
            Mode::Shared => ("s", 1, 0),
            Mode::Permits { count, limit } if (1..=limit).contains(&count) => ("p", count, limit),
            _ => return Err(EngineError::new(Fault::Internal, format!("{} cannot be granted", claim.mode))),
        };
        let call = Call::new(Script::Claim)
            .key(keys.lock)
            .text(keys.side)
            .text(claim.id.to_string())
            .text(if how == How::Ask { "ask" } else { "create" })
            .text(mode)
            .number(count.into())
            .number(limit.into())
            .number(claim.ttl.as_millis())
            .number(claim.claim_time.min(claim.ttl).as_millis())
            .number(entry_life(claim.ttl).as_millis())
            .number(claim.may_queue.into())
            .number(claim.tokens.clamp(1, leasehold_core::queue::MAX_TOKENS).into())
            .text(self.channel.as_str())
            .text(claim.owner.as_bytes());
        Ok(call)
    }

    async fn renew_some(&self, holds: &[Hold]) -> Vec<Renewed> {
        let told = async {
            let mut call = Call::new(Script::Renew);
            for hold in holds {
                let keys = self.keys(&hold.name)?;
                call = call.key(keys.lock).text(keys.side).text(hold.id.to_string());
                call = call.number(hold.token.number.into()).number(hold.ttl.as_millis());
            }
            answers(&*self.link.conn().await?, &call, holds.len()).await
        };
        match told.await {
            Ok(words) => words.iter().zip(holds).map(|(word, hold)| renewed(word, hold)).collect(),
            Err(error) => holds.iter().map(|_| Renewed::Unknown(same(&error))).collect(),
        }
    }

    async fn release_some(&self, releases: &[Release]) -> Vec<Released> {
        let told = async {
            let conn = self.link.conn().await?;
            let now = self.clock.now();
            let mut call = Call::new(Script::Release);
            for release in releases {
                let keys = self.keys(&release.name)?;
                let bury = self.flights.release(release.id, conn.number, now, now.after(REQUEST_LIFE));
                self.ears.waits(release.id, false);
                let token = release.token.map(|token| token.number.to_string()).unwrap_or_default();
                call = call.key(keys.lock).text(keys.side).text(release.id.to_string()).text(token);
                call = call.text(letter(release.ended)).number(release.keep.unwrap_or_default().as_millis());
                call = call.number(bury.into());
            }
            answers(&conn, &call, releases.len()).await
        };
        match told.await {
            Ok(words) => words.iter().zip(releases).map(|(word, release)| self.released(word, release)).collect(),
            Err(error) => releases.iter().map(|_| Released::Unknown(same(&error))).collect(),
        }
    }

    fn released(&self, word: &str, release: &Release) -> Released {
        let released = match word {
            "freed" => Released::Freed,
            "absent" | "layout" => Released::NotThere,
            error if is_foreign_type(error) => Released::NotThere,
            error => return Released::Unknown(said_in_script(error)),
        };
        self.flights.settle(release.id);
        released
    }
}

impl Engine for RedisEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(self.claim_now(claim, how))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            join_all(holds.chunks(BATCH).map(|holds| self.renew_some(holds))).await.into_iter().flatten().collect()
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            let batches = releases.chunks(BATCH).map(|releases| self.release_some(releases));
            join_all(batches).await.into_iter().flatten().collect()
        })
    }

    fn news(&self) -> BoxFuture<'_, Vec<News>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                news = self.ears.mailbox.read() => news,
                () = self.link.mend() => Vec::new(),
            }
        })
    }
}

fn answer(claim: &Claim, mut reply: Reply) -> Result<Answer, EngineError> {
    let _server_time = reply.number()?;
    match reply.text()?.as_str() {
        "held" => {
            let token = Token { lineage: LINEAGE, number: reply.count()? };
            let tokens = reply.count()?;
            let ttl = reply.millis()?;
            Ok(Answer::Held(Grant { token, tokens, ttl, previous: previous(&reply.text()?) }))
        }
        "waiting" => Ok(Answer::Waiting(hint(&mut reply)?)),
        "taken" => Ok(Answer::Taken(hint(&mut reply)?)),
        "gone" => Ok(Answer::Gone),
        "clash" => {
            let (_, limit) = (reply.text()?, reply.number()?);
            let found = if limit > 0 { format!("a semaphore of {limit}") } else { "a lock".to_owned() };
            Err(EngineError::new(
                Fault::Misconfigured,
                format!(
                    "it is in use now as {found} and cannot be claimed as {}: one name is one kind of lock with one limit",
                    claim.mode
                ),
            ))
        }
        "full" => Err(EngineError::new(Fault::Refused, "too many claims stand in line already")),
        _ => Err(unknown_layout()),
    }
}

pub(crate) fn unknown_layout() -> EngineError {
    EngineError::new(
        Fault::Misconfigured,
        "another version of leasehold keeps this lock in a layout that this one does not know: use one version",
    )
}

fn hint(reply: &mut Reply) -> Result<Hint, EngineError> {
    Ok(Hint { ahead: Some(reply.count()?), ask_in: reply.millis()? })
}

fn renewed(word: &str, hold: &Hold) -> Renewed {
    match word {
        "kept" => Renewed::Kept { ttl: Some(hold.ttl) },
        "broken" => Renewed::Lost(Loss::Broken),
        "gone" | "layout" => Renewed::Lost(Loss::Gone),
        error if is_foreign_type(error) => Renewed::Lost(Loss::Gone),
        error => Renewed::Unknown(said_in_script(error)),
    }
}

/// The word that a batch script says of each of its items.
async fn answers(conn: &Conn, call: &Call, items: usize) -> Result<Vec<String>, EngineError> {
    let mut reply = Reply::new(conn.run(call).await?)?;
    let _server_time = reply.number()?;
    (0..items).map(|_| reply.text()).collect()
}

fn same(error: &EngineError) -> EngineError {
    EngineError::new(error.fault, error.message.clone())
}

fn profile() -> Profile {
    let mut profile = Profile::new("redis");
    profile.life = Life::Lease;
    profile.push = true;
    profile.poll = POLL;
    profile.token_blocks = true;
    profile.fifo = true;
    profile.can_keep = true;
    profile.breaking = Breaking::Lease;
    profile.ttl = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
    profile.request_timeout = REQUEST_TIMEOUT;
    profile.request_life = REQUEST_LIFE;
    profile
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEngine").field("config", self.link.config()).finish_non_exhaustive()
    }
}
