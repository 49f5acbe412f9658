//! The fast path: short scripts claim free names, and release names without waiters. Most names are free or have no
//! waiters. The full scripts handle all other items. A short script needs fewer arguments than the full script. It
//! accepts names in any slots of one server, so names of several slots of a Redis Cluster share one request; a request
//! of a full script is about one slot. A short script changes nothing on the server for an item that it leaves to the
//! full script.

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
    outbox::{Items, MAX_BATCH_ITEMS},
    reach::Route,
    reply::Reply,
    scripts::{Item, Script, millis},
    token_counter::LINEAGE,
};

impl RedisEngine {
    /// Selects the script for this setup: a single server, or a node of a cluster.
    fn short_script(&self, for_single_server: Script, for_cluster_node: Script) -> Script {
        if self.reach.shares_slots() { for_cluster_node } else { for_single_server }
    }

    /// Whether to try the short script first: true for a new exclusive claim of a plain lock, if no name of this slot
    /// was contended lately.
    pub(crate) fn may_use_fast_path(&self, slot: u16, claim: &Claim, how: How) -> bool {
        how == How::Create
            && claim.mode == Mode::Exclusive
            // The short scripts support only locks that are strings.
            && self.client.config.layout == Layout::Plain
            && !self.contention.is_likely(slot, self.client.clock.now())
    }

    /// Claims by the short script. Returns the grant if the name is free and has no waiters; `None` if the claim is
    /// left to the full script.
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
        let item = Item::fast_claim(keys, claim.id).formatted(format_args!(
            "={} {tokens} {} {}",
            millis(claim.ttl),
            after_tag(&channel),
            claim.owner
        ));
        let in_flight = self.in_flight.start(claim.id, route.conn.number, self.client.clock.now());
        let reply =
            match route.run(self.short_script(Script::ClaimFree, Script::ClaimNode), [item].into()).await {
                Err(refused) if refused.is_unknown() => return Err(refused.into()),
                reply => reply,
            };
        in_flight.complete();
        // If the server refuses the short script, the call of the full script reports the reason.
        let Ok(reply) = reply else {
            self.contention.note(keys.slot, self.client.clock.now());
            return Ok(None);
        };
        // The first token; a negative number if the claim got only that one token; 0 if the claim is left to the full
        // script.
        let first_token = Reply::new(reply).number()?;
        if first_token == 0 {
            self.contention.note(keys.slot, self.client.clock.now());
            return Ok(None);
        }
        route.set_waiting(claim.id, &claim.name, false);
        let tokens = if first_token < 0 { 1 } else { tokens };
        let token = Token { lineage: LINEAGE, number: first_token.unsigned_abs() };
        let ttl = Some(Duration::from_millis(millis(claim.ttl)));
        Ok(Some(Grant { token, tokens, ttl, previous: Previous::Clean }))
    }

    /// Groups releases by the route of the fast path. The last group has the releases without a route: they need the
    /// full script.
    pub(crate) fn group_by_route(
        releases: &[Release],
        found_routes: Vec<Option<Route>>,
    ) -> (Vec<Option<Route>>, Vec<Batch<Release>>) {
        let mut nodes: BTreeMap<u64, (Route, Vec<usize>)> = BTreeMap::new();
        let mut without_route = Vec::new();
        for (position, route) in found_routes.into_iter().enumerate() {
            match route {
                Some(route) => nodes.entry(route.conn.number).or_insert((route, Vec::new())).1.push(position),
                None => without_route.push(position),
            }
        }
        let batch = |positions: &[usize]| Batch::new(releases, positions);
        let (mut routes, mut batches) = (Vec::new(), Vec::new());
        for (route, positions) in nodes.into_values() {
            for positions in positions.chunks(MAX_BATCH_ITEMS) {
                routes.push(Some(route.clone()));
                batches.push(batch(positions));
            }
        }
        if !without_route.is_empty() {
            routes.push(None);
            batches.push(batch(&without_route));
        }
        (routes, batches)
    }

    /// The route for a release by the short script; `None` if the release needs the full script. The short script is
    /// enough if, as far as is known, only the lock and its record must be deleted, and no client must be notified.
    /// Without a connection, also returns `None`: only the call of the full script waits for a connection.
    pub(crate) fn fast_path_route(&self, release: &Release) -> Option<Route> {
        let keys = self.keys(&release.name).ok()?;
        let now = self.client.clock.now();
        let is_simple = release.mode == Mode::Exclusive
            && release.min_hold.is_none()
            && release.ended == Previous::Clean
            && release.token.is_some()
            // No fixed gap, and no waiters of other programs to wake.
            && ["a", "0"].contains(&&*self.for_others)
            && !self.contention.is_likely(keys.slot, now);
        let route = self.reach.ready_route(keys.slot).filter(|_| is_simple)?;
        let wants_tombstone =
            self.in_flight.release(release.id, route.conn.number, now, now.after(REQUEST_LIFE));
        (!wants_tombstone).then_some(route)
    }

    /// Releases by the short script, on the connection of `route`. An answer is `None` if the release is left to the
    /// full script.
    pub(crate) async fn release_fast(&self, route: &Route, releases: &[Release]) -> Vec<Option<Released>> {
        let reply = async {
            let item = |release: &Release| {
                let keys = self.keys(&release.name)?;
                self.reach.stop_waiting(keys.slot, release.id);
                Ok(Item::fast_release(&keys, release.id, release.token))
            };
            let items = releases.iter().map(item).collect::<Result<Items, _>>().map_err(Refused::Failed)?;
            let mut reply = Reply::new(
                route.run(self.short_script(Script::ReleaseFree, Script::ReleaseNode), items).await?,
            );
            releases.iter().map(|_| reply.number()).collect::<Result<Vec<_>, _>>().map_err(Refused::Failed)
        };
        match reply.await {
            Ok(reply) => reply
                .into_iter()
                .zip(releases)
                .map(|(number, release)| self.fast_answer(number == 1, release))
                .collect(),
            Err(refused) if refused.is_unknown() => {
                let error = EngineError::from(refused);
                releases.iter().map(|_| Some(Released::Unknown(error.without_source()))).collect()
            }
            // The call of the full script reports the reason.
            Err(_) => releases.iter().map(|release| self.fast_answer(false, release)).collect(),
        }
    }

    /// The answer to a release of the fast path. If the name was not freed, records that its slot is contended, and
    /// returns `None`.
    fn fast_answer(&self, is_freed: bool, release: &Release) -> Option<Released> {
        if is_freed {
            self.in_flight.settle(release.id);
            return Some(Released::Freed);
        }
        if let Ok(keys) = self.keys(&release.name) {
            self.contention.note(keys.slot, self.client.clock.now());
        }
        None
    }
}
