//! What the screen shows, and how keys and answers of the engine change it. Pure: the time is an argument.

mod on_key;
#[cfg(test)]
mod tests;

use std::{ops::Range, time::Duration};

use leasehold::{Broken, Error, HolderView, View};
use leasehold_ops::pause_after_look;

use super::{
    question::Question,
    rows::{Order, Row, RowId, Sort, rows},
};
use crate::{cmd::show::GuaranteeResult, text::escaped};

/// How long the engine may take for an answer before the data count as stale, unless it took longer for the last one: a
/// look at ten thousand names can take seconds.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// The part of the view that gets the keys.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    Table,
    /// All about one name, from this line on.
    Details {
        name: String,
        from: usize,
    },
    Help,
    Question(Box<Question>),
}

/// What the loop is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    Quit,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L: another program wrote on the screen.
    Repaint,
    Break {
        name: String,
        token: u64,
    },
}

/// What does not change while the view runs.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) engine: &'static str,
    /// Whether no URL was given, so that the locks are files of this user.
    pub(crate) is_default: bool,
    pub(crate) prefix: String,
    /// The pause between two looks.
    pub(crate) pause: Duration,
    /// Whether no hold is broken.
    pub(crate) is_readonly: bool,
}

/// The state of the view.
pub(crate) struct State {
    pub(crate) setting: Setting,
    /// The engine's guarantee, as far as it is known.
    pub(crate) guarantee: GuaranteeResult,
    pub(crate) views: Vec<View>,
    /// When the request for `views` left.
    looked_at: Duration,
    /// How long the engine took for the last answer.
    took: Duration,
    /// Whether the engine tells each change, so that looks follow at once.
    pub(crate) is_pushed: bool,
    /// Why the last look failed, if it did.
    pub(crate) trouble: Option<String>,
    /// While the picture is frozen: the newest look, which is not shown yet.
    frozen: Option<Option<(Vec<View>, Duration)>>,
    pub(crate) rows: Vec<Row>,
    pub(crate) order: Order,
    pub(crate) filter: String,
    /// Whether keys are typed into the filter.
    pub(crate) is_filtering: bool,
    selected: Option<RowId>,
    /// The place of the selected row, or where it was.
    place: usize,
    /// The first row on the screen.
    first: usize,
    /// How many rows the screen has.
    height: usize,
    pub(crate) page: Page,
    /// A message to the user.
    pub(crate) message: Option<String>,
}

impl State {
    /// The state after the first look, whose request left at `looked_at`.
    pub(crate) fn new(setting: Setting, views: Vec<View>, looked_at: Duration) -> Self {
        let guarantee = GuaranteeResult(Err("the guarantee is not known yet".to_owned()));
        let order = Order { sort: Sort::Load, is_reversed: false };
        let mut state = Self {
            setting,
            guarantee,
            views,
            looked_at,
            took: Duration::ZERO,
            is_pushed: false,
            trouble: None,
            frozen: None,
            rows: Vec::new(),
            order,
            filter: String::new(),
            is_filtering: false,
            selected: None,
            place: 0,
            first: 0,
            height: 1,
            page: Page::Table,
            message: None,
        };
        state.arrange();
        state
    }

    /// Takes how long the engine took for an answer.
    pub(crate) const fn answered_after(&mut self, took: Duration) {
        self.took = took;
    }

    /// Takes the answer to a look whose request left at `at`.
    pub(crate) fn look(&mut self, answer: Result<Vec<View>, Error>, at: Duration) {
        match (answer, &mut self.frozen) {
            (Err(error), _) => self.trouble = Some(error.to_string()),
            (Ok(views), Some(kept)) => {
                self.trouble = None;
                *kept = Some((views, at));
            }
            (Ok(views), None) => self.show(views, at),
        }
    }

    fn show(&mut self, views: Vec<View>, at: Duration) {
        (self.views, self.looked_at, self.trouble) = (views, at, None);
        let before = self.selected.clone();
        self.arrange();
        if let (Some(before), None) = (before, &self.selected)
            && !self.is_in_views(&before)
        {
            self.message = Some(match before.claim {
                Some(_) => format!("the selected hold of {} has ended", escaped(&before.name)),
                None => format!("{} has changed", escaped(&before.name)),
            });
        }
    }

    /// How old the data are.
    pub(crate) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.looked_at)
    }

    /// Whether the engine has not answered as it should.
    pub(crate) fn is_stale(&self, now: Duration) -> bool {
        // The data are as old as the last look and the next one together before they are replaced.
        let pause = pause_after_look(self.setting.pause, self.took);
        let limit = pause * 2 + ANSWER_TIME.max(self.took * 2 + self.took / 2);
        self.trouble.is_some() || (!self.is_frozen() && self.age(now) > limit)
    }

    pub(crate) const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// The row that is selected, by its place.
    pub(crate) fn selected_place(&self) -> Option<usize> {
        self.selected.as_ref().map(|_| self.place)
    }

    fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.selected_place()?)
    }

    /// The rows that fit on a screen of `height` rows. The selected row is among them.
    pub(crate) fn window(&mut self, height: usize) -> Range<usize> {
        self.height = height.max(1);
        let last_first = self.rows.len().saturating_sub(self.height);
        self.first =
            self.first.min(self.place).max((self.place + 1).saturating_sub(self.height)).min(last_first);
        self.first..self.rows.len().min(self.first + self.height)
    }

    /// The view of a name; `None` if nobody holds it or waits for it.
    pub(crate) fn view_of(&self, name: &str) -> Option<&View> {
        self.views.iter().find(|view| view.name.as_str() == name)
    }

    /// The hold of a row, as the last look shows it.
    pub(crate) fn holder_of(&self, id: &RowId) -> Option<&HolderView> {
        let mut holders = self.view_of(&id.name)?.holders.iter();
        holders.find(|holder| Some(&*holder.id) == id.claim.as_deref())
    }

    fn is_in_views(&self, id: &RowId) -> bool {
        match id.claim {
            Some(_) => self.holder_of(id).is_some(),
            None => self.view_of(&id.name).is_some_and(|view| view.holders.is_empty()),
        }
    }

    /// Takes the result of a request to break a hold.
    pub(crate) fn broken(&mut self, name: &str, token: u64, result: Result<Broken, Error>) {
        if matches!(result, Ok(Broken::Done)) && self.selected.as_ref().is_some_and(|id| id.name == name) {
            // Its end is no news.
            self.selected = None;
        }
        let name = escaped(name);
        self.message = Some(match result {
            Ok(Broken::Done) => format!("broken: {name}, token {token}"),
            Ok(Broken::NotHeld) => format!("{name} is not held under token {token} any more"),
            Ok(other) => format!("{name}, token {token}: unexpected result {other:?}"),
            Err(error) => escaped(&error.to_string()),
        });
    }

    /// Selects another row. Without a selected row, the one that took its place.
    fn move_to(&mut self, place: impl FnOnce(usize) -> usize) {
        self.select(if self.selected.is_some() { place(self.place) } else { self.place });
    }

    fn select(&mut self, place: usize) {
        self.place = place.min(self.rows.len().saturating_sub(1));
        self.selected = self.rows.get(self.place).map(|row| row.id(&self.views));
    }

    /// Makes the rows anew. The selection stays with its hold. If the hold has no row any more, no row is selected, so
    /// that no key acts on the hold that took its place.
    fn arrange(&mut self) {
        self.rows = rows(&self.views, &self.filter, self.order);
        let Some(id) = &self.selected else { return };
        match self.rows.iter().position(|row| row.is(id, &self.views)) {
            Some(place) => self.place = place,
            None => {
                self.selected = None;
                self.place = self.place.min(self.rows.len().saturating_sub(1));
            }
        }
    }
}
