//! Decides which tick is next: pure, with the time as an argument.

use std::{sync::Arc, time::Duration};

use crate::{
    Due, Timetable,
    schedule::record::{CLOCK_TOLERANCE, TickRecord},
};

/// The largest number of missed ticks that are run: the search for them goes back tick by tick.
pub(crate) const MAX_CATCH_UP: u32 = 1000;

/// One millisecond: the unit of due times.
const TICK_UNIT: Duration = Duration::from_millis(1);

/// What happens to ticks that nobody ran when they were due: because no process of the schedule ran, because a run took
/// longer than the period, or because the engine could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missed {
    /// They are not run. A tick is missed for a process that did not wait for it when it became due.
    Skip,
    /// The latest of them is run, and the earlier ones are not.
    Latest,
    /// The latest so many of them are run one after another, the oldest first: 1 to 1,000. One whose work fails is
    /// tried again until the next tick is due, and is then passed over.
    All(u32),
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Run this tick, unless another process has.
    Run(Due),
    /// Nothing is due before this tick.
    Wait(Due),
    /// The timetable has no further tick.
    End,
}

/// The choice of ticks of a schedule.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) timetable: Arc<dyn Timetable>,
    pub(crate) missed: Missed,
    /// Ticks that are older than this are not run.
    pub(crate) max_late: Option<Duration>,
}

/// What a process knows of its schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// The newest record that the process has read or written.
    pub(crate) record: TickRecord,
    /// Ticks up to this time are no concern of this process: nothing was recorded when it began, or the last of them
    /// has failed here for too long.
    pub(crate) floor: Option<Due>,
    /// The tick whose work has failed here.
    pub(crate) failing: Option<Failing>,
    /// The tick that this process waited for when it became due.
    pub(crate) awaited: Option<Due>,
}

/// A tick whose work has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    due: Due,
    /// The tick after its first failure: when this is due, the failing one is passed over.
    until: Due,
}

impl Progress {
    /// Nothing is known.
    pub(crate) const NONE: Self =
        Self { record: TickRecord::EMPTY, floor: None, failing: None, awaited: None };

    /// The clock of the process shows `now`. If it was set back, or if all that is recorded is ahead of it, the process
    /// begins anew at this time.
    pub(crate) fn note_time(&mut self, now: Due) {
        if let Some(failing) = self.failing.filter(|failing| failing.until <= now) {
            self.floor = self.floor.max(Some(failing.due));
            self.failing = None;
        }
        let begins_anew = match self.floor {
            Some(floor) => floor > now.plus(CLOCK_TOLERANCE),
            None => self.record.settled_until(now).is_none(),
        };
        if begins_anew {
            self.floor = Some(now);
        }
    }

    /// The work of a tick has failed. `next`: the next tick after this moment.
    pub(crate) fn note_failed(&mut self, due: Due, next: Option<Due>) {
        if self.failing.is_none_or(|failing| failing.due != due) {
            self.failing = next.map(|until| Failing { due, until });
        }
    }
}

impl Plan {
    /// What is wrong with the options.
    pub(crate) fn problem(&self) -> Option<String> {
        if let Missed::All(limit) = self.missed
            && !(1..=MAX_CATCH_UP).contains(&limit)
        {
            return Some(format!("{limit} missed ticks are out of range: 1 to {MAX_CATCH_UP} are allowed"));
        }
        self.timetable.problem()
    }

    /// The next step of a process whose clock shows `now`.
    pub(crate) fn next_step(&self, progress: &Progress, now: Due) -> Step {
        let too_late = self.max_late.map(|max_late| now.minus(max_late).minus(TICK_UNIT));
        let base = progress.floor.max(progress.record.settled_until(now)).max(too_late);
        let is_open = |due: &Due| Some(*due) > base && !progress.record.is_settled(*due, now);
        let newest = self.timetable.last_until(now).filter(is_open);
        let chosen = match self.missed {
            Missed::Skip => newest.filter(|due| progress.awaited == Some(*due)),
            Missed::Latest => newest,
            Missed::All(limit) => {
                let ticks = std::iter::successors(self.timetable.last_until(now), |due| self.before(*due));
                let in_range = ticks.take_while(|due| Some(*due) > base).take(limit as usize);
                in_range.filter(is_open).last()
            }
        };
        match chosen {
            Some(due) => Step::Run(due),
            None => self.next_open(progress, base.unwrap_or(now).max(now), now),
        }
    }

    /// The tick before this one.
    pub(crate) fn before(&self, due: Due) -> Option<Due> {
        self.timetable.last_until(due.minus(TICK_UNIT)).filter(|before| *before < due)
    }

    /// The first tick after `after` that is not settled.
    fn next_open(&self, progress: &Progress, after: Due, now: Due) -> Step {
        let mut after = after;
        // Each round passes one span of the record.
        while let Some(next) = self.timetable.next_after(after).filter(|next| *next > after) {
            match progress.record.span_end(next) {
                Some(end) => after = end,
                None if progress.record.is_settled(next, now) => after = next,
                None => return Step::Wait(next),
            }
        }
        Step::End
    }
}

/// The tick for which a process has waited, if its clock shows `now` afterwards: `None` if the process was suspended or
/// the clock was set, so that the tick counts as missed.
pub(crate) fn awaited_at(due: Due, jitter: Duration, now: Due) -> Option<Due> {
    (now <= due.plus(jitter).plus(CLOCK_TOLERANCE)).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Every;

    const MINUTE: u64 = 60;

    const fn at(secs: u64) -> Due {
        Due::from_unix_secs(secs)
    }

    /// A plan with a tick each ten minutes.
    fn plan(missed: Missed) -> Plan {
        let timetable = Arc::new(Every::new(Duration::from_secs(10 * MINUTE)));
        Plan { timetable, missed, max_late: None }
    }

    /// A process that knows that the tick at this minute has run.
    fn ran_at(minute: u64) -> Progress {
        let record = TickRecord::default().with(at(minute * MINUTE), None);
        Progress { record, ..Progress::default() }
    }

    #[track_caller]
    fn assert_step(plan: &Plan, progress: &Progress, minute: u64, expected: Step) {
        assert_eq!(plan.next_step(progress, at(minute * MINUTE)), expected, "{plan:?} at minute {minute}");
    }

    fn run(minute: u64) -> Step {
        Step::Run(at(minute * MINUTE))
    }

    fn wait(minute: u64) -> Step {
        Step::Wait(at(minute * MINUTE))
    }

    #[test]
    fn nothing_is_due_before_the_next_tick() {
        for missed in [Missed::Skip, Missed::Latest, Missed::All(5)] {
            assert_step(&plan(missed), &ran_at(100), 100, wait(110));
            assert_step(&plan(missed), &ran_at(100), 109, wait(110));
        }
    }

    #[test]
    fn of_missed_ticks_run_none_the_latest_or_so_many() {
        assert_step(&plan(Missed::Skip), &ran_at(100), 155, wait(160));
        assert_step(&plan(Missed::Latest), &ran_at(100), 155, run(150));
        assert_step(&plan(Missed::All(3)), &ran_at(100), 155, run(130));
        assert_step(&plan(Missed::All(100)), &ran_at(100), 155, run(110));
    }

    #[test]
    fn an_awaited_tick_is_not_missed_until_the_next_one_is_due() {
        let progress = Progress { awaited: Some(at(110 * MINUTE)), ..ran_at(100) };
        assert_step(&plan(Missed::Skip), &progress, 110, run(110));
        assert_step(&plan(Missed::Skip), &progress, 119, run(110));
        assert_step(&plan(Missed::Skip), &progress, 120, wait(130));
    }

    #[test]
    fn a_tick_that_is_awaited_for_too_long_is_missed() {
        let (due, jitter) = (at(110 * MINUTE), Duration::from_secs(30));
        assert_eq!(awaited_at(due, jitter, at(110 * MINUTE + 90)), Some(due));
        assert_eq!(awaited_at(due, jitter, at(110 * MINUTE + 91)), None);
    }

    #[test]
    fn a_process_runs_no_tick_before_its_begin_if_nothing_is_recorded() {
        for missed in [Missed::Skip, Missed::Latest, Missed::All(5)] {
            let progress = Progress { floor: Some(at(105 * MINUTE)), ..Progress::default() };
            assert_step(&plan(missed), &progress, 105, wait(110));
        }
        let begun = Progress { record: TickRecord::beginning(at(109 * MINUTE)), ..Progress::default() };
        assert_step(&plan(Missed::Latest), &begun, 115, run(110));
    }

    #[test]
    fn a_process_that_began_with_a_fast_clock_begins_anew_when_it_is_set_back() {
        let mut progress = Progress { floor: Some(at(200 * MINUTE)), ..Progress::NONE };
        progress.note_time(at(199 * MINUTE));
        assert_eq!(progress.floor, Some(at(200 * MINUTE)));
        progress.note_time(at(105 * MINUTE));
        assert_step(&plan(Missed::Latest), &progress, 105, wait(110));
        assert_step(&plan(Missed::Latest), &progress, 110, run(110));
    }

    #[test]
    fn ticks_that_are_too_late_are_not_run() {
        let limited = |missed| Plan { max_late: Some(Duration::from_secs(15 * MINUTE)), ..plan(missed) };
        assert_step(&limited(Missed::Latest), &ran_at(100), 155, run(150));
        assert_step(&limited(Missed::All(5)), &ran_at(100), 155, run(140));
        let daily =
            Plan { timetable: Arc::new(Every::new(Duration::from_secs(86_400))), ..limited(Missed::Latest) };
        assert_step(&daily, &ran_at(0), 24 * 60 + 15, run(24 * 60));
        assert_step(&daily, &ran_at(0), 24 * 60 + 16, wait(48 * 60));
    }

    #[test]
    fn after_the_clock_is_set_back_the_process_waits_for_a_tick_that_has_not_run() {
        let record = (10..=20).fold(TickRecord::default(), |record, tick| {
            record.with(at(tick * 10 * MINUTE), Some(at((tick - 1) * 10 * MINUTE)))
        });
        let progress = Progress { record, ..Progress::default() };
        for missed in [Missed::Skip, Missed::Latest, Missed::All(1000)] {
            assert_step(&plan(missed), &progress, 145, wait(210));
        }
    }

    #[test]
    fn ticks_of_a_fast_clock_are_passed_over() {
        let record = ran_at(100).record.with(at(130 * MINUTE), None);
        let progress = Progress { record, ..Progress::default() };
        for missed in [Missed::Latest, Missed::All(1000)] {
            assert_step(&plan(missed), &progress, 101, wait(110));
            assert_step(&plan(missed), &progress, 110, run(110));
        }
        let before = progress.record.with(at(120 * MINUTE), None);
        assert_step(
            &plan(Missed::Latest),
            &Progress { record: before, ..Progress::default() },
            121,
            wait(140),
        );
    }

    #[test]
    fn ten_thousand_missed_ticks_cost_no_more_than_the_limit() {
        let long_after = 100 + 10_000 * 10;
        assert_step(&plan(Missed::Latest), &ran_at(100), long_after, run(long_after));
        let oldest = long_after - 999 * 10;
        assert_step(&plan(Missed::All(MAX_CATCH_UP)), &ran_at(100), long_after, run(oldest));
    }

    #[test]
    fn limits_outside_their_range_are_refused() {
        for limit in [0, MAX_CATCH_UP + 1] {
            assert!(plan(Missed::All(limit)).problem().unwrap().contains("missed ticks"));
        }
        assert_eq!(plan(Missed::All(1)).problem(), None);
    }

    #[test]
    fn a_timetable_may_end() {
        struct Once;
        impl Timetable for Once {
            fn next_after(&self, after: Due) -> Option<Due> {
                Some(at(MINUTE)).filter(|due| *due > after)
            }
            fn last_until(&self, due: Due) -> Option<Due> {
                Some(at(MINUTE)).filter(|last| *last <= due)
            }
        }
        let plan = Plan { timetable: Arc::new(Once), ..plan(Missed::Latest) };
        assert_step(&plan, &Progress::default(), 0, wait(1));
        assert_step(&plan, &Progress::default(), 2, run(1));
        assert_step(&plan, &ran_at(1), 2, Step::End);
    }
}
