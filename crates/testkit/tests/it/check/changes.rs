//! Changes to a generated history, each of which breaks an invariant.

use leasehold_core::Mode;
use leasehold_testkit::history::{Event, History, RecordedMode, What};

use super::{
    model::{MS, TTL},
    rng::Rng,
    scenario::number,
};

/// A change that breaks an invariant, at a random position. `None`: no position fits.
pub(crate) type Change = fn(&mut Vec<Event>, &mut Rng) -> Option<()>;

/// The changes, and the invariants that each violates.
pub(crate) const CHANGES: &[(&str, &str, Change)] = &[
    ("I0", "a lost record", |events, rng| {
        let at = any(events, rng, |_, event| matches!(event.what, What::RelOk))?;
        events.remove(at);
        Some(())
    }),
    ("I1 I3", "a hold stretched over the next", |events, rng| {
        let (release, next) = handed_on(events, rng)?;
        let (from, until) = (events[release].t, events[next].t + MS / 4);
        let id = events[release].attempt;
        let looked = events.iter().any(|event| {
            matches!(event.what, What::Truth { .. })
                && (from..until).contains(&event.t)
                && event.lock == "alone"
        });
        (!looked && deadline(events, id)? > until).then_some(())?;
        let of_release = |event: &&mut Event| event.attempt == id && event.t >= from;
        events.iter_mut().filter(of_release).for_each(|event| event.t = event.t.max(until));
        renumber(events)
    }),
    ("I2", "a deadline a drift too late", |events, rng| {
        let at = any(events, rng, |events, event| {
            matches!(event.what, What::AcqOk { .. }) && freed_within_lease(events, event.attempt)
        })?;
        let What::AcqOk { deadline: Some(deadline), ttl: Some(ttl), .. } = &mut events[at].what else {
            return None;
        };
        *deadline += *ttl * 5 / 100;
        Some(())
    }),
    ("I2", "a renewal a drift too late", |events, rng| {
        let at = any(events, rng, |events, event| {
            matches!(event.what, What::RenewOk { .. }) && freed_within_lease(events, event.attempt)
        })?;
        let What::RenewOk { deadline, .. } = &mut events[at].what else { return None };
        *deadline += TTL * 5 / 100;
        Some(())
    }),
    ("I2", "a holder that the server forgot", |events, rng| {
        let at = any(events, rng, |events, event| valid_holder(events, event).is_some())?;
        let gone = valid_holder(events, &events[at])?;
        let What::Truth { holders, .. } = &mut events[at].what else { return None };
        holders.retain(|held| held.attempt != gone);
        Some(())
    }),
    ("I3", "a minimum hold that was ignored", |events, rng| {
        let (release, _) = handed_on(events, rng)?;
        events[release].what = What::RelInv { min_hold: Some(5_000 * MS), sure: None };
        Some(())
    }),
    ("I3 I4", "a token of the past", |events, rng| {
        let (_, next) = handed_on(events, rng)?;
        set_token(events, next, 0)
    }),
    ("I3 I4", "a token used twice", |events, rng| {
        let (release, next) = handed_on(events, rng)?;
        let id = events[release].attempt;
        let earlier = events.iter().find_map(|event| match event.what {
            What::AcqOk { token, .. } if event.attempt == id => Some(token),
            _ => None,
        })?;
        set_token(events, next, earlier)
    }),
    ("I5", "an update that is lost", |events, rng| {
        let acknowledged = acknowledged(events);
        let elements = contents(events)?;
        let found: Vec<_> =
            elements.iter().copied().filter(|element| acknowledged.contains(element)).collect();
        let lost = *found.get(rng.between(0, found.len() as u64) as usize)?;
        elements.retain(|element| *element != lost);
        Some(())
    }),
    ("I5", "updates in the wrong order", |events, rng| {
        let elements = contents(events)?;
        let (first, last) = (0, elements.len() - 1 - rng.between(0, 5) as usize);
        elements.swap(first, last);
        Some(())
    }),
    ("I5", "an update from nowhere", |events, _| {
        contents(events)?.push(u64::MAX);
        Some(())
    }),
    ("I6", "a key too many at rest", |events, _| {
        let What::Probe { found, .. } = &mut events.last_mut()?.what else { return None };
        *found.get_mut("keys")? += 1;
        Some(())
    }),
    ("I6", "another kind of thing at rest", |events, _| {
        let What::Probe { found, .. } = &mut events.last_mut()?.what else { return None };
        found.insert("threads".into(), 1);
        Some(())
    }),
    ("I8", "a waiter overtaken", |events, rng| {
        let first = any(events, rng, waited)?;
        let second = (first + 1..events.len()).find(|&at| waited(events, &events[at]))?;
        // The attempt that was granted second is moved, so that it was queued before the first one was called.
        let call = |id| events.iter().position(|event| event.attempt == id);
        let (before, after) = (call(events[first].attempt)?, call(events[second].attempt)?);
        let (from, id) = (events[before].t, events[after].attempt);
        (from < events[after].t && events[after].t < from + 200 * MS).then_some(())?;
        let what = |events: &[Event]| {
            events.iter().position(|event| event.attempt == id && matches!(event.what, What::Enq))
        };
        let queued = what(events)?;
        (events[after].t, events[queued].t) = (from - 2, from - 1);
        renumber(events)
    }),
    ("I9", "a check that stays true", |events, rng| {
        let at = any(events, rng, |_, event| matches!(event.what, What::Check { valid: false, .. }))?;
        let What::Check { valid, .. } = &mut events[at].what else { return None };
        *valid = true;
        Some(())
    }),
    ("I9", "a loss never reported", |events, rng| {
        let at = any(events, rng, |events, event| {
            let left = |other: &&Event| other.attempt == event.attempt && other.t > event.t + 51 * MS;
            matches!(event.what, What::Lost { .. })
                && events.iter().any(|other| left(&other) && matches!(other.what, What::RelInv { .. }))
        })?;
        events.remove(at);
        renumber(events)
    }),
    ("I10", "a hold that vanished", |events, rng| {
        let at = any(events, rng, |events, event| {
            matches!(event.what, What::RelOk) && freed_within_lease(events, event.attempt)
        })?;
        events[at].what = What::RelNotheld;
        Some(())
    }),
    ("I11", "a released hold that stays queued", |events, rng| {
        stays_queued(events, rng, |what| matches!(what, What::RelOk), 1_100 * MS)
    }),
    ("I11", "a cancelled attempt that stays queued", |events, rng| {
        stays_queued(events, rng, |what| matches!(what, What::Cancel | What::AcqUnknown { .. }), 1_100 * MS)
    }),
    ("I12", "a wait over its limit", |events, rng| {
        let limit = |event: &Event| match event.what {
            What::AcqInv { limit, .. } => limit.unwrap_or(0),
            _ => 0,
        };
        let at = any(events, rng, |events, event| {
            let given_up =
                |other: &Event| other.attempt == event.attempt && matches!(other.what, What::AcqTaken);
            limit(event) > 110 * MS && events.iter().any(given_up)
        })?;
        let What::AcqInv { limit, .. } = &mut events[at].what else { return None };
        *limit = Some(40 * MS);
        Some(())
    }),
];

/// A random event that fits.
fn any(events: &[Event], rng: &mut Rng, fits: impl Fn(&[Event], &Event) -> bool) -> Option<usize> {
    let from = rng.between(0, events.len() as u64) as usize;
    (from..events.len()).chain(0..from).find(|&at| fits(events, &events[at]))
}

/// Sorts and numbers the events after their times changed.
fn renumber(events: &mut Vec<Event>) -> Option<()> {
    *events = number(History::from_events(std::mem::take(events)).events().to_vec());
    Some(())
}

/// The release of an exclusive hold, and the next grant.
fn handed_on(events: &[Event], rng: &mut Rng) -> Option<(usize, usize)> {
    let release = any(events, rng, |events, event| {
        event.lock == "alone"
            && matches!(event.what, What::RelInv { min_hold: None, .. })
            && freed_within_lease(events, event.attempt)
    })?;
    let granted = |at: &usize| events[*at].lock == "alone" && matches!(events[*at].what, What::AcqOk { .. });
    Some((release, (release..events.len()).find(granted)?))
}

fn deadline(events: &[Event], id: u64) -> Option<u64> {
    let deadlines = events.iter().filter(|event| event.attempt == id).filter_map(|event| match event.what {
        What::AcqOk { deadline, .. } => deadline,
        What::RenewOk { deadline, .. } => Some(deadline),
        _ => None,
    });
    deadlines.max()
}

/// Whether the attempt held without a minimum hold, and was freed within its first lease.
fn freed_within_lease(events: &[Event], id: u64) -> bool {
    let Some(deadline) = deadline(events, id) else { return false };
    let of = || events.iter().filter(|event| event.attempt == id);
    of().any(|event| matches!(event.what, What::RelOk) && event.t < deadline - MS)
        && !of().any(|event| matches!(event.what, What::RelInv { min_hold: Some(_), .. }))
}

/// A holder in a look at the server whose hold is valid meanwhile.
fn valid_holder(events: &[Event], truth: &Event) -> Option<u64> {
    let What::Truth { holders, .. } = &truth.what else { return None };
    holders.iter().map(|held| held.attempt).find(|&id| {
        let at = |fits: fn(&What) -> bool| {
            events.iter().find(|event| event.attempt == id && fits(&event.what)).map(|event| event.t)
        };
        at(|what| matches!(what, What::AcqOk { .. })).is_some_and(|granted| granted < truth.t)
            && at(|what| matches!(what, What::RelInv { .. })).is_some_and(|left| left > truth.t)
            && freed_within_lease(events, id)
    })
}

/// Whether the event grants an exclusive hold that was queued, without a limit.
fn waited(events: &[Event], event: &Event) -> bool {
    let of = |fits: fn(&What) -> bool| {
        events.iter().any(|other| other.attempt == event.attempt && fits(&other.what))
    };
    event.lock == "alone"
        && matches!(event.what, What::AcqOk { .. })
        && of(|what| matches!(what, What::Enq))
        && of(|what| matches!(what, What::AcqInv { limit: None, mode: RecordedMode(Mode::Exclusive), .. }))
}

fn set_token(events: &mut [Event], at: usize, to: u64) -> Option<()> {
    let What::AcqOk { token, .. } = &mut events[at].what else { return None };
    *token = to;
    Some(())
}

fn acknowledged(events: &[Event]) -> Vec<u64> {
    let element = |event: &Event| match event.what {
        What::WriteOk { element } => Some(element),
        _ => None,
    };
    events.iter().filter_map(element).collect()
}

fn contents(events: &mut [Event]) -> Option<&mut Vec<u64>> {
    events.iter_mut().find_map(|event| match &mut event.what {
        What::Contents { elements, .. } => Some(elements),
        _ => None,
    })
}

/// Adds an attempt to the queue in a look at the server that comes `later` than a fitting event of the attempt.
fn stays_queued(events: &mut [Event], rng: &mut Rng, fits: fn(&What) -> bool, later: u64) -> Option<()> {
    let over = any(events, rng, |events, event| {
        let has_min_hold = events.iter().any(|other| {
            other.attempt == event.attempt && matches!(other.what, What::RelInv { min_hold: Some(_), .. })
        });
        fits(&event.what) && !has_min_hold
    })?;
    let (t, id, lock) = (events[over].t, events[over].attempt, events[over].lock.clone());
    let truth = events.iter_mut().find_map(|event| match &mut event.what {
        What::Truth { waiters, .. } if event.t > t + later && event.lock == lock => Some(waiters),
        _ => None,
    })?;
    truth.push(id);
    Some(())
}
