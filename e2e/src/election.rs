//! Elections: tasks that campaign, publish values and resign, and observers that see who leads.

use std::time::Duration;

use leasehold_core::{Leader, Leadership, Leading, Locks, MemoKind, Mode, NewMemo};
use leasehold_testkit::history::{ActiveHold, AttemptId, What, now_nanos};
use tokio::time::{sleep, timeout};

use crate::{
    client::ClientState,
    observer::owner_of,
    patience::Patience,
    rng::Rng,
    section::{self, record_release, remaining_nanos},
    task::{TTL, grant_details, has_certain_releases, names_attempt, pause_after, record_failure, ttl},
};

/// The elections that all clients take part in.
pub(crate) const ELECTIONS: [&str; 2] = ["e0", "e1"];

/// For how long an observer follows an election at most before a new one takes its place.
const WATCH_TIME: Duration = Duration::from_secs(5);
/// For how long a client tries at its end to clear an election.
const CLEAR_TIME: Duration = Duration::from_secs(10);

/// Campaigns in a random election in a random way, leads for a while, and resigns.
pub(crate) async fn attempt(state: &ClientState, task: u32, rng: &mut Rng) {
    let name = *rng.pick(&ELECTIONS);
    let patience = Patience::draw(rng, &[name]);
    let attempt = state.recorder.attempt(task, name, Mode::Exclusive, patience.limit());
    let election = state.locks.election(name).value(value(attempt.id(), 0)).ttl(ttl(&state.locks));
    let election =
        if names_attempt(patience, rng) { election.owner(&owner_of(attempt.id())) } else { election };
    attempt.publishing();
    let led = match patience {
        Patience::Try => Some(election.try_campaign().await),
        Patience::Within(limit) => Some(election.campaign_within(limit).await),
        Patience::Endless | Patience::Cancelled(_) => patience.await_for(election.campaign()).await,
    };
    match led {
        None => attempt.cancelled(),
        Some(Ok(leading)) => {
            let guard = leading.guard();
            let active_hold =
                attempt.granted(grant_details(guard, ttl(&state.locks)), || remaining_nanos(guard));
            lead(state, &active_hold, &leading, rng).await;
            resign(name, active_hold, leading, rng).await;
        }
        Some(Err(error)) => {
            record_failure(attempt, &error);
            pause_after(&error, rng).await;
        }
    }
}

/// Leads for a while, and publishes up to two further values.
async fn lead(state: &ClientState, active_hold: &ActiveHold<'_>, leading: &Leading, rng: &mut Rng) {
    // The number 0 is the value of the campaign.
    for number in 1..=rng.below(3) {
        section::work_under(active_hold, leading.guard(), section::length(&state.locks, rng), || false).await;
        active_hold.publishing(number);
        if leading.proclaim(value(active_hold.id(), number)).await.is_ok() {
            active_hold.published(number);
        }
    }
    section::work_under(active_hold, leading.guard(), section::length(&state.locks, rng), || false).await;
}

/// Ends the term in a random way.
async fn resign(name: &str, active_hold: ActiveHold<'_>, leading: Leading, rng: &mut Rng) {
    let known_lost = !leading.check();
    let pending = active_hold.releasing(None);
    match rng.below(if has_certain_releases(name) { 80 } else { 100 }) {
        0..80 => record_release(pending, known_lost, leading.resign().await),
        80..90 => drop(leading),
        _ => {
            if let Ok(answer) = timeout(TTL / 1000, leading.resign()).await {
                record_release(pending, known_lost, answer);
            }
        }
    }
}

/// Observes an election until the time of the round is up: follows it, and reads it now and then. `number` tells the
/// observers of this client apart.
pub(crate) async fn observe(state: ClientState, name: &'static str, number: u64) {
    let mut rng = Rng::new(state.seed, 1000 + number);
    let mut observer = number;
    while now_nanos() < state.until {
        // Each watch is an observer of its own, with its own order of terms.
        observer += ELECTIONS.len() as u64;
        let watch = state.locks.election(name).ttl(ttl(&state.locks)).observe();
        // A client whose task panics fails the round.
        let mut watch = watch.expect("elections run only on engines with memos, and the locks are open");
        let end = state.until.min(now_nanos() + WATCH_TIME.as_nanos() as u64);
        while now_nanos() < end {
            match timeout(rng.millis(5..100), watch.changed()).await {
                Ok(Ok(Leadership::Held(leader))) => record_sight(&state, name, observer, None, &leader),
                // Without a leader there is nothing to judge. After an error the watch is still usable.
                Ok(_) => sleep(rng.millis(1..10)).await,
                Err(_) => read(&state, name, observer).await,
            }
        }
    }
}

/// Reads who leads.
async fn read(state: &ClientState, name: &str, observer: u64) {
    let since = now_nanos();
    // If the engine is not reachable, there is no answer to record.
    if let Ok(Some(leader)) = state.locks.election(name).leader().await {
        record_sight(state, name, observer, Some(since), &leader);
    }
}

fn record_sight(state: &ClientState, name: &str, observer: u64, since: Option<u64>, leader: &Leader) {
    let (attempt, number) = leader.value.as_deref().and_then(parse_value).unwrap_or_default();
    let what = What::Seen {
        observer,
        since,
        leader: attempt,
        number,
        token: leader.term.number,
        lineage: leader.term.lineage.to_string(),
    };
    state.recorder.note_lock(now_nanos(), name, what);
}

/// The value with this number of a leader: it names the attempt.
fn value(attempt: AttemptId, number: u64) -> String {
    format!("{attempt:x}.{number}")
}

/// The attempt and the number of a value.
fn parse_value(text: &str) -> Option<(AttemptId, u64)> {
    let (attempt, number) = text.split_once('.')?;
    Some((AttemptId::from_str_radix(attempt, 16).ok()?, number.parse().ok()?))
}

/// Ends what the elections leave: the value of a leader that was killed stays for long, until the next leader writes,
/// and that of one that resigned for a minute. Each client does this at its end, so that the last one leaves nothing.
pub(crate) async fn clear(state: &ClientState, task: u32) {
    for name in ELECTIONS {
        let begin = now_nanos();
        while !clear_one(state, task, name).await && now_nanos() < begin + CLEAR_TIME.as_nanos() as u64 {
            sleep(TTL / 10).await;
        }
    }
}

/// Replaces the value of an election by one that ends at once. Returns whether this is certain.
async fn clear_one(state: &ClientState, task: u32, name: &str) -> bool {
    let attempt = state.recorder.attempt(task, name, Mode::Exclusive, None);
    let guard = match election_mutex(&state.locks, name).acquire().await {
        Ok(guard) => guard,
        Err(error) => {
            record_failure(attempt, &error);
            return false;
        }
    };
    let active_hold = attempt.granted(grant_details(&guard, ttl(&state.locks)), || remaining_nanos(&guard));
    let memo = NewMemo::new(MemoKind::ELECTION, "", Duration::from_millis(1));
    let known_lost = !guard.check();
    let pending = active_hold.releasing(None);
    let answer = guard.release_with_memo(memo.expect("no bytes and a millisecond are allowed")).await;
    let is_certain = answer.is_ok();
    record_release(pending, known_lost, answer);
    is_certain
}

/// A mutex of the name of an election.
fn election_mutex(locks: &Locks, name: &str) -> leasehold_core::Request {
    locks.mutex(name).ttl(ttl(locks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_attempt() {
        assert_eq!(parse_value(&value(0xab_0000_0012, 2)), Some((0xab_0000_0012, 2)));
        for other in ["", "ab", "ab.", ".1", "10.0.0.7:8080"] {
            assert_eq!(parse_value(other), None, "{other:?}");
        }
    }
}
