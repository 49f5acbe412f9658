//! I15: of work that is done one time, a stored result is what every later repeat gets, until the time of the result is
//! over. So a key has at most one stored run within this time.
//!
//! The checks of single holds (I1) judge the runs themselves: two runs whose holds are valid do not overlap.

use std::collections::HashSet;

use super::{
    Figure, Invariant, Verdict,
    attempt_history::{AttemptHistory, Outcome, Storing},
    finding::Finding,
    history_index::HistoryIndex,
    report::millis,
    terms::nanos,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::Results);
    let (mut runs, mut replays, mut excused) = (0, 0, 0);
    for attempts in index.by_lock() {
        if !attempts.iter().any(|attempt| attempt.result.is_some() || attempt.replay.is_some()) {
            continue;
        }
        let returned: HashSet<_> = attempts.iter().filter_map(|attempt| Some(attempt.replay?.1)).collect();
        let mut stored: Vec<Stored<'_, '_>> = attempts
            .iter()
            .filter_map(|&run| {
                let result = run.result.filter(|result| !result.failed)?;
                let is_freed = matches!(run.answer, Some((_, Outcome::Freed)));
                (is_freed || returned.contains(&run.id)).then_some(Stored { run, result })
            })
            .collect();
        stored.sort_by_key(|stored| stored.result.sent);
        runs += stored.len() as u64;
        for attempt in &attempts {
            if attempt.replay.is_some() {
                replays += 1;
                finding.checked();
                check_replay(index, attempt, &stored, &mut finding);
            }
            if attempt.active_hold().is_some_and(|hold| !hold.is_empty()) && attempt.is_part() {
                if index.terms.lossy {
                    excused += 1;
                    continue;
                }
                finding.checked();
                check_run(index, attempt, &stored, &mut finding);
            }
        }
    }
    finding.figure("stored runs", Figure::Sum(runs));
    finding.figure("replays", Figure::Sum(replays));
    if index.terms.lossy {
        finding.figure("runs where no stored result is promised", Figure::Sum(excused));
    }
    finding.done()
}

/// A run whose result was certainly stored.
struct Stored<'b, 'h> {
    run: &'b AttemptHistory<'h>,
    result: Storing,
}

/// Checks that a replayed result is that of a run of the key that was about to store it, and that the time of
/// this result was not over, and no later run had stored another one, when the repeat was called.
fn check_replay<'h>(
    index: &HistoryIndex<'h>,
    repeat: &AttemptHistory<'h>,
    stored: &[Stored<'_, 'h>],
    finding: &mut Finding<'_, 'h>,
) {
    let Some((at, of, event)) = repeat.replay else { return };
    let source = stored.iter().find(|stored| stored.run.id == of && stored.result.sent <= at);
    let Some(source) = source else {
        let run = index.attempt(of).filter(|run| run.lock == repeat.lock);
        let shown: Vec<_> = run.into_iter().chain([repeat]).collect();
        finding.violated(&shown, &[event], || {
            format!("{repeat} got a result that no run of the key has stored")
        });
        return;
    };
    let read_at = repeat.invoked.saturating_sub(nanos(index.terms.stale));
    let kept_until =
        index.latest_record_end(source.run, source.result.keep).saturating_add(nanos(index.terms.precision));
    if kept_until < read_at && !index.terms.lossy {
        finding.violated(&[source.run, repeat], &[event], || {
            let late = millis(read_at - kept_until);
            format!("{repeat} was called {late} after the end of the time of the result of {}", source.run)
        });
    }
    let is_newer = |other: &&Stored<'_, 'h>| {
        let known_at = other.run.answer.filter(|(_, outcome)| *outcome == Outcome::Freed).map(|(at, _)| at);
        other.result.sent > source.result.sent && known_at.is_some_and(|known_at| known_at < read_at)
    };
    if let Some(newer) = stored.iter().find(is_newer).filter(|_| !index.terms.lossy) {
        finding.violated(&[source.run, newer.run, repeat], &[event], || {
            format!("{repeat} got the result of {} after {} had stored another", source.run, newer.run)
        });
    }
}

/// Checks that no result was stored when the work of a run began. A run looks for a result after its grant, so it finds
/// every result of an earlier hold.
fn check_run<'h>(
    index: &HistoryIndex<'h>,
    run: &AttemptHistory<'h>,
    stored: &[Stored<'_, 'h>],
    finding: &mut Finding<'_, 'h>,
) {
    let Some(began) = run.grant.map(|grant| grant.at) else { return };
    let before = stored.partition_point(|stored| stored.result.sent < began);
    let kept_until = |stored: &Stored<'_, 'h>| {
        let keep = index.terms.shortest(stored.result.keep).saturating_sub(nanos(index.terms.precision));
        stored.result.sent.saturating_add(keep)
    };
    let kept =
        stored[..before].iter().rev().find(|stored| stored.run.id != run.id && began < kept_until(stored));
    if let Some(kept) = kept {
        finding.violated(&[kept.run, run], &[kept.result.event], || {
            format!("{run} began {} after {} stored its result", millis(began - kept.result.sent), kept.run)
        });
    }
}
