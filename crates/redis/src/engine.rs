//! The engine: one client of the servers of a URL, and its claims.

use std::{fmt, sync::Arc, time::Duration};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Breaking, Claim, ClaimId, Contact, Conversions, Engine, EngineError, Env,
    Fault, Grant, Hint, Hold, How, InFlight, KnownMode, Life, MAX_NAMES_AT_ONCE, Memos, Name, Notification,
    Previous, Profile, Release, Released, Renewed, Token, cannot_claim_all,
    lock_state::{WATCHERS, entry_life},
};

use crate::{
    config::{Config, StaleDeadline},
    conn::Conn,
    contention::Contention,
    error::script_error,
    keys::Keys,
    layout::Layout,
    memo_followers::{FollowEnd, FollowTask, MemoFollowers},
    previous,
    reach::{Client, Reach, Route},
    reply::{Reply, unreadable},
    runtime,
    scripts::{Item, Script, millis},
    token_counter::LINEAGE,
};

/// The range of the poll interval of a waiting claim. A release pushes the grant to the next waiter, so polling is
/// needed only if a push is lost, or while another program holds the lock.
const POLL_INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(250)..=Duration::from_secs(2);
/// The number of tokens of a grant: one for the claim itself, and one for each of the up to 256 tasks of this process
/// to which the hold is handed over before another process gets the lock. A hand-over to another process costs as much
/// as some hundred hand-overs within a process: with only 64 tokens for each grant, the hand-overs to other processes
/// took most of the time in a measurement.
const TOKENS_PER_GRANT: u32 = 1 + 256;
/// The time limit of a request: without an answer by then, its outcome is unknown.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Why locks of Redisson are not converted.
const NO_CONVERSION_OF_REDISSON: &str =
    "a lock of Redisson changes its mode only by a release, after which another client may take it";
/// How often at most a claim is sent again because its client was not yet subscribed to notifications. More attempts
/// are needed only while a slot moves back and forth between servers; in that case polling finds the grant.
const MAX_LISTEN_RETRIES: u32 = 3;
/// For how long after a request was sent the server may still receive and execute it. `lua/name.lua` stores tombstones
/// for the same time.
pub(crate) const REQUEST_LIFE: Duration = Duration::from_secs(10);

/// Locks on the Redis servers of one URL: one server, the master that Sentinels name, or a Redis Cluster.
pub struct RedisEngine {
    pub(crate) client: Arc<Client>,
    /// Finds the server that answers for a name.
    pub(crate) reach: Arc<Reach>,
    /// The requests that can still arrive at a server after their claim ended.
    pub(crate) in_flight: InFlight,
    /// The slots where the fast path failed lately.
    pub(crate) contention: Contention,
    /// What a release does for other programs, as arguments of `lua/release.lua`: the gap, and the waiters to wake.
    pub(crate) for_others: String,
    /// The memos that this client follows.
    pub(crate) followers: Arc<MemoFollowers>,
    /// Ends the task of these memos.
    _follow_end: FollowEnd,
    profile: Profile,
}

impl RedisEngine {
    /// Creates a client of the servers. The first request makes the first connection.
    ///
    /// The futures of this engine need a tokio runtime with timers and I/O, such as the keeper's.
    #[must_use]
    pub fn new(config: Config, env: &Env) -> Self {
        // The default gap is "a" (automatic): see `lua/release.lua`.
        let mut for_others = config.gap.map_or_else(|| "a".to_owned(), |gap| millis(gap).to_string());
        if !config.wake_words().is_empty() {
            for_others += " ";
            for_others += config.wake_words();
        }
        let client = Client::new(config, ClaimId(env.lineage().get().to_be_bytes()), Arc::clone(&env.clock));
        let contact = Contact::default();
        let reach = Arc::new(Reach::new(&client, contact.clone()));
        let (in_flight, contention) = Default::default();
        let followers = Arc::<MemoFollowers>::default();
        let profile = profile(contact, client.config.layout);
        let _follow_end = FollowEnd(Arc::clone(&followers));
        Self { client, reach, in_flight, contention, for_others, followers, _follow_end, profile }
    }

    /// The keys of a name; an error if the prefix, the layout or a Redis Cluster allows no lock of this name.
    pub(crate) fn keys<'a>(&'a self, name: &'a Name) -> Result<Keys<'a>, EngineError> {
        let config = &self.client.config;
        let mut keys = Keys::of(&config.prefix, name)?;
        config.layout.check(&keys, name, self.reach.shares_slots())?;
        keys.layout_letter = config.layout.layout_letter();
        Ok(keys)
    }

    /// Claims a name: by the fast path if the name is likely to be free, otherwise by the full script.
    async fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let keys = self.keys(&claim.name)?;
        if self.in_flight.is_released(claim.id, self.client.clock.now()) {
            self.reach.stop_waiting(keys.slot, claim.id);
            return Ok(Answer::Gone);
        }
        if self.may_use_fast_path(keys.slot, claim, how) {
            let route = match self.reach.ready_route(keys.slot) {
                Some(route) => route,
                None => Box::pin(self.reach.route(keys.slot)).await?,
            };
            if let Some(grant) = self.claim_fast(&route, &keys, claim).await? {
                if route.conn.needs_replicas() {
                    return Box::pin(self.wait_for_replicas(&route, claim, grant)).await;
                }
                return Ok(Answer::Held(grant));
            }
        }
        // Boxed, because most claims never need this future, and allocators are fast for little memory only.
        Box::pin(self.claim_full(claim, how, &keys)).await
    }

    /// Claims a name with the full script.
    pub(crate) async fn claim_full(
        &self,
        claim: &Claim,
        how: How,
        keys: &Keys<'_>,
    ) -> Result<Answer, EngineError> {
        let mut request = self.reach.request(keys.slot);
        // A waiter must receive notifications: a release grants nothing to a claim whose client does not listen. Where
        // a subscription costs a request, the claim is first sent without a subscription. If the claim must wait, the
        // client subscribes and sends the claim again. With `How::Ask` the claim may be waiting already, so the client
        // must listen before it sends the request.
        let (mut must_listen, mut retries) = (how == How::Ask, 0);
        let (route, reply) = loop {
            let route = request.route().await?;
            if must_listen
                && !route.is_subscribed().await?
                && let Err(refused) = route.subscribe().await
            {
                request.retry(refused).await?;
                continue;
            }
            let is_listening = route.is_subscribed().await?;
            let item =
                self.claim_item(keys, claim, how, is_listening, &route.channel(&self.client).await?)?;
            let in_flight = self.in_flight.start(claim.id, route.conn.number, self.client.clock.now());
            match route.run(Script::Claim, [item].into()).await {
                Ok(reply) => {
                    in_flight.complete();
                    let reply = Reply::new(reply).text()?;
                    let is_waiting = reply.starts_with("waiting ");
                    let is_taken = is_waiting || reply.starts_with("taken ");
                    route.set_waiting(claim.id, &claim.name, is_waiting);
                    if is_taken {
                        self.contention.note(keys.slot, self.client.clock.now());
                    }
                    // The claim is sent again after the client has subscribed: a notification between the first attempt
                    // and the subscription may have been missed.
                    let may_wait = claim.may_queue && is_taken;
                    if may_wait
                        && retries < MAX_LISTEN_RETRIES
                        && !(is_listening && route.is_subscribed().await?)
                    {
                        (must_listen, retries) = (true, retries + 1);
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
        let answer = match read_answer(claim, &reply, self.client.config.layout) {
            Ok(Answer::Held(grant)) => self.wait_for_replicas(&route, claim, grant).await,
            answer => answer,
        };
        if let Ok(Answer::Waiting(Hint { ahead: Some(ahead), .. })) = answer
            // The last word is not 0: another program holds the name.
            && !reply.ends_with(" 0")
            && (ahead as usize) < WATCHERS
        {
            self.watch(&route.conn, keys, claim).await;
        }
        answer
    }

    /// Returns the grant when the configured number of replicas has stored it. If too few replicas have stored the
    /// grant, releases it and returns an error.
    async fn wait_for_replicas(
        &self,
        route: &Route,
        claim: &Claim,
        grant: Grant,
    ) -> Result<Answer, EngineError> {
        let Err(error) = route.conn.wait_for_replicas(route.destination).await else {
            return Ok(Answer::Held(grant));
        };
        let (token, ended) = (Some(grant.token), Previous::Clean);
        let (name, id, mode) = (claim.name.clone(), claim.id, claim.mode);
        let release = Release { name, id, mode, token, min_hold: None, ended };
        match self.release_valid_names(&[release]).await[..] {
            [Released::Unknown(_)] => Err(error),
            _ => Err(EngineError::new(Fault::Retry, error.message)),
        }
    }

    /// Asks the server to report changes of a lock that another program holds; called for a claim near the head of the
    /// queue. If the server cannot report changes, polling finds them. Several claims near the head of the queue watch
    /// the lock, because the process of the first waiter may hang, or its machine may have failed without notice.
    async fn watch(&self, conn: &Conn, keys: &Keys<'_>, claim: &Claim) {
        let lock = keys.lock();
        conn.listener.claims.watch(lock.clone(), claim.id);
        // The lock was gone before the server tracked it.
        if let Ok(true) = conn.track(&lock).await {
            conn.listener.recheck_watchers(&lock);
        }
    }

    /// The arguments of the claim script for a claim. `is_listening`: the client is subscribed to `channel`, so the
    /// claim can be enqueued.
    pub(crate) fn claim_item(
        &self,
        keys: &Keys<'_>,
        claim: &Claim,
        how: How,
        is_listening: bool,
        channel: &str,
    ) -> Result<Item, EngineError> {
        let (mode, count, limit) = match claim.mode.known() {
            KnownMode::Exclusive => ('x', 1, 0),
            KnownMode::Shared => ('s', 1, 0),
            KnownMode::Permits { count, limit } if (1..=limit).contains(&count) => ('p', count, limit),
            KnownMode::Permits { .. } => {
                return Err(EngineError::new(Fault::Internal, format!("{} cannot be granted", claim.mode)));
            }
        };
        // In the order of the request text in `lua/claim.lua`.
        let arguments = format_args!(
            "{} {mode} {count} {limit} {} {} {} {} {} {} {} {}",
            if how == How::Ask { "ask" } else { "create" },
            millis(claim.ttl),
            millis(claim.claim_time.min(claim.ttl)),
            millis(entry_life(claim.ttl)),
            u8::from(claim.may_queue && is_listening),
            u8::from(self.client.config.stale_deadline == StaleDeadline::Reclaim),
            claim.tokens.clamp(1, leasehold_core::lock_state::MAX_TOKENS),
            channel,
            claim.owner,
        );
        Ok(Item::new(keys).id(claim.id).formatted(arguments))
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

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        if self.profile.claims_at_once == 1 {
            return cannot_claim_all();
        }
        Box::pin(self.claim_all_now(claims))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(self.renew_now(holds))
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            let answers = self.release_now(releases).await;
            for name in self.followers.ended_writers(releases, &answers) {
                Box::pin(self.notify_followers(name)).await;
            }
            answers
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                notification = self.client.mailbox.read() => notification,
                () = self.reach.mend() => Vec::new(),
                () = self.followers.begun() => {
                    let (client, reach) = (Arc::clone(&self.client), Arc::clone(&self.reach));
                    runtime::detach(FollowTask { client, reach, followers: Arc::clone(&self.followers) }.run());
                    Vec::new()
                }
            }
        })
    }

    fn memos(&self) -> Option<&dyn Memos> {
        Some(self)
    }

    fn conversions(&self) -> Option<&dyn Conversions> {
        self.profile.no_conversion.is_none().then_some(self)
    }
}

/// Reads the script's answer to a claim, see `lua/claim.lua`.
pub(crate) fn read_answer(claim: &Claim, reply: &str, layout: Layout) -> Result<Answer, EngineError> {
    let mut words = reply.split(' ');
    let outcome = words.next().unwrap_or_default();
    match outcome {
        "held" => read_grant(words).ok_or_else(unreadable),
        "waiting" => Ok(Answer::Waiting(read_hint(words, layout).ok_or_else(unreadable)?)),
        "taken" => Ok(Answer::Taken(read_hint(words, layout).ok_or_else(unreadable)?)),
        "gone" => Ok(Answer::Gone),
        "clash" => {
            // The limit of the lock that is there now; 0 for a mutex or read-write lock.
            let present_kind = match words.next() {
                None | Some("0") => "a mutex or read-write lock".to_owned(),
                Some(limit) => format!("a semaphore of {limit}"),
            };
            Err(EngineError::new(
                Fault::Misconfigured,
                format!(
                    "it is in use now as {present_kind} and cannot be claimed as {}: one name is one kind of lock with one limit",
                    claim.mode
                ),
            ))
        }
        "full" => Err(EngineError::new(Fault::Refused, "the queue is full: too many claims wait already")),
        "counter" => Err(EngineError::new(Fault::Misconfigured, layout.counter_error_text())),
        "layout" => Err(unknown_layout()),
        _ => Err(script_error(reply)),
    }
}

/// Reads the words after `held` in the answer to a claim; `None` if they are malformed.
fn read_grant<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Answer> {
    let token = Token { lineage: LINEAGE, number: words.next()?.parse().ok()? };
    let tokens = words.next()?.parse().ok()?;
    let ttl = Some(Duration::from_millis(words.next()?.parse().ok()?));
    Some(Answer::Held(Grant { token, tokens, ttl, previous: previous::from_letter(words.next()?) }))
}

/// Reads the words after `waiting` or `taken` in the answer to a claim; `None` if they are malformed.
fn read_hint<'a>(mut words: impl Iterator<Item = &'a str>, layout: Layout) -> Option<Hint> {
    let ahead = words.next()?.parse().ok()?;
    let free_in: i64 = words.next()?.parse().ok()?;
    // The word `foreign` of `lua/claim.lua`.
    let obstacle = match words.next()? {
        "2" => Some(layout.obstacle_not_a_lock()),
        "3" => Some(layout.obstacle_other_layout()),
        _ => None,
    };
    Some(Hint {
        ahead: Some(ahead),
        ask_in: u64::try_from(free_in).ok().map(Duration::from_millis),
        obstacle,
    })
}

/// The error for a record of another version of leasehold that this version cannot read.
pub(crate) fn unknown_layout() -> EngineError {
    EngineError::new(
        Fault::Misconfigured,
        "another version of leasehold stores this lock in a layout that this version does not know: use one version",
    )
}

/// The properties of this engine, as the crate `leasehold_core` reads them.
fn profile(contact: Contact, layout: Layout) -> Profile {
    let mut profile = Profile::new("redis");
    profile.life = Life::Lease;
    profile.push = true;
    profile.direct = true;
    profile.poll = POLL_INTERVALS;
    profile.tokens = TOKENS_PER_GRANT;
    // The script for several names supports only locks that are strings.
    profile.claims_at_once = if layout == Layout::Plain { MAX_NAMES_AT_ONCE } else { 1 };
    profile.fifo = true;
    profile.supports_min_hold = true;
    profile.no_memos = None;
    profile.no_conversion = (layout == Layout::Redisson).then_some(NO_CONVERSION_OF_REDISSON);
    profile.no_handles = None;
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
