//! Renewals and releases of many holds at once. Where servers share the slots, each request is about one slot; while a
//! slot is migrating, each request is about one hold, and uses only the lock key and, for shared holds and permits, the
//! set of the holds.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use leasehold_core::{EngineError, Fault, Hold, Loss, Mode, Name, Release, Released, Renewed, TimeLeft};

use crate::{
    RedisEngine,
    engine::REQUEST_LIFE,
    error::{Refused, is_foreign_type, script_error},
    outbox::{MAX_BATCH_ITEMS, Values},
    previous::letter,
    reach::Route,
    reply::Reply,
    scripts::{Item, Script, millis},
};

impl RedisEngine {
    /// Renews holds. Where servers share the slots, each request has only the holds of one slot.
    pub(crate) async fn renew_now(&self, holds: &[Hold]) -> Vec<Renewed> {
        if !self.reach.shares_slots() {
            return join_all(holds.chunks(MAX_BATCH_ITEMS).map(|holds| self.renew_batch(holds)))
                .await
                .into_iter()
                .flatten()
                .collect();
        }
        let batches = self.group_by_slot(holds, |hold| &hold.name);
        let answers = join_all(batches.iter().map(|batch| self.renew_batch(&batch.items))).await;
        in_request_order(&batches, answers, || Renewed::Unknown(missing_answer()))
    }

    /// Releases by the fast path where possible. If all releases go to one server, they share requests.
    pub(crate) async fn release_now(&self, releases: &[Release]) -> Vec<Released> {
        let routes: Vec<_> = releases.iter().map(|release| self.fast_path_route(release)).collect();
        if let Some(Some(route)) = routes.first()
            && routes.iter().flatten().filter(|other| other.conn.number == route.conn.number).count()
                == routes.len()
        {
            if releases.len() <= MAX_BATCH_ITEMS {
                return self.release_batch(Some(route), releases).await;
            }
            let requests =
                releases.chunks(MAX_BATCH_ITEMS).map(|chunk| self.release_batch(Some(route), chunk));
            return join_all(requests).await.into_iter().flatten().collect();
        }
        let (routes, batches) = Self::group_by_route(releases, routes);
        let requests = routes
            .iter()
            .zip(&batches)
            .map(|(route, batch)| self.release_batch(route.as_ref(), &batch.items));
        in_request_order(&batches, join_all(requests).await, || Released::Unknown(missing_answer()))
    }

    /// Releases on one server by the fast path, then by the full script what the fast path has not released. Without a
    /// route, releases only by the full script.
    async fn release_batch(&self, route: Option<&Route>, releases: &[Release]) -> Vec<Released> {
        let mut answers = match route {
            Some(route) => self.release_fast(route, releases).await,
            None => releases.iter().map(|_| None).collect(),
        };
        let unanswered = answers.iter().zip(releases).filter(|(answer, _)| answer.is_none());
        let unanswered: Vec<Release> = unanswered.map(|(_, release)| release.clone()).collect();
        if !unanswered.is_empty() {
            let mut reply = Box::pin(self.release_full(&unanswered)).await.into_iter();
            answers.iter_mut().filter(|answer| answer.is_none()).for_each(|answer| *answer = reply.next());
        }
        answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Released::Unknown(missing_answer())))
            .collect()
    }

    /// Releases by the full script.
    async fn release_full(&self, releases: &[Release]) -> Vec<Released> {
        if !self.reach.shares_slots() {
            return join_all(releases.chunks(MAX_BATCH_ITEMS).map(|chunk| self.release_full_batch(chunk)))
                .await
                .into_iter()
                .flatten()
                .collect();
        }
        let batches = self.group_by_slot(releases, |release| &release.name);
        let answers = join_all(batches.iter().map(|batch| self.release_full_batch(&batch.items))).await;
        in_request_order(&batches, answers, || Released::Unknown(missing_answer()))
    }

    /// Groups items by the slots of their names, into batches that fit into one request each. The callers send all
    /// batches at the same time, so the batches for one node leave together.
    fn group_by_slot<T: Clone>(&self, all: &[T], name: impl Fn(&T) -> &Name) -> Vec<Batch<T>> {
        let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (position, item) in all.iter().enumerate() {
            // A name that `keys` refuses has no slot: any server can answer for it, because no claim has that name.
            slots.entry(self.keys(name(item)).map_or(0, |keys| keys.slot)).or_default().push(position);
        }
        let positions = slots.values().flat_map(|positions| positions.chunks(MAX_BATCH_ITEMS));
        positions.map(|positions| Batch::new(all, positions)).collect()
    }

    /// The slot of a request: the slot of its first name. Where servers share the slots, all its names are in that
    /// slot.
    fn slot(&self, first: Option<&Name>) -> Result<u16, EngineError> {
        first.map_or(Ok(0), |name| self.keys(name).map(|keys| keys.slot))
    }

    /// The arguments of the renewal script for a hold.
    pub(crate) fn renewal_item(&self, hold: &Hold) -> Result<Item, EngineError> {
        let keys = self.keys(&hold.name)?;
        Ok(Item::new(&keys).grant(hold.id, Some(hold.token)).number(millis(hold.ttl)))
    }

    /// Renews holds in one request; one by one if the server denies the user one of the locks.
    async fn renew_batch(&self, holds: &[Hold]) -> Vec<Renewed> {
        let renewed = self.renew_request(holds).await;
        let denied =
            |answer: &Renewed| matches!(answer, Renewed::Unknown(error) if error.fault == Fault::Denied);
        if holds.len() == 1 || !renewed.iter().any(denied) {
            return renewed;
        }
        // The server refuses a call if the user has no rights on one of its locks: each renewal is sent alone.
        let requests = holds.iter().map(|hold| self.renew_request(std::slice::from_ref(hold)));
        join_all(requests).await.into_iter().flatten().collect()
    }

    /// Renews holds of one slot in one request.
    async fn renew_request(&self, holds: &[Hold]) -> Vec<Renewed> {
        let replies = async {
            let slot = self.slot(holds.first().map(|hold| &hold.name)).map_err(Refused::Failed)?;
            let items = |_: &Route| holds.iter().map(|hold| self.renewal_item(hold)).collect();
            answers_of(self.reach.run(slot, Script::Renew, items).await?).map_err(Refused::Failed)
        };
        match replies.await {
            Ok(answers) => answers.iter().zip(holds).map(|(word, hold)| read_renewed(word, hold)).collect(),
            Err(Refused::Split(_)) => {
                join_all(holds.iter().map(|hold| self.renew_while_migrating(hold))).await
            }
            Err(refused) => {
                let error = EngineError::from(refused);
                holds.iter().map(|_| Renewed::Unknown(error.without_source())).collect()
            }
        }
    }

    /// Renews while the slot is migrating, with only the lock key and, for shared holds and permits, the set of the
    /// holds: each of these keys is certainly on one of the two servers.
    async fn renew_while_migrating(&self, hold: &Hold) -> Renewed {
        let script = if hold.mode == Mode::Exclusive { Script::RenewLock } else { Script::RenewShared };
        let replies = async {
            let keys = self.keys(&hold.name)?;
            let item = |_: &Route| Ok([self.renewal_item(hold)?].into());
            answer_of(self.reach.run(keys.slot, script, item).await?)
        };
        match replies.await {
            Ok(word) => read_renewed(&word, hold),
            Err(error) => Renewed::Unknown(error),
        }
    }

    /// Releases by the full script in one request; one by one if the server denies the user one of the locks. The
    /// answer for a name that `keys` refuses is [`Released::NotThere`].
    async fn release_full_batch(&self, releases: &[Release]) -> Vec<Released> {
        let is_valid_name = |release: &&Release| self.keys(&release.name).is_ok();
        let valid: Vec<Release> = releases.iter().filter(is_valid_name).cloned().collect();
        let mut answers = self.release_valid_names(&valid).await;
        if valid.len() > 1
            && answers
                .iter()
                .any(|answer| matches!(answer, Released::Unknown(error) if error.fault == Fault::Denied))
        {
            // The server refuses a call if the user has no rights on one of its locks: each release is sent alone.
            let requests =
                valid.iter().map(|release| self.release_valid_names(std::slice::from_ref(release)));
            answers = join_all(requests).await.into_iter().flatten().collect();
        }
        let mut answers = answers.into_iter();
        let answer = |release: &Release| if is_valid_name(&release) { answers.next() } else { None };
        releases.iter().map(answer).map(|answer| answer.unwrap_or(Released::NotThere)).collect()
    }

    /// Releases in one request to the server of the first name. All names must be valid and, where servers share the
    /// slots, in one slot.
    pub(crate) async fn release_valid_names(&self, releases: &[Release]) -> Vec<Released> {
        let Some(first) = releases.first() else { return Vec::new() };
        let replies = async {
            let slot = self.keys(&first.name).map_err(Refused::Failed)?.slot;
            releases.iter().for_each(|release| self.reach.stop_waiting(slot, release.id));
            let items =
                |route: &Route| releases.iter().map(|release| self.release_item(route, release)).collect();
            answers_of(self.reach.run(slot, Script::Release, items).await?).map_err(Refused::Failed)
        };
        match replies.await {
            Ok(answers) => answers
                .iter()
                .zip(releases)
                .map(|(word, release)| self.read_released(word, release))
                .collect(),
            Err(Refused::Split(error)) => {
                join_all(releases.iter().map(|release| self.release_while_migrating(release, &error))).await
            }
            Err(refused) => {
                let error = EngineError::from(refused);
                releases.iter().map(|_| Released::Unknown(error.without_source())).collect()
            }
        }
    }

    /// The arguments of the release script for a release: see `lua/release.lua`.
    pub(crate) fn release_item(&self, route: &Route, release: &Release) -> Result<Item, EngineError> {
        let (keys, now) = (self.keys(&release.name)?, self.client.clock.now());
        let wants_tombstone =
            self.in_flight.release(release.id, route.conn.number, now, now.after(REQUEST_LIFE));
        let (end_letter, min_hold) = (letter(release.ended), millis(release.min_hold.unwrap_or_default()));
        let words = format_args!("{end_letter} {min_hold} {} {}", u8::from(wants_tombstone), self.for_others);
        Ok(Item::new(&keys).grant(release.id, release.token).formatted(words))
    }

    /// Releases while the slot is migrating, like [`renew_while_migrating`](Self::renew_while_migrating). The other
    /// keys of the claim are released when the migration has ended; until then the result is unknown. `migration_error`
    /// is the error of the refused request.
    async fn release_while_migrating(&self, release: &Release, migration_error: &EngineError) -> Released {
        let script =
            if release.mode == Mode::Exclusive { Script::ReleaseLock } else { Script::ReleaseShared };
        let replies = async {
            let slot = self.keys(&release.name)?.slot;
            let item = |route: &Route| Ok([self.release_item(route, release)?].into());
            answer_of(self.reach.run(slot, script, item).await?)
        };
        match replies.await {
            // Other keys of the claim may be left; they are released when the migration has ended.
            Ok(word) if word == "again" => Released::Unknown(migration_error.without_source()),
            Ok(word) => self.read_released(&word, release),
            Err(error) => Released::Unknown(error),
        }
    }

    /// Reads the script's answer to a release. A certain answer also ends the record of the claim's requests in flight.
    pub(crate) fn read_released(&self, word: &str, release: &Release) -> Released {
        let released = match word {
            "freed" => Released::Freed,
            "unwoken" => {
                tracing::warn!(
                    name = release.name.as_str(),
                    "the lock was freed, but the wake-up for other programs failed: their waiters sleep on. Give the user the rights of docs/engines/redis.md"
                );
                Released::Freed
            }
            "absent" | "layout" => Released::NotThere,
            error if is_foreign_type(error) => Released::NotThere,
            error => return Released::Unknown(script_error(error)),
        };
        self.in_flight.settle(release.id);
        released
    }
}

/// Reads the script's answer to a renewal.
pub(crate) fn read_renewed(word: &str, hold: &Hold) -> Renewed {
    match word {
        "broken" => Renewed::Lost(Loss::Broken),
        "gone" | "layout" => Renewed::Lost(Loss::Gone),
        "overwritten" => Renewed::Lost(Loss::Overwritten),
        "early" => Renewed::Lost(Loss::EndedEarly),
        // The key expired while the script ran, which only servers before Redis 7.2 let happen: nothing was extended.
        "extended -2" => Renewed::Lost(Loss::Gone),
        error if is_foreign_type(error) => Renewed::Lost(Loss::Overwritten),
        word => match read_time_left(word) {
            Some(left) => Renewed::Extended { ttl: Some(hold.ttl), left },
            None => Renewed::Unknown(script_error(word)),
        },
    }
}

/// Reads how long the hold had left, in the script's answer to a renewal that extended it; `None` for other answers.
fn read_time_left(word: &str) -> Option<TimeLeft> {
    let left = word.strip_prefix("extended")?;
    if left.is_empty() {
        return Some(TimeLeft::Unknown);
    }
    Some(match left.strip_prefix(' ')?.parse::<i64>().ok()? {
        -1 => TimeLeft::Endless,
        ..0 => return None,
        millis => TimeLeft::For(Duration::from_millis(millis.unsigned_abs())),
    })
}

/// The items of one request, and their positions among all items.
pub(crate) struct Batch<T> {
    items: Vec<T>,
    positions: Vec<usize>,
}

impl<T: Clone> Batch<T> {
    /// The items at these positions.
    pub(crate) fn new(all: &[T], positions: &[usize]) -> Self {
        Self {
            items: positions.iter().map(|&position| all[position].clone()).collect(),
            positions: positions.to_vec(),
        }
    }
}

/// The answers to all items, in the order of the items; `missing()` for an item without an answer.
fn in_request_order<T, A>(batches: &[Batch<T>], answers: Vec<Vec<A>>, missing: impl Fn() -> A) -> Vec<A> {
    let count = batches.iter().map(|batch| batch.positions.len()).sum();
    let mut ordered: Vec<Option<A>> = std::iter::repeat_with(|| None).take(count).collect();
    for (batch, answers) in batches.iter().zip(answers) {
        batch.positions.iter().zip(answers).for_each(|(&position, answer)| ordered[position] = Some(answer));
    }
    ordered.into_iter().map(|answer| answer.unwrap_or_else(&missing)).collect()
}

/// The error for an item that got no answer.
fn missing_answer() -> EngineError {
    EngineError::new(Fault::Unknown, "the server answered for too few locks")
}

/// The word that a script answers for its one item.
pub(crate) fn answer_of(reply: Values) -> Result<String, EngineError> {
    Reply::new(reply).text()
}

/// The words that a script answers, one for each item.
fn answers_of(reply: Values) -> Result<Vec<String>, EngineError> {
    Reply::new(reply).all_text()
}

#[cfg(test)]
mod tests {
    use leasehold_core::{ClaimId, Token};

    use super::*;

    #[test]
    fn only_an_extended_hold_counts_as_extended() {
        let ttl = Duration::from_secs(30);
        let token = Token { lineage: crate::token_counter::LINEAGE, number: 7 };
        let hold =
            Hold { id: ClaimId([1; 16]), name: Name::new("a").unwrap(), mode: Mode::Exclusive, token, ttl };
        for (word, expected) in [
            ("extended", Some(TimeLeft::Unknown)),
            ("extended -1", Some(TimeLeft::Endless)),
            ("extended 0", Some(TimeLeft::For(Duration::ZERO))),
            ("extended 1500", Some(TimeLeft::For(Duration::from_millis(1500)))),
            ("extended -2", None),
            ("gone", None),
        ] {
            match (read_renewed(word, &hold), expected) {
                (Renewed::Extended { ttl: extended, left }, Some(expected)) => {
                    assert_eq!((extended, left), (Some(ttl), expected), "{word}");
                }
                (Renewed::Lost(Loss::Gone), None) => {}
                (renewed, _) => panic!("{word}: {renewed:?}"),
            }
        }
        for word in ["extended -3", "extended x", "extended  1", "extend", ""] {
            assert!(matches!(read_renewed(word, &hold), Renewed::Unknown(_)), "{word:?}");
        }
    }
}
