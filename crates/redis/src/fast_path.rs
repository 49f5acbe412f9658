//! The fast path: short scripts claim free names, and release names without waiters. Most claims and releases are of
//! this kind; all others are left to the whole scripts. Short scripts take fewer arguments, and names in any slots of
//! one server, so in a Redis Cluster too many names share one request, where a request of a whole script is about one
//! slot. For an item that it leaves, a short script has done nothing.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use leasehold_core::{
    Claim, EngineError, Grant, How, Mode, Previous, Release, Released, Token, lock_state::MAX_TOKENS,
};

use crate::{
    RedisEngine,
    engine::REQUEST_LIFE,
    error::Refused,
    holds::Batch,
    keys::{Keys, after_tag},
    layout::Layout,
    outbox::{BATCH, Items},
    reach::Route,
    reply::Reply,
    scripts::{Item, Script, millis},
    token_counter::LINEAGE,
};

impl RedisEngine {
    /// The script for a single server, or for a node of a cluster.
    const fn short(&self, of_one: Script, of_node: Script) -> Script {
        if self.reach.shares_slots() { of_node } else { of_one }
    }

    /// Whether to try the short script: if no other claim is known to have wanted a name of this slot lately.
    pub(crate) fn may_use_fast_path(&self, slot: u16, claim: &Claim, how: How) -> bool {
        how == How::Create
            && claim.mode == Mode::Exclusive
            // The short scripts know only the lock that is a string.
            && self.client.config.layout == Layout::Plain
            && !self.contention.is_likely(slot, self.client.clock.now())
    }

    /// The grant, if the name is free and has no waiters; `None` if the whole script must be asked.
    pub(crate) async fn claim_fast(
        &self,
        route: &Route,
        keys: &Keys<'_>,
        claim: &Claim,
    ) -> Result<Option<Grant>, EngineError> {
        let tokens = claim.tokens.clamp(1, MAX_TOKENS);
        let channel = match route.cluster_node {
            None => Cow::Borrowed(&*self.client.channel),
            Some(_) => Box::pin(route.channel(&self.client)).await?,
        };
        let item = Item::claim_of(keys, claim.id).words(format_args!(
            "={} {tokens} {} {}",
            millis(claim.ttl),
            after_tag(&channel),
            claim.owner
        ));
        let in_flight = self.in_flight.start(claim.id, route.conn.number, self.client.clock.now());
        let reply = match route.run(self.short(Script::ClaimFree, Script::ClaimNode), [item].into()).await {
            Err(refused) if refused.is_unknown() => return Err(refused.into()),
            reply => reply,
        };
        in_flight.complete();
        // If the script itself is refused, the whole script gets the reason.
        let Ok(reply) = reply else {
            self.contention.note(keys.slot, self.client.clock.now());
            return Ok(None);
        };
        let first = Reply::new(reply).number()?;
        if first == 0 {
            self.contention.note(keys.slot, self.client.clock.now());
            return Ok(None);
        }
        route.waits(claim.id, &claim.name, false);
        let tokens = if first < 0 { 1 } else { tokens };
        let token = Token { lineage: LINEAGE, number: first.unsigned_abs() };
        let ttl = Some(Duration::from_millis(millis(claim.ttl)));
        Ok(Some(Grant { token, tokens, ttl, previous: Previous::Clean }))
    }

    /// Groups releases by the node that has them. The last group needs the whole script anyway, and has no node.
    pub(crate) fn by_server(
        releases: &[Release],
        found: Vec<Option<Route>>,
    ) -> (Vec<Option<Route>>, Vec<Batch<Release>>) {
        let mut nodes: BTreeMap<u64, (Route, Vec<usize>)> = BTreeMap::new();
        let mut rest = Vec::new();
        for (at, route) in found.into_iter().enumerate() {
            match route {
                Some(route) => nodes.entry(route.conn.number).or_insert((route, Vec::new())).1.push(at),
                None => rest.push(at),
            }
        }
        let batch = |positions: &[usize]| Batch::new(releases, positions);
        let (mut routes, mut batches) = (Vec::new(), Vec::new());
        for (route, positions) in nodes.into_values() {
            for positions in positions.chunks(BATCH) {
                routes.push(Some(route.clone()));
                batches.push(batch(positions));
            }
        }
        if !rest.is_empty() {
            routes.push(None);
            batches.push(batch(&rest));
        }
        (routes, batches)
    }

    /// The node to which the short release is sent: only if, as far as we know, nothing but the lock and its record
    /// must go, and no client must be notified. Does not wait for a connection: the whole script does that.
    pub(crate) fn node_of(&self, release: &Release) -> Option<Route> {
        let keys = self.keys(&release.name).ok()?;
        let now = self.client.clock.now();
        let plain = release.mode == Mode::Exclusive
            && release.min_hold.is_none()
            && release.ended == Previous::Clean
            && release.token.is_some()
            && ["a", "0"].contains(&&*self.for_others)
            && !self.contention.is_likely(keys.slot, now);
        let route = self.reach.ready_route(keys.slot).filter(|_| plain)?;
        let wants_tombstone =
            self.in_flight.release(release.id, route.conn.number, now, now.after(REQUEST_LIFE));
        (!wants_tombstone).then_some(route)
    }

    /// Releases by the short script on this connection; `None` for each that is left to the whole script.
    pub(crate) async fn release_fast(&self, route: &Route, releases: &[Release]) -> Vec<Option<Released>> {
        let reply = async {
            let item = |release: &Release| {
                let keys = self.keys(&release.name)?;
                self.reach.waits_no_more(keys.slot, release.id);
                Ok(Item::release_of(&keys, release.id, release.token))
            };
            let items = releases.iter().map(item).collect::<Result<Items, _>>().map_err(Refused::Failed)?;
            let mut reply =
                Reply::new(route.run(self.short(Script::ReleaseFree, Script::ReleaseNode), items).await?);
            releases.iter().map(|_| reply.number()).collect::<Result<Vec<_>, _>>().map_err(Refused::Failed)
        };
        match reply.await {
            Ok(reply) => {
                reply.into_iter().zip(releases).map(|(freed, one)| self.freed(freed == 1, one)).collect()
            }
            Err(refused) if refused.is_unknown() => {
                let error = EngineError::from(refused);
                releases.iter().map(|_| Some(Released::Unknown(error.again()))).collect()
            }
            // The whole script gets the reason.
            Err(_) => releases.iter().map(|one| self.freed(false, one)).collect(),
        }
    }

    fn freed(&self, freed: bool, release: &Release) -> Option<Released> {
        if freed {
            self.in_flight.settle(release.id);
            return Some(Released::Freed);
        }
        if let Ok(keys) = self.keys(&release.name) {
            self.contention.note(keys.slot, self.client.clock.now());
        }
        None
    }
}
