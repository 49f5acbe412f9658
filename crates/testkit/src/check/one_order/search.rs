//! Searches for an order of the begins and ends of the holds of one lock.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
};

use leasehold_core::Mode;

use super::{
    steps::{Order, insert},
    window::{Hold, Refusal},
};

/// How many orders of one lock are followed at once. A hundred clients need a handful. Beyond the bound the search on
/// the lock is given up, so that the duration of a check is bounded.
const MOST_ORDERS: usize = 20_000;

/// A conflict that no order explains.
pub(super) struct Fault {
    pub(super) what: Conflict,
    /// The refusal that last excluded orders. Without this refusal an order might exist.
    pub(super) given: Option<usize>,
}

pub(super) enum Conflict {
    /// A hold that was granted while the others were held.
    Beside(usize, Vec<usize>),
    /// A hold that was granted after a hold with the same or a larger token.
    Disordered(usize, usize),
    /// A refusal without any hold in its way.
    Unjustified(usize),
}

/// The result of a search.
#[derive(Default)]
pub(super) struct Found {
    pub(super) faults: Vec<Fault>,
    /// The largest number of orders at one time.
    pub(super) most: usize,
}

/// The search was given up.
pub(super) struct Undecided;

/// A point of the history. At the same instant, calls sort before returns, because the two overlap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Called(usize),
    Asked(usize),
    Refused(usize),
    Granted(usize),
    Gone(usize),
}

pub(super) struct Search<'s, 'b, 'h> {
    pub(super) holds: &'s [Hold<'b, 'h>],
    pub(super) refusals: &'s [Refusal<'b, 'h>],
    /// Acquires that were called and have not returned.
    pub(super) pending: Vec<usize>,
    /// Refused tries that were called and have not returned.
    pub(super) open: Vec<usize>,
    orders: BTreeSet<Order>,
    /// For each lineage, the hold with the largest token that returned: of the exclusive holds, and of all holds.
    pub(super) newest: HashMap<&'h str, (Option<usize>, Option<usize>)>,
    given: Option<usize>,
    found: Found,
}

impl<'s, 'b, 'h> Search<'s, 'b, 'h> {
    pub(super) fn new(holds: &'s [Hold<'b, 'h>], refusals: &'s [Refusal<'b, 'h>]) -> Self {
        Self {
            holds,
            refusals,
            pending: Vec::new(),
            open: Vec::new(),
            orders: BTreeSet::from([Order::default()]),
            newest: HashMap::new(),
            given: None,
            found: Found::default(),
        }
    }

    /// Follows every order through the history. After a conflict the search goes on as if there had been none.
    pub(super) fn run(mut self) -> Result<Found, Undecided> {
        for (at, mark) in self.marks() {
            match mark {
                Mark::Called(hold) => self.pending.push(hold),
                Mark::Asked(refusal) => {
                    self.open.push(refusal);
                    self.change(|search, order| search.mark_justified(order));
                }
                Mark::Refused(refusal) => {
                    self.explore(at)?;
                    self.refused(refusal);
                }
                Mark::Granted(hold) => {
                    self.explore(at)?;
                    self.granted(hold, at);
                }
                Mark::Gone(hold) => {
                    self.explore(at)?;
                    self.change(|_, order| order.held.retain(|held| *held != hold));
                }
            }
        }
        Ok(self.found)
    }

    fn marks(&self) -> Vec<(u64, Mark)> {
        let mut marks = Vec::with_capacity(self.holds.len() * 3 + self.refusals.len() * 2);
        for (number, hold) in self.holds.iter().enumerate() {
            marks.push((*hold.begin.start(), Mark::Called(number)));
            marks.push((*hold.begin.end(), Mark::Granted(number)));
            if *hold.end.end() < u64::MAX {
                marks.push((*hold.end.end().max(hold.begin.end()), Mark::Gone(number)));
            }
        }
        for (number, refusal) in self.refusals.iter().enumerate() {
            marks.push((*refusal.during.start(), Mark::Asked(number)));
            marks.push((*refusal.during.end(), Mark::Refused(number)));
        }
        marks.sort_unstable();
        marks
    }

    fn change(&mut self, change: impl Fn(&Self, &mut Order)) {
        let mut orders = mem::take(&mut self.orders);
        // The usual case is one order.
        if orders.len() == 1
            && let Some(mut order) = orders.pop_first()
        {
            change(self, &mut order);
            self.orders.insert(order);
            return;
        }
        self.orders = orders
            .into_iter()
            .map(|mut order| {
                change(self, &mut order);
                order
            })
            .collect();
    }

    /// Tries earlier begins: of acquires that may have begun long before they returned, if that may justify a refusal
    /// or if the hold may have ended before the return. For every other acquire, the latest possible begin is the best
    /// choice.
    fn explore(&mut self, at: u64) -> Result<(), Undecided> {
        let is_late = |hold: &usize| self.holds[*hold].late;
        if self.open.is_empty() && !self.pending.iter().any(is_late) {
            return Ok(());
        }
        let mut new: Vec<Order> = self.orders.iter().cloned().collect();
        while let Some(order) = new.pop() {
            let unjustified = self.open.iter().any(|refusal| !order.justified.contains(refusal));
            for &hold in &self.pending {
                if order.early.contains(&hold) || !(unjustified || is_late(&hold)) {
                    continue;
                }
                for next in self.begun(&order, hold, at) {
                    if self.orders.insert(next.clone()) {
                        new.push(next);
                    }
                }
            }
            if self.orders.len() > MOST_ORDERS {
                return Err(Undecided);
            }
        }
        self.found.most = self.found.most.max(self.orders.len());
        Ok(())
    }

    fn granted(&mut self, hold: usize, at: u64) {
        let mut orders = BTreeSet::new();
        for order in &self.orders {
            if order.early.contains(&hold) {
                orders.insert(order.clone());
                continue;
            }
            let begun = self.begun(order, hold, at);
            if begun.is_empty() && self.holds[hold].may_be_forgotten {
                orders.insert(order.clone());
            }
            orders.extend(begun);
        }
        if orders.is_empty() {
            orders.extend(self.record_conflict(hold));
        }
        self.orders = orders;
        self.change(|_, order| order.early.retain(|early| *early != hold));
        self.pending.retain(|pending| *pending != hold);
        self.remember(hold);
    }

    fn remember(&mut self, hold: usize) {
        let Some((lineage, token)) = self.holds[hold].token else { return };
        let (writer, any) = self.newest.entry(lineage).or_default();
        let larger = |last: &Option<usize>| {
            last.is_none_or(|last| self.holds[last].token.is_none_or(|(_, last)| last < token))
        };
        if larger(any) {
            *any = Some(hold);
        }
        if self.holds[hold].attempt.mode == Mode::Exclusive && larger(writer) {
            *writer = Some(hold);
        }
    }

    fn refused(&mut self, refusal: usize) {
        let justified = self.orders.iter().filter(|order| order.justified.contains(&refusal)).count();
        if justified == 0 {
            self.fault(Conflict::Unjustified(refusal));
        } else if justified < self.orders.len() {
            self.orders.retain(|order| order.justified.contains(&refusal));
            self.given = Some(refusal);
        }
        self.open.retain(|open| *open != refusal);
        self.change(|_, order| order.justified.retain(|justified| *justified != refusal));
    }

    fn fault(&mut self, what: Conflict) {
        self.found.faults.push(Fault { what, given: self.given });
    }

    /// Records why `hold` could not begin, and returns an order in which it begins nevertheless.
    fn record_conflict(&mut self, hold: usize) -> Option<Order> {
        let mut order = self.orders.first()?.clone();
        let blockers = self.blockers(&order, hold);
        order.held.retain(|held| !blockers.contains(held));
        self.fault(match self.disorder(&order, hold) {
            Some(other) => Conflict::Disordered(hold, other),
            None => Conflict::Beside(hold, blockers),
        });
        insert(&mut order.held, hold);
        Some(order)
    }
}
