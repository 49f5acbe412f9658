//! The engine: one client of the servers of a URL, and its claims.

use std::{fmt, sync::Arc, time::Duration};

use leasehold_core::{
    Answer, BoxFuture, Breaking, Claim, ClaimId, Contact, Engine, EngineError, Env, Fault, Grant, Hint, Hold,
    How, InFlight, Life, Mode, Name, Notification, Previous, Profile, Release, Released, Renewed, Token,
    lock_state::{WATCHERS, entry_life},
};

use crate::{
    config::Config,
    conn::Conn,
    contention::Contention,
    error::script_error,
    keys::Keys,
    layout::Layout,
    previous,
    reach::{Client, Reach, Route},
    reply::{Reply, unreadable},
    scripts::{Item, Script, millis},
    token_counter::LINEAGE,
};

/// The poll intervals of waiting claims. Grants are pushed, so polling only covers lost pushes and foreign locks.
const POLL: std::ops::RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(2);
/// The tokens of a grant: one for the claim itself, and one for each of 256 tasks of this process before another
/// process gets the name. A hand-over to another process costs as much as some hundred hand-overs within a process:
/// with 64 tokens it took most of the time.
const TOKENS: u32 = 1 + 256;
/// How long a request may take before its outcome is unknown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a claim is sent again because its client did not receive notifications yet. More attempts are needed only
/// while a slot moves to and fro, and polling covers that case.
const MOST_TRIES: u32 = 3;
/// How long after it was sent a request may still be applied. `lua/name.lua` stores tombstones for the same time.
pub(crate) const REQUEST_LIFE: Duration = Duration::from_secs(10);

/// Locks on one Redis server.
pub struct RedisEngine {
    pub(crate) client: Arc<Client>,
    pub(crate) reach: Reach,
    pub(crate) in_flight: InFlight,
    pub(crate) contention: Contention,
    /// What a release does for other programs, as `lua/release.lua` reads it.
    pub(crate) for_others: String,
    profile: Profile,
}

impl RedisEngine {
    /// Creates a client of the server. The first request makes the first contact.
    ///
    /// The futures of this engine need a tokio runtime with timers and I/O, such as the keeper's.
    #[must_use]
    pub fn new(config: Config, env: &Env) -> Self {
        let mut for_others = config.gap.map_or_else(|| "a".to_owned(), |gap| millis(gap).to_string());
        if !config.wake_words().is_empty() {
            for_others += " ";
            for_others += config.wake_words();
        }
        let client = Client::new(config, ClaimId(env.lineage().get().to_be_bytes()), Arc::clone(&env.clock));
        let contact = Contact::default();
        let reach = Reach::new(&client, contact.clone());
        let (in_flight, contention) = Default::default();
        Self { client, reach, in_flight, contention, for_others, profile: profile(contact) }
    }

    pub(crate) fn keys<'a>(&'a self, name: &'a Name) -> Result<Keys<'a>, EngineError> {
        let config = &self.client.config;
        let mut keys = Keys::of(&config.prefix, name)?;
        config.layout.check(&keys, name, self.reach.shares_slots())?;
        keys.mark = config.layout.mark();
        Ok(keys)
    }

    async fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let keys = self.keys(&claim.name)?;
        if self.in_flight.is_released(claim.id, self.client.clock.now()) {
            self.reach.waits_no_more(keys.slot, claim.id);
            return Ok(Answer::Gone);
        }
        if self.may_use_fast_path(keys.slot, claim, how) {
            let route = match self.reach.ready_route(keys.slot) {
                Some(route) => route,
                None => Box::pin(self.reach.route(keys.slot)).await?,
            };
            if let Some(grant) = self.claim_fast(&route, &keys, claim).await? {
                if route.conn.waits_for_replicas() {
                    return Box::pin(self.replicated(&route, claim, grant)).await;
                }
                return Ok(Answer::Held(grant));
            }
        }
        // Boxed, because most claims never need it, and allocators are fast for little memory only.
        Box::pin(self.claim_full(claim, how, &keys)).await
    }

    /// Claims a name with the whole script.
    async fn claim_full(&self, claim: &Claim, how: How, keys: &Keys<'_>) -> Result<Answer, EngineError> {
        let mut request = self.reach.request(keys.slot);
        // A waiter must receive notifications: a grant passes over a claim whose client does not listen. Where
        // listening costs a request, a claim without it first tries, then listens, and then enqueues or asks.
        let (mut listens, mut tries) = (how == How::Ask, 0);
        let (route, reply) = loop {
            let route = request.route().await?;
            if listens
                && !route.is_listening().await?
                && let Err(refused) = route.listen().await
            {
                request.retry(refused).await?;
                continue;
            }
            let is_listening = route.is_listening().await?;
            let item =
                self.claim_item(keys, claim, how, is_listening, &route.channel(&self.client).await?)?;
            let in_flight = self.in_flight.start(claim.id, route.conn.number, self.client.clock.now());
            match route.run(Script::Claim, [item].into()).await {
                Ok(reply) => {
                    in_flight.complete();
                    let reply = Reply::new(reply).text()?;
                    let waits = reply.starts_with("waiting ");
                    let is_taken = waits || reply.starts_with("taken ");
                    route.waits(claim.id, &claim.name, waits);
                    if is_taken {
                        self.contention.note(keys.slot, self.client.clock.now());
                    }
                    // Once more, now listening: notifications since the first attempt may have been missed.
                    let may_wait = claim.may_queue && is_taken;
                    if may_wait && tries < MOST_TRIES && !(is_listening && route.is_listening().await?) {
                        (listens, tries) = (true, tries + 1);
                        continue;
                    }
                    break (route, reply);
                }
                Err(refused) if refused.is_unknown() => return Err(refused.into()),
                Err(refused) => {
                    in_flight.complete();
                    request.retry(refused).await?;
                }
            }
        };
        let answer = match answer(claim, &reply, self.client.config.layout) {
            Ok(Answer::Held(grant)) => self.replicated(&route, claim, grant).await,
            answer => answer,
        };
        if let Ok(Answer::Waiting(Hint { ahead: Some(ahead), .. })) = answer
            && !reply.ends_with(" 0")
            && (ahead as usize) < WATCHERS
        {
            self.watch(&route.conn, keys, claim).await;
        }
        answer
    }

    /// Returns the grant when the wanted number of replicas has it. A grant that too few replicas have is given back.
    async fn replicated(&self, route: &Route, claim: &Claim, grant: Grant) -> Result<Answer, EngineError> {
        let Err(error) = route.conn.replicated(route.to).await else { return Ok(Answer::Held(grant)) };
        let (token, ended) = (Some(grant.token), Previous::Clean);
        let (name, id, mode) = (claim.name.clone(), claim.id, claim.mode);
        let release = Release { name, id, mode, token, min_hold: None, ended };
        match self.release_real(&[release]).await[..] {
            [Released::Unknown(_)] => Err(error),
            _ => Err(EngineError::new(Fault::Retry, error.message)),
        }
    }

    /// The claim is near the head of the queue of a lock that another program holds: asks the server to report when the
    /// lock changes. If the server cannot, polling finds the change. More claims than the first watch, because the
    /// first one's process may hang, or its machine may be gone without notice.
    async fn watch(&self, conn: &Conn, keys: &Keys<'_>, claim: &Claim) {
        let lock = keys.lock();
        conn.listener.claims.watch(lock.clone(), claim.id);
        if let Ok(true) = conn.track(&lock).await {
            conn.listener.changed(&lock);
        }
    }

    /// `is_listening`: the client would receive notifications about its queue entry, on this channel.
    fn claim_item(
        &self,
        keys: &Keys<'_>,
        claim: &Claim,
        how: How,
        is_listening: bool,
        channel: &str,
    ) -> Result<Item, EngineError> {
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
            u8::from(claim.may_queue && is_listening),
            claim.tokens.clamp(1, leasehold_core::lock_state::MAX_TOKENS),
            channel,
            claim.owner,
        );
        Ok(Item::new(keys).id(claim.id).words(asked))
    }
}

impl Engine for RedisEngine {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        let keys = self.reach.shares_slots().then(|| self.keys(name))?;
        keys.ok().map(|keys| keys.slot)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(self.claim_now(claim, how))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(self.renew_now(holds))
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(self.release_now(releases))
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                notification = self.client.mailbox.read() => notification,
                () = self.reach.mend() => Vec::new(),
            }
        })
    }
}

/// Reads the script's answer to a claim, see `lua/claim.lua`.
fn answer(claim: &Claim, reply: &str, layout: Layout) -> Result<Answer, EngineError> {
    let mut words = reply.split(' ');
    let what = words.next().unwrap_or_default();
    match what {
        "held" => held(words).ok_or_else(unreadable),
        "waiting" => Ok(Answer::Waiting(hint(words, layout).ok_or_else(unreadable)?)),
        "taken" => Ok(Answer::Taken(hint(words, layout).ok_or_else(unreadable)?)),
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
        "full" => Err(EngineError::new(Fault::Refused, "the queue is full: too many claims wait already")),
        "counter" => Err(EngineError::new(Fault::Misconfigured, layout.no_counter())),
        "layout" => Err(unknown_layout()),
        _ => Err(script_error(reply)),
    }
}

fn held<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Answer> {
    let token = Token { lineage: LINEAGE, number: words.next()?.parse().ok()? };
    let tokens = words.next()?.parse().ok()?;
    let ttl = Some(Duration::from_millis(words.next()?.parse().ok()?));
    Some(Answer::Held(Grant { token, tokens, ttl, previous: previous::of_letter(words.next()?) }))
}

fn hint<'a>(mut words: impl Iterator<Item = &'a str>, layout: Layout) -> Option<Hint> {
    let ahead = words.next()?.parse().ok()?;
    let free_in: i64 = words.next()?.parse().ok()?;
    let obstacle = match words.next()? {
        "2" => Some(layout.no_lock()),
        "3" => Some(layout.other_layout()),
        _ => None,
    };
    Some(Hint {
        ahead: Some(ahead),
        ask_in: u64::try_from(free_in).ok().map(Duration::from_millis),
        obstacle,
    })
}

pub(crate) fn unknown_layout() -> EngineError {
    EngineError::new(
        Fault::Misconfigured,
        "another version of leasehold stores this lock in a layout that this version does not know: use one version",
    )
}

fn profile(contact: Contact) -> Profile {
    let mut profile = Profile::new("redis");
    profile.life = Life::Lease;
    profile.push = true;
    profile.direct = true;
    profile.poll = POLL;
    profile.tokens = TOKENS;
    profile.fifo = true;
    profile.supports_min_hold = true;
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
