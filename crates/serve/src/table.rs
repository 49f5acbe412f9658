//! Which rows a page shows: its filter, its order, and its part of the list.

use std::sync::Arc;

use crate::{
    html::link,
    row::{Row, Since},
    state::{Look, Shared},
};

/// How many rows a page shows. A reader looks for a few names; the filter and the order find them among all.
pub(crate) const PAGE_ROWS: usize = 200;
/// The longest filter, in characters.
const MAX_FILTER_CHARS: usize = 512;

/// What a page shows, as its address says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// A part of the name, or of an owner.
    pub(crate) filter: String,
    /// Only this engine.
    pub(crate) engine: String,
    pub(crate) sort: Sort,
    /// The number of the page, from 0 on.
    pub(crate) page: usize,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The longest wait first: what an engineer on call looks for.
    #[default]
    Wait,
    /// The longest queue first.
    Queue,
    /// The longest hold first.
    Held,
    Name,
}

/// The rows of a page.
pub(crate) struct Selection {
    looks: Vec<Arc<Look>>,
    /// The number of the engine, and of its row.
    shown: Vec<(usize, usize)>,
    /// How many names the engines have, and how many of them match the filter.
    pub(crate) names: usize,
    pub(crate) matching: usize,
    /// How many requests wait for the names that match.
    pub(crate) waiting: usize,
}

impl Sort {
    pub(crate) const ALL: [Self; 4] = [Self::Wait, Self::Queue, Self::Held, Self::Name];

    /// The word in the address.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Queue => "queue",
            Self::Held => "held",
            Self::Name => "name",
        }
    }

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Wait => "longest wait first",
            Self::Queue => "longest queue first",
            Self::Held => "longest hold first",
            Self::Name => "by name",
        }
    }
}

impl Query {
    /// The query of an address. Unknown words mean the default.
    pub(crate) fn parse(query: &str) -> Self {
        let mut parsed = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "q" => parsed.filter = value.chars().take(MAX_FILTER_CHARS).collect(),
                "engine" => parsed.engine = value.into_owned(),
                "sort" => {
                    let known = Sort::ALL.into_iter().find(|sort| sort.word() == value);
                    parsed.sort = known.unwrap_or_default();
                }
                "page" => parsed.page = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        parsed
    }

    /// The address of another page of the same query.
    pub(crate) fn link(&self, page: usize) -> String {
        let page = page.to_string();
        let query =
            [("q", &*self.filter), ("engine", &self.engine), ("sort", self.sort.word()), ("page", &page)];
        link("/", &query)
    }
}

impl Selection {
    /// Selects from the last looks.
    pub(crate) fn new(shared: &Shared, query: &Query) -> Self {
        let looks: Vec<_> = shared.engines.iter().map(|engine| engine.look()).collect();
        let filter = query.filter.to_lowercase();
        let mut found = Vec::new();
        for (engine, look) in looks.iter().enumerate() {
            if query.engine.is_empty() || query.engine == shared.engines[engine].label {
                let rows = look.rows.iter().enumerate().filter(|(_, row)| matches(row, &filter));
                found.extend(rows.map(|(row, _)| (engine, row)));
            }
        }
        let row = |&(engine, row): &(usize, usize)| &looks[engine].rows[row];
        let at = |since: Option<Since>| since.map_or(u64::MAX, |since| since.at);
        let (names, matching) = (looks.iter().map(|look| look.rows.len()).sum(), found.len());
        let waiting = found.iter().map(|found| row(found).waiters.len()).sum();
        // The order among equals is that of the names, also when the list is cut: the sorts are stable.
        found.sort_by(|a, b| row(a).name.cmp(&row(b).name));
        match query.sort {
            Sort::Wait => found.sort_by_cached_key(|found| {
                let row = row(found);
                (at(row.oldest_wait()), row.problem.is_none(), at(row.held_since()))
            }),
            Sort::Queue => found.sort_by_key(|found| std::cmp::Reverse(row(found).waiters.len())),
            Sort::Held => found.sort_by_cached_key(|found| at(row(found).held_since())),
            Sort::Name => {}
        }
        let shown = found.into_iter().skip(query.page.saturating_mul(PAGE_ROWS)).take(PAGE_ROWS).collect();
        Self { looks, shown, names, matching, waiting }
    }

    /// The rows, each with the number of its engine.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (usize, &Row)> {
        self.shown.iter().map(|&(engine, row)| (engine, &self.looks[engine].rows[row]))
    }

    /// How many pages there are, at least one.
    pub(crate) const fn pages(&self) -> usize {
        if self.matching == 0 { 1 } else { self.matching.div_ceil(PAGE_ROWS) }
    }
}

/// Whether the name or an owner contains the filter, which is in lower case.
fn matches(row: &Row, filter: &str) -> bool {
    let contains = |text: &str| text.to_lowercase().contains(filter);
    filter.is_empty()
        || contains(&row.name)
        || row.holders.iter().any(|holder| contains(&holder.owner))
        || row.waiters.iter().any(|waiter| contains(&waiter.owner))
}

#[cfg(test)]
mod tests {
    use leasehold::{HolderView, Locks, Name, View, WaiterView};

    use super::*;
    use crate::{
        guard::{Access, Hosts},
        row::rows,
        secret::ProcessKey,
        settings::EngineSource,
        state::EngineState,
    };

    fn look(names: &[(&str, u64, &[u64])]) -> Look {
        let secs = |secs: u64| Some(std::time::Duration::from_secs(secs));
        let views: Vec<_> = names
            .iter()
            .map(|(name, held, waits)| {
                let mut view = View::free(Name::new(name).unwrap(), String::new());
                view.holders
                    .push(HolderView::new("h".into(), format!("Owner of {name}")).times(secs(*held), None));
                let waiters = waits.iter().map(|&wait| WaiterView::new("w".into(), "w".into(), secs(wait)));
                view.waiters.extend(waiters);
                view
            })
            .collect();
        let rows = rows(&views, 1_000_000_000, &[]);
        Look { rows, at: Some(1), ..Look::default() }
    }

    fn shared() -> Shared {
        let engine = |label: &str, seen: Look| {
            let locks = Locks::connect("memory:").unwrap();
            let reached = leasehold_ops::Reached::AsHere;
            let state = EngineState::new(EngineSource { label: label.into(), locks, breaker: None, reached });
            state.set_look(seen);
            state
        };
        let first = look(&[("a", 9, &[]), ("b", 1, &[1, 1]), ("c", 5, &[7])]);
        let engines = vec![engine("one", first), engine("two", look(&[("b", 7, &[])]))];
        Shared::new(engines, Access::new(Hosts::default(), ProcessKey::new().unwrap()), None)
    }

    fn names(shared: &Shared, query: &str) -> Vec<String> {
        let selection = Selection::new(shared, &Query::parse(query));
        selection.rows().map(|(engine, row)| format!("{engine}{}", row.name)).collect()
    }

    #[test]
    fn the_order_is_that_of_the_query() {
        let shared = shared();
        assert_eq!(names(&shared, ""), ["0c", "0b", "0a", "1b"], "the longest wait, then the longest hold");
        assert_eq!(names(&shared, "sort=queue"), ["0b", "0c", "0a", "1b"]);
        assert_eq!(names(&shared, "sort=held"), ["0a", "1b", "0c", "0b"]);
        assert_eq!(names(&shared, "sort=name"), ["0a", "0b", "1b", "0c"]);
        assert_eq!(names(&shared, "sort=nonsense"), names(&shared, ""));
    }

    #[test]
    fn the_filter_matches_names_and_owners_in_any_case() {
        let shared = shared();
        assert_eq!(names(&shared, "q=B&sort=name"), ["0b", "1b"]);
        assert_eq!(names(&shared, "q=owner+of+a"), ["0a"]);
        assert_eq!(names(&shared, "engine=two"), ["1b"]);
        assert_eq!(names(&shared, "engine=three"), [""; 0]);
        let selection = Selection::new(&shared, &Query::parse("q=b"));
        assert_eq!((selection.names, selection.matching, selection.waiting), (4, 2, 2));
    }

    #[test]
    fn a_page_has_its_part_of_the_list() {
        let shared = shared();
        let many: Vec<_> = (0..PAGE_ROWS + 1).map(|number| format!("n{number:04}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), 1, &[][..])).collect();
        shared.engines[0].set_look(look(&many));
        assert_eq!(names(&shared, "engine=one").len(), PAGE_ROWS);
        assert_eq!(names(&shared, "engine=one&page=1"), ["0n0200"]);
        assert_eq!(names(&shared, &format!("page={}", usize::MAX)), [""; 0]);
        assert_eq!(Selection::new(&shared, &Query::parse("engine=one")).pages(), 2);
    }

    #[test]
    fn pages_with_one_query_share_a_selection_until_the_next_look() {
        let shared = shared();
        let first = shared.select(&Query::default());
        assert!(Arc::ptr_eq(&first, &shared.select(&Query::default())));
        assert!(!Arc::ptr_eq(&first, &shared.select(&Query::parse("q=a"))));
        shared.looks.send_modify(|number| *number += 1);
        assert!(!Arc::ptr_eq(&first, &shared.select(&Query::default())));
    }
}
