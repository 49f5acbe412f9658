//! The size of a history, which says how much its verdicts are worth.

use super::{
    Figure,
    history_index::HistoryIndex,
    life::{Failure, Life},
    report::Figures,
};

pub(super) fn figures(index: &HistoryIndex<'_>) -> Figures {
    let count = |what: &dyn Fn(&Life<'_>) -> bool| {
        Figure::Sum(index.lives.iter().filter(|life| what(life)).count() as u64)
    };
    let failed = |how| count(&|life| life.failure.is_some_and(|(_, failure)| failure == how));
    let releases = index.lives.iter().filter(|life| life.release.is_some()).count();
    let waits = index.lives.iter().filter_map(|life| Some(life.grant?.at - life.invoked));
    let stops: usize = index.stops.values().map(Vec::len).sum();
    vec![
        ("operations", Figure::Sum((index.lives.len() + releases) as u64)),
        ("grants", count(&|life| life.grant.is_some())),
        ("hand-overs", Figure::Sum(index.by_lock().map(|lives| hand_overs(&lives)).sum())),
        ("taken", failed(Failure::Taken)),
        ("unknown", failed(Failure::Unknown)),
        ("cancelled", failed(Failure::Cancelled)),
        ("lost", count(&|life| life.lost.is_some())),
        ("longest wait", Figure::Longest(waits.max().unwrap_or(0))),
        ("disturbances", Figure::Sum(index.disturbances)),
        ("stops", Figure::Sum(stops as u64)),
        ("stalls", Figure::Sum(index.stalls.count() as u64)),
        ("crashes", Figure::Sum(index.crashes.len() as u64)),
    ]
}

/// Grants to an attempt that waited while the previous hold was released.
fn hand_overs(lives: &[&Life<'_>]) -> u64 {
    let mut granted: Vec<_> = lives.iter().filter_map(|life| Some((life.grant?.at, *life))).collect();
    granted.sort_by_key(|(at, _)| *at);
    let handed = |pair: &&[(u64, &Life<'_>)]| {
        let [(_, before), (at, life)] = pair else { return false };
        let waited = |release: u64| !life.is_try() && life.invoked < release && release < *at;
        before.release.is_some_and(|release| waited(release.at))
    };
    granted.windows(2).filter(handed).count() as u64
}
