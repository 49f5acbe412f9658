//! The rows of the table: one for each hold, and one for each name without a hold. Their order, and the filter. Pure.

use std::{cmp::Ordering, time::Duration};

use leasehold::{HolderView, View};
use leasehold_ops::oldest_waiter;

/// Which row it is, also in a later look: the name and the id of the claim that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowId {
    pub(crate) name: String,
    /// `None`: the name has no holder.
    pub(crate) claim: Option<String>,
}

/// A row, as places in the views of a look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    view: usize,
    hold: Option<usize>,
    /// How long the oldest waiter has waited.
    pub(crate) oldest: Option<Duration>,
}

impl Row {
    pub(crate) fn view<'v>(&self, views: &'v [View]) -> &'v View {
        &views[self.view]
    }

    pub(crate) fn holder<'v>(&self, views: &'v [View]) -> Option<&'v HolderView> {
        self.hold.map(|hold| &self.view(views).holders[hold])
    }

    pub(crate) fn waiters(&self, views: &[View]) -> usize {
        self.view(views).waiters.len()
    }

    pub(crate) fn id(&self, views: &[View]) -> RowId {
        let claim = self.holder(views).map(|holder| holder.id.clone());
        RowId { name: self.view(views).name.as_str().to_owned(), claim }
    }

    pub(crate) fn is(&self, id: &RowId, views: &[View]) -> bool {
        self.view(views).name.as_str() == id.name
            && self.holder(views).map(|holder| &*holder.id) == id.claim.as_deref()
    }

    /// How much the name makes others wait: waiters times the longest wait, in seconds.
    fn load(&self, views: &[View]) -> f64 {
        self.waiters(views) as f64 * self.oldest.unwrap_or_default().as_secs_f64()
    }
}

/// The column by which the rows are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Waiters times the longest wait, the most first.
    Load,
    Name,
    /// The longest hold first.
    Held,
    /// The hold that lapses next first.
    Left,
    /// The most waiters first.
    Waiting,
    /// The longest wait first.
    Oldest,
}

impl Sort {
    const ALL: [Self; 6] = [Self::Load, Self::Name, Self::Held, Self::Left, Self::Waiting, Self::Oldest];

    /// The next one, after the last the first.
    pub(crate) fn next(self) -> Self {
        let place = Self::ALL.iter().position(|&sort| sort == self).unwrap_or_default();
        Self::ALL[(place + 1) % Self::ALL.len()]
    }

    /// Its word for the user.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Load => "waiters x wait",
            Self::Name => "name",
            Self::Held => "held",
            Self::Left => "left",
            Self::Waiting => "waiters",
            Self::Oldest => "oldest wait",
        }
    }

    fn compare(self, one: &Row, other: &Row, views: &[View]) -> Ordering {
        let held = |row: &Row| row.holder(views).and_then(|holder| holder.held.or(holder.held_at_least));
        // A hold that does not lapse comes last.
        let left = |row: &Row| row.holder(views).and_then(|holder| holder.remaining).unwrap_or(Duration::MAX);
        match self {
            Self::Load => other.load(views).total_cmp(&one.load(views)),
            Self::Name => one.view(views).name.as_str().cmp(other.view(views).name.as_str()),
            Self::Held => held(other).cmp(&held(one)),
            Self::Left => left(one).cmp(&left(other)),
            Self::Waiting => other.waiters(views).cmp(&one.waiters(views)),
            Self::Oldest => other.oldest.cmp(&one.oldest),
        }
    }
}

/// The order of the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) sort: Sort,
    pub(crate) is_reversed: bool,
}

/// The rows of these views whose name, holder or problem contains the filter, in this order. Upper and lower case
/// are the same to the filter. Rows that are equal in this order are in the order of names and holders.
pub(crate) fn rows(views: &[View], filter: &str, order: Order) -> Vec<Row> {
    let filter = filter.to_lowercase();
    let contains = |text: &str| text.to_lowercase().contains(&filter);
    let mut rows = Vec::new();
    for (view, shown) in views.iter().enumerate() {
        let oldest = oldest_waiter(shown).and_then(|waiter| waiter.waiting.or(waiter.waiting_at_least));
        let is_named = contains(shown.name.as_str()) || shown.problem.as_deref().is_some_and(contains);
        let holds = shown.holders.iter().enumerate();
        let matching = holds.filter(|(_, holder)| is_named || contains(&holder.owner));
        rows.extend(matching.map(|(hold, _)| Row { view, hold: Some(hold), oldest }));
        if shown.holders.is_empty() && is_named {
            rows.push(Row { view, hold: None, oldest });
        }
    }
    rows.sort_by(|one, other| {
        let first = order.sort.compare(one, other, views);
        let first = if order.is_reversed { first.reverse() } else { first };
        first.then_with(|| Sort::Name.compare(one, other, views))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::{seconds, view};

    fn views() -> Vec<View> {
        vec![
            view("a", &[("alice", Some(60), Some(5))], &[1, 2]),
            view("b", &[("bob", Some(10), None), ("Carol", Some(20), Some(30))], &[]),
            view("c", &[], &[40]),
        ]
    }

    /// The owners of the rows, or the name if it has no holder.
    fn order(sort: Sort, is_reversed: bool, filter: &str) -> Vec<String> {
        let views = views();
        let label = |row: &Row| {
            let name = row.view(&views).name.as_str();
            row.holder(&views).map_or(name, |holder| &holder.owner).to_owned()
        };
        rows(&views, filter, Order { sort, is_reversed }).iter().map(label).collect()
    }

    #[test]
    fn every_order_has_the_most_pressing_row_first() {
        for (sort, expected) in [
            (Sort::Load, ["c", "alice", "bob", "Carol"]),
            (Sort::Name, ["alice", "bob", "Carol", "c"]),
            (Sort::Held, ["alice", "Carol", "bob", "c"]),
            (Sort::Left, ["alice", "Carol", "bob", "c"]),
            (Sort::Waiting, ["alice", "c", "bob", "Carol"]),
            (Sort::Oldest, ["c", "alice", "bob", "Carol"]),
        ] {
            assert_eq!(order(sort, false, ""), expected, "{sort:?}");
        }
        assert_eq!(
            order(Sort::Waiting, true, ""),
            ["bob", "Carol", "c", "alice"],
            "equal rows keep their order"
        );
        assert_eq!(order(Sort::Name, true, ""), ["c", "bob", "Carol", "alice"]);
    }

    #[test]
    fn each_sort_is_reached_by_the_next_key() {
        let mut sort = Sort::Load;
        for expected in Sort::ALL.into_iter().skip(1).chain([Sort::Load]) {
            sort = sort.next();
            assert_eq!(sort, expected);
        }
    }

    #[test]
    fn the_filter_looks_at_names_and_holders() {
        assert_eq!(order(Sort::Name, false, "CAROL"), ["Carol"]);
        assert_eq!(order(Sort::Name, false, "b"), ["bob", "Carol"], "all holds of the name");
        assert_eq!(order(Sort::Name, false, "c"), ["alice", "Carol", "c"]);
        assert_eq!(order(Sort::Name, false, "none"), [""; 0]);
    }

    #[test]
    fn a_row_is_known_by_its_claim() {
        let views = views();
        let all = rows(&views, "", Order { sort: Sort::Name, is_reversed: false });
        let id = all[2].id(&views);
        assert_eq!((id.name.as_str(), id.claim.as_deref()), ("b", Some("id of Carol")));
        assert_eq!(all.iter().filter(|row| row.is(&id, &views)).count(), 1);
        assert_eq!(all[3].id(&views), RowId { name: "c".into(), claim: None });
        assert_eq!(all[0].oldest, Some(seconds(2)));
    }
}
