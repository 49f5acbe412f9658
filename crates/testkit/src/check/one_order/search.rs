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

/// The limit of the orders of one lock that are followed at the same time. The history of a hundred clients needs a
/// handful. A search that exceeds the limit is given up, so that the duration of a check is bounded.
const MAX_ORDERS: usize = 20_000;

/// An answer that no order explains.
pub(super) struct Conflict {
    pub(super) kind: ConflictKind,
    /// The newest refusal that excluded orders. Without this refusal there might be an order without this conflict.
    pub(super) assumed_refusal: Option<usize>,
}

/// A conflict. The numbers are indices of holds and refusals.
pub(super) enum ConflictKind {
    /// A hold that was granted while the holds of the list were active.
    Overlap(usize, Vec<usize>),
    /// A hold that was granted after a hold with the same or a larger token.
    TokenOrder(usize, usize),
    /// A refused try that no hold explains.
    Unjustified(usize),
}

/// The result of a search.
#[derive(Default)]
pub(super) struct SearchResult {
    pub(super) conflicts: Vec<Conflict>,
    /// The largest number of orders at one time.
    pub(super) max_orders: usize,
}

/// The search was given up, because too many orders were possible.
pub(super) struct Undecided;

/// A point in time of the history, with the index of the hold or refusal. Of two points at the same instant, a call
/// sorts before a return, so that the two requests overlap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HistoryPoint {
    /// The call of an acquire that was granted later.
    AcquireCalled(usize),
    /// The call of a try that was refused later.
    TryCalled(usize),
    TryRefused(usize),
    AcquireGranted(usize),
    /// The hold has certainly ended.
    HoldEnded(usize),
}

pub(super) struct Search<'s, 'b, 'h> {
    pub(super) holds: &'s [Hold<'b, 'h>],
    pub(super) refusals: &'s [Refusal<'b, 'h>],
    /// Acquires that were called and have not returned.
    pub(super) pending: Vec<usize>,
    /// Refused tries that were called and have not returned.
    pub(super) open_tries: Vec<usize>,
    orders: BTreeSet<Order>,
    /// For each lineage, two holds whose acquires have returned: the exclusive hold with the largest token, and the
    /// hold of any mode with the largest token.
    pub(super) newest: HashMap<&'h str, (Option<usize>, Option<usize>)>,
    /// The newest refusal that excluded orders.
    assumed_refusal: Option<usize>,
    result: SearchResult,
}

impl<'s, 'b, 'h> Search<'s, 'b, 'h> {
    pub(super) fn new(holds: &'s [Hold<'b, 'h>], refusals: &'s [Refusal<'b, 'h>]) -> Self {
        Self {
            holds,
            refusals,
            pending: Vec::new(),
            open_tries: Vec::new(),
            orders: BTreeSet::from([Order::default()]),
            newest: HashMap::new(),
            assumed_refusal: None,
            result: SearchResult::default(),
        }
    }

    /// Follows every order through the history. After a conflict the search goes on as if there had been none.
    pub(super) fn run(mut self) -> Result<SearchResult, Undecided> {
        for (at, point) in self.history_points() {
            match point {
                HistoryPoint::AcquireCalled(hold) => self.pending.push(hold),
                HistoryPoint::TryCalled(refusal) => {
                    self.open_tries.push(refusal);
                    self.change_orders(|search, order| search.mark_justified(order));
                }
                HistoryPoint::TryRefused(refusal) => {
                    self.explore(at)?;
                    self.end_try(refusal);
                }
                HistoryPoint::AcquireGranted(hold) => {
                    self.explore(at)?;
                    self.end_acquire(hold, at);
                }
                HistoryPoint::HoldEnded(hold) => {
                    self.explore(at)?;
                    self.change_orders(|_, order| order.held.retain(|held| *held != hold));
                }
            }
        }
        Ok(self.result)
    }

    /// All points of the history in order, with their times.
    fn history_points(&self) -> Vec<(u64, HistoryPoint)> {
        let mut points = Vec::with_capacity(self.holds.len() * 3 + self.refusals.len() * 2);
        for (number, hold) in self.holds.iter().enumerate() {
            points.push((*hold.begin.start(), HistoryPoint::AcquireCalled(number)));
            points.push((*hold.begin.end(), HistoryPoint::AcquireGranted(number)));
            if *hold.end.end() < u64::MAX {
                points.push((*hold.end.end().max(hold.begin.end()), HistoryPoint::HoldEnded(number)));
            }
        }
        for (number, refusal) in self.refusals.iter().enumerate() {
            points.push((*refusal.during.start(), HistoryPoint::TryCalled(number)));
            points.push((*refusal.during.end(), HistoryPoint::TryRefused(number)));
        }
        points.sort_unstable();
        points
    }

    /// Applies a change to every order, and merges orders that become equal.
    fn change_orders(&mut self, change: impl Fn(&Self, &mut Order)) {
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

    /// Adds orders in which a pending acquire has begun its hold already at `at`. This is needed only if the hold may
    /// justify an open refusal, or may end before the acquire returns. For every other acquire, it is enough to try the
    /// latest possible begin, at its return.
    fn explore(&mut self, at: u64) -> Result<(), Undecided> {
        let may_have_lapsed = |hold: &usize| self.holds[*hold].may_lapse_before_return;
        if self.open_tries.is_empty() && !self.pending.iter().any(may_have_lapsed) {
            return Ok(());
        }
        let mut unexplored: Vec<Order> = self.orders.iter().cloned().collect();
        while let Some(order) = unexplored.pop() {
            let unjustified = self.open_tries.iter().any(|refusal| !order.justified.contains(refusal));
            for &hold in &self.pending {
                if order.begun_early.contains(&hold) || !(unjustified || may_have_lapsed(&hold)) {
                    continue;
                }
                for next in self.orders_with_begin(&order, hold, at) {
                    if self.orders.insert(next.clone()) {
                        unexplored.push(next);
                    }
                }
            }
            if self.orders.len() > MAX_ORDERS {
                return Err(Undecided);
            }
        }
        self.result.max_orders = self.result.max_orders.max(self.orders.len());
        Ok(())
    }

    /// An acquire returned, so its hold has begun by now in every order. Orders in which the hold cannot have begun are
    /// dropped.
    fn end_acquire(&mut self, hold: usize, at: u64) {
        let mut orders = BTreeSet::new();
        for order in &self.orders {
            if order.begun_early.contains(&hold) {
                orders.insert(order.clone());
                continue;
            }
            let begun = self.orders_with_begin(order, hold, at);
            if begun.is_empty() && self.holds[hold].may_be_forgotten {
                orders.insert(order.clone());
            }
            orders.extend(begun);
        }
        if orders.is_empty() {
            orders.extend(self.record_conflict(hold));
        }
        self.orders = orders;
        self.change_orders(|_, order| order.begun_early.retain(|begun_early| *begun_early != hold));
        self.pending.retain(|pending| *pending != hold);
        self.record_newest(hold);
    }

    /// Records the hold in `newest` if its token is the largest so far.
    fn record_newest(&mut self, hold: usize) {
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

    /// A refused try returned: orders in which the refusal was never justified are dropped.
    fn end_try(&mut self, refusal: usize) {
        let justified = self.orders.iter().filter(|order| order.justified.contains(&refusal)).count();
        if justified == 0 {
            self.add_conflict(ConflictKind::Unjustified(refusal));
        } else if justified < self.orders.len() {
            self.orders.retain(|order| order.justified.contains(&refusal));
            self.assumed_refusal = Some(refusal);
        }
        self.open_tries.retain(|open| *open != refusal);
        self.change_orders(|_, order| order.justified.retain(|justified| *justified != refusal));
    }

    fn add_conflict(&mut self, kind: ConflictKind) {
        self.result.conflicts.push(Conflict { kind, assumed_refusal: self.assumed_refusal });
    }

    /// Records why `hold` could not begin, and returns an order in which it begins nevertheless.
    fn record_conflict(&mut self, hold: usize) -> Option<Order> {
        let mut order = self.orders.first()?.clone();
        let blockers = self.blockers(&order, hold);
        order.held.retain(|held| !blockers.contains(held));
        self.add_conflict(match self.token_conflict(&order, hold) {
            Some(other) => ConflictKind::TokenOrder(hold, other),
            None => ConflictKind::Overlap(hold, blockers),
        });
        insert(&mut order.held, hold);
        Some(order)
    }
}
