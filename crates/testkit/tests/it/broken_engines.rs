//! The suite detects engines that break a rule: each test adds one defect to an engine, and a named case must fail.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, ClaimId, Engine, EngineError, Grant, Guarantee, Hold, How,
    Inspect, Mode, Name, Notification, Previous, Profile, Release, Released, Renewed, TimeLeft, View,
};
use leasehold_testkit::suite::{self, Report};

use crate::rig::Rig;

/// The defects of an engine. The default has none.
#[derive(Default)]
struct Defects {
    claim: Option<fn(&mut Claim, &mut How)>,
    answer: Option<fn(&Claim, How, Answer) -> Answer>,
    renew: Option<fn(&mut Vec<Hold>)>,
    renewed: Option<fn(Vec<Renewed>) -> Vec<Renewed>>,
    release: Option<fn(&mut Vec<Release>)>,
    released: Option<fn(Vec<Released>) -> Vec<Released>>,
    mute: bool,
    list: Option<fn(Vec<View>) -> Vec<View>>,
    /// Every repeated claim is sent with a new id.
    forgets_ids: bool,
}

struct BrokenEngine {
    inner: Arc<dyn Engine>,
    defects: Defects,
    sent: Mutex<HashMap<ClaimId, u8>>,
}

impl Engine for BrokenEngine {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, mut how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move {
            let mut changed = claim.clone();
            if let Some(change) = self.defects.claim {
                change(&mut changed, &mut how);
            }
            if self.defects.forgets_ids && how == How::Create {
                let mut sent = self.sent.lock().unwrap();
                let times = sent.entry(claim.id).or_default();
                changed.id.0[0] ^= *times;
                *times += 1;
            }
            let answer = self.inner.claim(&changed, how).await?;
            Ok(self
                .defects
                .answer
                .map_or_else(|| answer.clone(), |change| change(claim, how, answer.clone())))
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        self.inner.claim_all(claims)
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            let mut holds = holds.to_vec();
            if let Some(change) = self.defects.renew {
                change(&mut holds);
            }
            let answers = self.inner.renew(&holds).await;
            if let Some(change) = self.defects.renewed { change(answers) } else { answers }
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            let mut releases = releases.to_vec();
            if let Some(change) = self.defects.release {
                change(&mut releases);
            }
            let answers = self.inner.release(&releases).await;
            if let Some(change) = self.defects.released { change(answers) } else { answers }
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        if self.defects.mute { Box::pin(std::future::pending()) } else { self.inner.notifications() }
    }

    fn memos(&self) -> Option<&dyn leasehold_core::Memos> {
        self.inner.memos()
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        self.inner.conversions()
    }
}

impl Inspect for BrokenEngine {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.inner.ping()
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        self.inner.guarantee()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move {
            let views = self.inner.list(prefix).await?;
            Ok(if let Some(change) = self.defects.list { change(views) } else { views })
        })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        self.inner.show(name)
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        self.inner.break_hold(name, token, force)
    }
}

/// The report of the suite on memory engines with these defects.
fn report(defects: fn() -> Defects) -> Report {
    thread_local!(static DEFECTS: std::cell::Cell<fn() -> Defects> = const { std::cell::Cell::new(Defects::default) });
    DEFECTS.set(defects);
    let rig = Rig::wrapped(|inner| {
        Arc::new(BrokenEngine { inner, defects: DEFECTS.get()(), sent: Mutex::default() })
    });
    suite::run_engine(&rig)
}

#[track_caller]
fn caught(defects: fn() -> Defects, cases: &[&str]) {
    let report = report(defects);
    for case in cases {
        assert!(report.has_failed(case), "{case} should have failed:\n{report}");
    }
}

fn regrant(answer: Answer, change: impl FnOnce(Grant) -> Grant) -> Answer {
    match answer {
        Answer::Held(grant) => Answer::Held(change(grant)),
        other => other,
    }
}

#[test]
fn a_correct_engine_passes() {
    let report = report(Defects::default);
    assert!(report.failed.is_empty(), "{report}");
}

#[test]
fn a_token_that_does_not_grow_is_caught() {
    let defects = || Defects {
        answer: Some(|_, _, answer| {
            regrant(answer, |mut grant| {
                grant.token.number = 1;
                grant
            })
        }),
        ..Defects::default()
    };
    caught(
        defects,
        &["tokens_grow_across_clients", "tokens_grow_across_modes", "tokens_grow_after_an_expiry"],
    );
}

#[test]
fn overlapping_blocks_are_caught() {
    let defects = || Defects {
        answer: Some(|_, _, answer| regrant(answer, |grant| Grant { tokens: grant.tokens + 1, ..grant })),
        ..Defects::default()
    };
    caught(defects, &["blocks_of_tokens_do_not_overlap", "a_grant_carries_no_more_tokens_than_asked_for"]);
}

#[test]
fn an_ask_that_creates_is_caught() {
    let defects = || Defects { claim: Some(|_, how| *how = How::Create), ..Defects::default() };
    caught(defects, &["ask_never_creates"]);
}

#[test]
fn a_try_that_queues_is_caught() {
    let defects = || Defects { claim: Some(|claim, _| claim.may_queue = true), ..Defects::default() };
    caught(defects, &["a_claim_that_may_not_queue_leaves_nothing", "a_taken_name_is_not_granted_again"]);
}

#[test]
fn forgotten_ids_are_caught() {
    let defects = || Defects { forgets_ids: true, ..Defects::default() };
    caught(
        defects,
        &[
            "a_repeated_claim_gets_the_same_grant",
            "a_repeated_waiting_claim_keeps_its_position",
            "a_late_claim_after_its_release_holds_nothing",
        ],
    );
}

#[test]
fn a_release_that_does_nothing_is_caught() {
    let defects = || Defects {
        release: Some(|releases| releases.iter_mut().for_each(|release| release.id = ClaimId([0; 16]))),
        released: Some(|answers| answers.into_iter().map(|_| Released::Freed).collect()),
        ..Defects::default()
    };
    caught(
        defects,
        &["a_free_name_is_granted", "a_released_name_is_free", "a_repeated_release_finds_nothing"],
    );
}

#[test]
fn a_release_that_ignores_the_token_is_caught() {
    let defects = || Defects {
        release: Some(|releases| releases.iter_mut().for_each(|release| release.token = None)),
        ..Defects::default()
    };
    caught(defects, &["a_release_with_another_token_finds_nothing_and_leaves_nothing"]);
}

#[test]
fn a_release_that_forgets_how_it_ended_is_caught() {
    let defects = || Defects {
        release: Some(|releases| releases.iter_mut().for_each(|release| release.ended = Previous::Clean)),
        ..Defects::default()
    };
    caught(defects, &["an_abandoned_hold_is_reported_to_the_next_holder"]);
}

#[test]
fn a_release_that_ignores_the_minimum_hold_is_caught() {
    let defects = || Defects {
        release: Some(|releases| releases.iter_mut().for_each(|release| release.min_hold = None)),
        ..Defects::default()
    };
    caught(defects, &["a_name_is_taken_for_its_minimum_hold", "a_waiter_is_granted_after_the_minimum_hold"]);
}

#[test]
fn swapped_answers_are_caught() {
    let defects = || Defects {
        released: Some(|answers| answers.into_iter().rev().collect()),
        renewed: Some(|mut answers| {
            let by = 1.min(answers.len());
            answers.rotate_left(by);
            answers
        }),
        ..Defects::default()
    };
    caught(defects, &["renewals_answer_one_by_one_in_order"]);
}

#[test]
fn a_renewal_that_always_succeeds_is_caught() {
    let defects = || Defects {
        renewed: Some(|answers| {
            answers
                .into_iter()
                .map(|_| Renewed::Extended {
                    ttl: Some(std::time::Duration::from_secs(1)),
                    left: TimeLeft::Unknown,
                })
                .collect()
        }),
        ..Defects::default()
    };
    caught(
        defects,
        &[
            "renew_of_another_id_is_lost",
            "renew_of_another_token_is_lost",
            "an_expired_hold_is_lost",
            "a_broken_hold_is_lost_and_blocks_until_its_release",
            "tokens_grow_after_the_system_lost_its_data",
        ],
    );
}

#[test]
fn a_renewal_that_does_not_extend_is_caught() {
    let defects = || Defects {
        renew: Some(|holds| {
            holds.iter_mut().for_each(|hold| hold.ttl = std::time::Duration::from_millis(100))
        }),
        ..Defects::default()
    };
    caught(defects, &["renew_extends_a_lease"]);
}

#[test]
fn missing_notifications_are_caught() {
    let defects = || Defects { mute: true, ..Defects::default() };
    caught(defects, &["a_notification_wakes_the_waiter"]);
}

#[test]
fn colliding_names_are_caught() {
    let defects = || Defects {
        claim: Some(|claim, _| {
            claim.name = Name::new(&claim.name.as_str().to_lowercase().replace('/', "_")).unwrap();
        }),
        ..Defects::default()
    };
    caught(defects, &["odd_names_do_not_collide"]);
}

#[test]
fn truncated_names_are_caught() {
    let defects = || Defects {
        claim: Some(|claim, _| {
            let cut: String = claim.name.as_str().chars().take(250).collect();
            claim.name = Name::new(&cut).unwrap();
        }),
        ..Defects::default()
    };
    caught(defects, &["the_longest_names_do_not_collide"]);
}

#[test]
fn an_unsorted_list_is_caught() {
    let defects = || Defects { list: Some(|views| views.into_iter().rev().collect()), ..Defects::default() };
    caught(defects, &["only_names_in_use_are_listed"]);
}

#[test]
fn writers_that_share_are_caught() {
    let defects = || Defects {
        claim: Some(|claim, _| {
            if claim.mode == Mode::Exclusive {
                claim.mode = Mode::Shared;
            }
        }),
        ..Defects::default()
    };
    caught(
        defects,
        &[
            "a_taken_name_is_not_granted_again",
            "a_reader_excludes_a_writer",
            "newcomers_do_not_overtake_the_queue",
        ],
    );
}

#[test]
fn readers_that_do_not_share_are_caught() {
    let defects = || Defects {
        claim: Some(|claim, _| {
            if claim.mode == Mode::Shared {
                claim.mode = Mode::Exclusive;
            }
        }),
        ..Defects::default()
    };
    caught(defects, &["readers_share", "readers_at_the_head_are_granted_together"]);
}

#[test]
fn permits_that_are_not_counted_are_caught() {
    let defects = || Defects {
        claim: Some(|claim, _| {
            if let Mode::Permits { limit, .. } = claim.mode {
                claim.mode = Mode::Permits { count: 1, limit };
            }
        }),
        ..Defects::default()
    };
    caught(defects, &["a_hold_of_several_permits_counts_them_all"]);
}

#[test]
fn a_previous_that_is_always_clean_is_caught() {
    let defects = || Defects {
        answer: Some(|_, _, answer| regrant(answer, |grant| Grant { previous: Previous::Clean, ..grant })),
        ..Defects::default()
    };
    caught(
        defects,
        &[
            "an_expired_name_is_free",
            "an_abandoned_hold_is_reported_to_the_next_holder",
            "an_unused_hold_does_not_hide_the_end_before_it",
            "a_forced_break_frees_at_once",
        ],
    );
}

#[test]
fn a_panic_of_an_engine_is_a_failure_with_its_message() {
    let defects = || Defects { list: Some(|_| panic!("the list is broken")), ..Defects::default() };
    let report = report(defects);
    let why = report.failed.iter().find(|(case, _)| *case == "only_names_in_use_are_listed").unwrap();
    assert!(why.1.contains("the list is broken"), "{report}");
}
