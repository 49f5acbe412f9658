//! One client of a server.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{
    Answer, BoxFuture, Breaking, Claim, ClaimId, Contact, Engine, EngineError, Env, Fault, Flights, Grant,
    Hint, Hold, How, Life, Loss, Mode, News, Previous, Profile, Release, Released, Renewed, Token,
    queue::{WATCHERS, entry_life},
};

use crate::{
    config::Config,
    conn::Conn,
    error::{is_foreign_type, said_in_script},
    keys::Keys,
    news::{LINEAGE, letter, previous},
    outbox::{BATCH, To, Values},
    reach::{Client, Reach, Via},
    reply::{Reply, unreadable},
    scripts::{Item, Script, millis},
};

/// The paces at which waiting claims are asked. Grants are pushed, so this is a net for pushes that were lost and for
/// foreign locks.
const POLL: std::ops::RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(2);
/// Its own, and one for each of 256 tasks of this process before another gets its turn. The way to the other costs as much as
/// some hundred hand-overs within a process: with 64 of them it was most of the time.
const TOKENS: u32 = 1 + 256;
/// How long a request may take before its outcome is unknown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// What is told of a key that other programs may use for something else.
const NO_LOCK: &str = "the key of this lock holds something else than a string, without an expiry: delete it, or choose another name or prefix";
/// How long after it was sent a request may still be applied; `lua/name.lua` keeps tombstones as long.
const REQUEST_LIFE: Duration = Duration::from_secs(10);

/// Locks on one Redis server.
pub struct RedisEngine {
    pub(crate) client: Arc<Client>,
    pub(crate) reach: Reach,
    flights: Flights,
    /// What a release is to do for other programs, as `lua/release.lua` reads it.
    for_others: String,
    profile: Profile,
}

impl RedisEngine {
    /// A client of the server. It is contacted at the first request, not here.
    ///
    /// The futures of this engine run on a tokio runtime with its timers and I/O, as the keeper's.
    #[must_use]
    pub fn new(config: Config, env: &Env) -> Self {
        let mut for_others = config.gap.map_or_else(|| "a".to_owned(), |gap| millis(gap).to_string());
        let bell = config.bell.as_ref().map_or("", |(_, words)| words);
        if !bell.is_empty() {
            for_others += " ";
            for_others += bell;
        }
        let client = Client::new(config, ClaimId(env.lineage().get().to_be_bytes()), Arc::clone(&env.clock));
        let contact = Contact::default();
        let reach = Reach::new(&client, contact.clone());
        Self { client, reach, flights: Flights::default(), for_others, profile: profile(contact) }
    }

    pub(crate) fn keys<'a>(&'a self, name: &'a leasehold_core::Name) -> Result<Keys<'a>, EngineError> {
        Keys::of(&self.client.config.prefix, name)
    }

    /// The slot of these names, which are all in one where servers share the slots.
    fn slot(&self, first: Option<&leasehold_core::Name>) -> Result<u16, EngineError> {
        first.map_or(Ok(0), |name| self.keys(name).map(|keys| keys.slot))
    }

    async fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        if self.flights.is_released(claim.id, self.client.clock.now()) {
            self.reach.waits_no_more(claim.id);
            return Ok(Answer::Gone);
        }
        let keys = self.keys(&claim.name)?;
        let mut way = self.reach.way(keys.slot);
        let (conn, said) = loop {
            let via = way.via().await?;
            let item = self.claim_item(&keys, claim, how)?;
            let flight = self.flights.start(claim.id, via.conn.number, self.client.clock.now());
            match via.run(Script::Claim, [item].into()).await {
                Ok(said) => {
                    flight.land();
                    break (via.conn, Reply::new(said).text()?);
                }
                Err(refused) if refused.is_unknown() => return Err(refused.into()),
                Err(refused) => {
                    flight.land();
                    way.again(refused).await?;
                }
            }
        };
        let answer = match answer(claim, &said) {
            Ok(Answer::Held(grant)) => self.replicated(&conn, claim, grant).await,
            answer => answer,
        };
        conn.ears.waits(claim.id, matches!(answer, Ok(Answer::Waiting(_))));
        if let Ok(Answer::Waiting(Hint { ahead: Some(ahead), .. })) = answer
            && !said.ends_with(" 0")
            && (ahead as usize) < WATCHERS
        {
            self.watch(&conn, &keys, claim).await;
        }
        answer
    }

    /// The grant, once so many replicas have it as are waited for. One that too few have is given back.
    async fn replicated(&self, conn: &Conn, claim: &Claim, grant: Grant) -> Result<Answer, EngineError> {
        let to = To { slot: self.reach.slots(&self.keys(&claim.name)?), ..To::default() };
        let Err(error) = conn.replicated(to).await else { return Ok(Answer::Held(grant)) };
        let (token, ended) = (Some(grant.token), Previous::Clean);
        let (name, id, mode) = (claim.name.clone(), claim.id, claim.mode);
        let release = Release { name, id, mode, token, keep: None, ended };
        match self.release_real(&[release]).await[..] {
            [Released::Unknown(_)] => Err(error),
            _ => Err(EngineError::new(Fault::Retry, error.message)),
        }
    }

    /// The claim is among the first in line for a lock that another program holds: the server is to say when that ends. If it
    /// cannot, asking finds it. Not the first alone, because its process may hang, or its machine be gone without a word.
    async fn watch(&self, conn: &Conn, keys: &Keys<'_>, claim: &Claim) {
        let lock = keys.lock();
        conn.ears.watch(lock.clone(), claim.id);
        if let Ok(true) = conn.track(&lock).await {
            conn.ears.changed(&lock);
        }
    }

    fn claim_item(&self, keys: &Keys<'_>, claim: &Claim, how: How) -> Result<Item, EngineError> {
        let (mode, count, limit) = match claim.mode {
            Mode::Exclusive => ('x', 1, 0),
            Mode::Shared => ('s', 1, 0),
            Mode::Permits { count, limit } if (1..=limit).contains(&count) => ('p', count, limit),
            _ => return Err(EngineError::new(Fault::Internal, format!("{} cannot be granted", claim.mode))),
        };
        let asked = format_args!(
            "{} {mode} {count} {limit} {} {} {} {} {} {} {}",
            if how == How::Ask { "ask" } else { "create" },
            millis(claim.ttl),
            millis(claim.claim_time.min(claim.ttl)),
            millis(entry_life(claim.ttl)),
            u8::from(claim.may_queue),
            claim.tokens.clamp(1, leasehold_core::queue::MAX_TOKENS),
            self.client.channel,
            claim.owner,
        );
        Ok(Item::new(keys).id(claim.id).words(asked))
    }

    async fn renew_all(&self, holds: &[Hold]) -> Vec<Renewed> {
        let renewed = self.renew_some(holds).await;
        let denied =
            |answer: &Renewed| matches!(answer, Renewed::Unknown(error) if error.fault == Fault::Denied);
        if holds.len() == 1 || !renewed.iter().any(denied) {
            return renewed;
        }
        // As in `release_some`.
        let alone = holds.iter().map(|one| self.renew_some(std::slice::from_ref(one)));
        join_all(alone).await.into_iter().flatten().collect()
    }

    async fn renew_some(&self, holds: &[Hold]) -> Vec<Renewed> {
        let told = async {
            let item = |hold: &Hold| {
                let keys = self.keys(&hold.name)?;
                Ok(Item::new(&keys).grant(hold.id, Some(hold.token)).number(millis(hold.ttl)))
            };
            let slot = self.slot(holds.first().map(|hold| &hold.name))?;
            let items = |_: &Via| holds.iter().map(item).collect();
            words(self.reach.run(slot, Script::Renew, items).await?)
        };
        match told.await {
            Ok(words) => words.iter().zip(holds).map(|(word, hold)| renewed(word, hold)).collect(),
            Err(error) => holds.iter().map(|_| Renewed::Unknown(error.again())).collect(),
        }
    }

    /// A name that no claim can have is nowhere, and holds up no other.
    async fn release_some(&self, releases: &[Release]) -> Vec<Released> {
        let possible = |release: &&Release| self.keys(&release.name).is_ok();
        let real: Vec<Release> = releases.iter().filter(possible).cloned().collect();
        let mut answers = self.release_real(&real).await;
        if real.len() > 1
            && answers
                .iter()
                .any(|answer| matches!(answer, Released::Unknown(error) if error.fault == Fault::Denied))
        {
            // The server refuses a call for one lock that the user may not touch: each by itself.
            let alone = real.iter().map(|one| self.release_real(std::slice::from_ref(one)));
            answers = join_all(alone).await.into_iter().flatten().collect();
        }
        let mut answers = answers.into_iter();
        let answer = |release: &Release| if possible(&release) { answers.next() } else { None };
        releases.iter().map(answer).map(|answer| answer.unwrap_or(Released::NotThere)).collect()
    }

    async fn release_real(&self, releases: &[Release]) -> Vec<Released> {
        releases.iter().for_each(|release| self.reach.waits_no_more(release.id));
        let told = async {
            let slot = self.slot(releases.first().map(|release| &release.name))?;
            let item = |via: &Via, release: &Release| {
                let (keys, now) = (self.keys(&release.name)?, self.client.clock.now());
                let bury = self.flights.release(release.id, via.conn.number, now, now.after(REQUEST_LIFE));
                let (how, keep) = (letter(release.ended), millis(release.keep.unwrap_or_default()));
                let ended = format_args!("{how} {keep} {} {}", u8::from(bury), self.for_others);
                Ok(Item::new(&keys).grant(release.id, release.token).words(ended))
            };
            let items = |via: &Via| releases.iter().map(|release| item(via, release)).collect();
            words(self.reach.run(slot, Script::Release, items).await?)
        };
        match told.await {
            Ok(words) => {
                words.iter().zip(releases).map(|(word, release)| self.released(word, release)).collect()
            }
            Err(error) => releases.iter().map(|_| Released::Unknown(error.again())).collect(),
        }
    }

    fn released(&self, word: &str, release: &Release) -> Released {
        let released = match word {
            "freed" => Released::Freed,
            "unrung" => {
                tracing::warn!(
                    name = release.name.as_str(),
                    "the lock was freed, but its bell did not ring: other programs sleep on. Has the user the rights of docs/engines/redis.md?"
                );
                Released::Freed
            }
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
            join_all(holds.chunks(BATCH).map(|holds| self.renew_all(holds)))
                .await
                .into_iter()
                .flatten()
                .collect()
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
                news = self.client.mailbox.read() => news,
                () = self.reach.mend() => Vec::new(),
            }
        })
    }
}

/// What the script says of a claim, see `lua/claim.lua`.
fn answer(claim: &Claim, said: &str) -> Result<Answer, EngineError> {
    let mut words = said.split(' ');
    let what = words.next().unwrap_or_default();
    match what {
        "held" => held(words).ok_or_else(unreadable),
        "waiting" => Ok(Answer::Waiting(hint(words).ok_or_else(unreadable)?)),
        "taken" => Ok(Answer::Taken(hint(words).ok_or_else(unreadable)?)),
        "gone" => Ok(Answer::Gone),
        "clash" => {
            let found = match words.next() {
                None | Some("0") => "a mutex or read-write lock".to_owned(),
                Some(limit) => format!("a semaphore of {limit}"),
            };
            Err(EngineError::new(
                Fault::Misconfigured,
                format!(
                    "it is in use now as {found} and cannot be claimed as {}: one name is one kind of lock with one limit",
                    claim.mode
                ),
            ))
        }
        "full" => Err(EngineError::new(Fault::Refused, "too many claims stand in line already")),
        "counter" => Err(EngineError::new(
            Fault::Misconfigured,
            "the key of the newest token, leasehold:{}t and the prefix, holds something else: delete it, and tokens go on \
             above the server's clock",
        )),
        "layout" => Err(unknown_layout()),
        _ => Err(said_in_script(said)),
    }
}

fn held<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Answer> {
    let token = Token { lineage: LINEAGE, number: words.next()?.parse().ok()? };
    let tokens = words.next()?.parse().ok()?;
    let ttl = Some(Duration::from_millis(words.next()?.parse().ok()?));
    Some(Answer::Held(Grant { token, tokens, ttl, previous: previous(words.next()?) }))
}

fn hint<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Hint> {
    let ahead = words.next()?.parse().ok()?;
    let free_in: i64 = words.next()?.parse().ok()?;
    let obstacle = (words.next()? == "2").then_some(NO_LOCK);
    Some(Hint {
        ahead: Some(ahead),
        ask_in: u64::try_from(free_in).ok().map(Duration::from_millis),
        obstacle,
    })
}

pub(crate) fn unknown_layout() -> EngineError {
    EngineError::new(
        Fault::Misconfigured,
        "another version of leasehold keeps this lock in a layout that this one does not know: use one version",
    )
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

/// The word that a script says of each of its items.
fn words(said: Values) -> Result<Vec<String>, EngineError> {
    Reply::new(said).all_text()
}

fn profile(contact: Contact) -> Profile {
    let mut profile = Profile::new("redis");
    profile.life = Life::Lease;
    profile.push = true;
    profile.poll = POLL;
    profile.tokens = TOKENS;
    profile.fifo = true;
    profile.can_keep = true;
    profile.breaking = Breaking::Lease;
    profile.ttl = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
    profile.request_timeout = REQUEST_TIMEOUT;
    profile.request_life = REQUEST_LIFE;
    profile.contact = Some(contact);
    profile
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEngine").field("config", &self.client.config).finish_non_exhaustive()
    }
}
