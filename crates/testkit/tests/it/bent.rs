//! The suite catches engines that break a rule: each is bent in one place, and a named case must fail.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use leasehold_core::{
    Answer, BoxFuture, Broken, Claim, ClaimId, Engine, EngineError, Grant, Guarantee, Hold, How, Inspect,
    Mode, Name, Notification, Previous, Profile, Release, Released, Renewed, View,
};
use leasehold_testkit::suite::{self, Report};

use crate::rig::Rig;

/// Where an engine is bent. The default is straight.
#[derive(Default)]
struct Bends {
    claim: Option<fn(&mut Claim, &mut How)>,
    answer: Option<fn(&Claim, How, Answer) -> Answer>,
    renew: Option<fn(&mut Vec<Hold>)>,
    renewed: Option<fn(Vec<Renewed>) -> Vec<Renewed>>,
    release: Option<fn(&mut Vec<Release>)>,
    released: Option<fn(Vec<Released>) -> Vec<Released>>,
    mute: bool,
    list: Option<fn(Vec<View>) -> Vec<View>>,
    /// Every repeated claim is sent under a new id.
    forgets_ids: bool,
}

struct Bent {
    inner: Arc<dyn Engine>,
    bends: Bends,
    sent: Mutex<HashMap<ClaimId, u8>>,
}

impl Engine for Bent {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, mut how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move {
            let mut bent = claim.clone();
            if let Some(bend) = self.bends.claim {
                bend(&mut bent, &mut how);
            }
            if self.bends.forgets_ids && how == How::Create {
                let mut sent = self.sent.lock().unwrap();
                let times = sent.entry(claim.id).or_default();
                bent.id.0[0] ^= *times;
                *times += 1;
            }
            let answer = self.inner.claim(&bent, how).await?;
            Ok(self.bends.answer.map_or_else(|| answer.clone(), |bend| bend(claim, how, answer.clone())))
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            let mut holds = holds.to_vec();
            if let Some(bend) = self.bends.renew {
                bend(&mut holds);
            }
            let answers = self.inner.renew(&holds).await;
            if let Some(bend) = self.bends.renewed { bend(answers) } else { answers }
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            let mut releases = releases.to_vec();
            if let Some(bend) = self.bends.release {
                bend(&mut releases);
            }
            let answers = self.inner.release(&releases).await;
            if let Some(bend) = self.bends.released { bend(answers) } else { answers }
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        if self.bends.mute { Box::pin(std::future::pending()) } else { self.inner.notifications() }
    }
}

impl Inspect for Bent {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.inner.ping()
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        self.inner.guarantee()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move {
            let views = self.inner.list(prefix).await?;
            Ok(if let Some(bend) = self.bends.list { bend(views) } else { views })
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

/// What the suite says about memory engines bent so.
fn report(bends: fn() -> Bends) -> Report {
    thread_local!(static BENDS: std::cell::Cell<fn() -> Bends> = const { std::cell::Cell::new(Bends::default) });
    BENDS.set(bends);
    let rig = Rig::wrapped(|inner| Arc::new(Bent { inner, bends: BENDS.get()(), sent: Mutex::default() }));
    suite::run_engine(&rig)
}

#[track_caller]
fn caught(bends: fn() -> Bends, cases: &[&str]) {
    let report = report(bends);
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
fn a_straight_engine_is_not_accused() {
    let report = report(Bends::default);
    assert!(report.failed.is_empty(), "{report}");
}

#[test]
fn a_token_that_does_not_grow_is_caught() {
    let bends = || Bends {
        answer: Some(|_, _, answer| {
            regrant(answer, |mut grant| {
                grant.token.number = 1;
                grant
            })
        }),
        ..Bends::default()
    };
    caught(bends, &["tokens_grow_across_clients", "tokens_grow_across_modes", "tokens_grow_after_an_expiry"]);
}

#[test]
fn overlapping_blocks_are_caught() {
    let bends = || Bends {
        answer: Some(|_, _, answer| regrant(answer, |grant| Grant { tokens: grant.tokens + 1, ..grant })),
        ..Bends::default()
    };
    caught(bends, &["blocks_of_tokens_do_not_overlap", "a_grant_carries_no_more_tokens_than_asked_for"]);
}

#[test]
fn an_ask_that_creates_is_caught() {
    let bends = || Bends { claim: Some(|_, how| *how = How::Create), ..Bends::default() };
    caught(bends, &["ask_never_creates"]);
}

#[test]
fn a_queueing_attempt_is_caught() {
    let bends = || Bends { claim: Some(|claim, _| claim.may_queue = true), ..Bends::default() };
    caught(bends, &["a_claim_that_may_not_queue_leaves_nothing", "a_taken_name_is_not_granted_again"]);
}

#[test]
fn forgotten_ids_are_caught() {
    let bends = || Bends { forgets_ids: true, ..Bends::default() };
    caught(
        bends,
        &[
            "a_doubled_claim_is_the_same_grant",
            "a_doubled_waiting_claim_keeps_its_place",
            "a_late_claim_after_its_release_holds_nothing",
        ],
    );
}

#[test]
fn a_release_that_does_nothing_is_caught() {
    let bends = || Bends {
        release: Some(|releases| releases.iter_mut().for_each(|release| release.id = ClaimId([0; 16]))),
        released: Some(|answers| answers.into_iter().map(|_| Released::Freed).collect()),
        ..Bends::default()
    };
    caught(bends, &["a_free_name_is_granted", "a_released_name_is_free", "a_doubled_release_finds_nothing"]);
}

#[test]
fn a_release_that_ignores_the_token_is_caught() {
    let bends = || Bends {
        release: Some(|releases| releases.iter_mut().for_each(|release| release.token = None)),
        ..Bends::default()
    };
    caught(bends, &["a_release_with_another_token_finds_nothing_and_leaves_nothing"]);
}

#[test]
fn a_release_that_forgets_how_it_ended_is_caught() {
    let bends = || Bends {
        release: Some(|releases| releases.iter_mut().for_each(|release| release.ended = Previous::Clean)),
        ..Bends::default()
    };
    caught(bends, &["the_next_holder_hears_of_an_abandoned_hold"]);
}

#[test]
fn a_release_that_does_not_keep_is_caught() {
    let bends = || Bends {
        release: Some(|releases| releases.iter_mut().for_each(|release| release.keep = None)),
        ..Bends::default()
    };
    caught(bends, &["a_kept_name_is_taken_for_its_time", "a_waiter_gets_a_kept_name_after_its_time"]);
}

#[test]
fn swapped_answers_are_caught() {
    let bends = || Bends {
        released: Some(|answers| answers.into_iter().rev().collect()),
        renewed: Some(|mut answers| {
            let by = 1.min(answers.len());
            answers.rotate_left(by);
            answers
        }),
        ..Bends::default()
    };
    caught(bends, &["renewals_answer_one_by_one_in_order"]);
}

#[test]
fn a_renewal_that_is_always_kept_is_caught() {
    let bends = || Bends {
        renewed: Some(|answers| {
            answers
                .into_iter()
                .map(|_| Renewed::Kept { ttl: Some(std::time::Duration::from_secs(1)) })
                .collect()
        }),
        ..Bends::default()
    };
    caught(
        bends,
        &[
            "renew_of_another_id_is_lost",
            "renew_of_another_token_is_lost",
            "an_expired_hold_is_lost",
            "a_broken_hold_is_lost_and_waited_for",
            "a_system_that_forgot_says_so_and_tokens_still_grow",
        ],
    );
}

#[test]
fn a_renewal_that_does_not_extend_is_caught() {
    let bends = || Bends {
        renew: Some(|holds| {
            holds.iter_mut().for_each(|hold| hold.ttl = std::time::Duration::from_millis(100))
        }),
        ..Bends::default()
    };
    caught(bends, &["renew_extends_a_lease"]);
}

#[test]
fn missing_notifications_are_caught() {
    let bends = || Bends { mute: true, ..Bends::default() };
    caught(bends, &["a_notification_wakes_the_waiter"]);
}

#[test]
fn names_that_meet_are_caught() {
    let bends = || Bends {
        claim: Some(|claim, _| {
            claim.name = Name::new(&claim.name.as_str().to_lowercase().replace('/', "_")).unwrap();
        }),
        ..Bends::default()
    };
    caught(bends, &["odd_names_never_meet"]);
}

#[test]
fn truncated_names_are_caught() {
    let bends = || Bends {
        claim: Some(|claim, _| {
            let cut: String = claim.name.as_str().chars().take(250).collect();
            claim.name = Name::new(&cut).unwrap();
        }),
        ..Bends::default()
    };
    caught(bends, &["the_longest_names_never_meet"]);
}

#[test]
fn an_unsorted_list_is_caught() {
    let bends = || Bends { list: Some(|views| views.into_iter().rev().collect()), ..Bends::default() };
    caught(bends, &["only_names_in_use_are_listed"]);
}

#[test]
fn writers_that_share_are_caught() {
    let bends = || Bends {
        claim: Some(|claim, _| {
            if claim.mode == Mode::Exclusive {
                claim.mode = Mode::Shared;
            }
        }),
        ..Bends::default()
    };
    caught(
        bends,
        &[
            "a_taken_name_is_not_granted_again",
            "a_reader_excludes_a_writer",
            "newcomers_do_not_barge_past_the_line",
        ],
    );
}

#[test]
fn readers_that_do_not_share_are_caught() {
    let bends = || Bends {
        claim: Some(|claim, _| {
            if claim.mode == Mode::Shared {
                claim.mode = Mode::Exclusive;
            }
        }),
        ..Bends::default()
    };
    caught(bends, &["readers_share", "readers_at_the_head_are_granted_together"]);
}

#[test]
fn permits_that_are_not_counted_are_caught() {
    let bends = || Bends {
        claim: Some(|claim, _| {
            if let Mode::Permits { limit, .. } = claim.mode {
                claim.mode = Mode::Permits { count: 1, limit };
            }
        }),
        ..Bends::default()
    };
    caught(bends, &["a_permit_hold_of_many_counts_all"]);
}

#[test]
fn a_previous_that_is_always_clean_is_caught() {
    let bends = || Bends {
        answer: Some(|_, _, answer| regrant(answer, |grant| Grant { previous: Previous::Clean, ..grant })),
        ..Bends::default()
    };
    caught(
        bends,
        &[
            "an_expired_name_is_free",
            "the_next_holder_hears_of_an_abandoned_hold",
            "a_hold_that_nobody_used_hides_no_end",
            "a_forced_break_frees_at_once",
        ],
    );
}

#[test]
fn a_panic_of_an_engine_is_a_failure_with_its_message() {
    let bends = || Bends { list: Some(|_| panic!("the list is broken")), ..Bends::default() };
    let report = report(bends);
    let why = report.failed.iter().find(|(case, _)| *case == "only_names_in_use_are_listed").unwrap();
    assert!(why.1.contains("the list is broken"), "{report}");
}
