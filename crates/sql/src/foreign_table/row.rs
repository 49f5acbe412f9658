//! A row of the table as the statements read it, and what operators see of it. Pure.

use std::time::Duration;

use leasehold_core::{HolderView, Lineage, Mode, Name, View, lock_state::MIN_HOLD_OWNER};

use super::{
    format::{Format, Key},
    options::Layout,
    owner_text::{OwnerText, State},
};
use crate::database::{Failed, misconfigured};

/// The number of columns of every row.
const COLUMNS: usize = 6;

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct StoredRow {
    pub(crate) key: String,
    pub(crate) owner: Option<String>,
    /// Whether a claim can take it over.
    pub(crate) is_free: bool,
    /// In how many microseconds it becomes free, if a time frees it.
    remaining: Option<i64>,
    /// For how many microseconds it has been held, if a column tells.
    held: Option<i64>,
    pub(crate) identity: String,
}

impl StoredRow {
    /// Reads the columns that every statement selects. Returns also the columns behind them.
    pub(crate) fn read(row: &[Option<String>]) -> Result<(Self, &[Option<String>]), Failed> {
        let (columns, more) = row.split_at_checked(COLUMNS).ok_or_else(|| unreadable("its columns"))?;
        let text = |index: usize| columns.get(index).cloned().flatten();
        let number = |index: usize| {
            let parsed = text(index).map(|digits| digits.parse());
            parsed.transpose().map_err(|_| unreadable("a time"))
        };
        let row = Self {
            key: text(0).ok_or_else(|| unreadable("its key"))?,
            owner: text(1),
            is_free: text(2).as_deref() == Some("1"),
            remaining: number(3)?,
            held: number(4)?,
            identity: text(5).unwrap_or_default(),
        };
        Ok((row, more))
    }

    /// The owner text, if it is one of ours.
    pub(crate) fn ours(&self) -> Option<OwnerText> {
        OwnerText::read(self.owner.as_deref()?)
    }

    /// The time until the row becomes free, if a time frees it.
    pub(crate) fn free_in(&self) -> Option<Duration> {
        self.remaining.map(|micros| Duration::from_micros(micros.max(0).unsigned_abs()))
    }

    /// The number by which an operator breaks this hold: the token of a hold of ours; of a foreign one a number made
    /// from what the row says, so that it does not fit the next hold.
    pub(crate) fn number(&self) -> u64 {
        if let Some(ours) = self.ours().filter(|ours| ours.token > 0) {
            return ours.token;
        }
        let owner = self.owner.as_deref().unwrap_or_default();
        let text = [self.key.as_str(), owner, &self.identity].join("\0");
        // FNV-1a, which every version of leasehold computes alike.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // Positive also for programs that know signed numbers only.
        (hash >> 1).max(1)
    }

    /// The holder, as operators see it.
    fn holder(&self, format: &Format) -> HolderView {
        let micros = |micros: i64| Duration::from_micros(micros.max(0).unsigned_abs());
        let slack = if self.ours().is_some() { format.slack() } else { 0 };
        let remaining = self.remaining.map(|remaining| micros(remaining - slack));
        // A clock in another zone tells nothing.
        let held = self.held.filter(|&held| held >= 0).map(micros);
        let number = Some(self.number());
        match self.ours() {
            Some(ours) => {
                let broken = ours.state == State::Broken;
                let owner =
                    if ours.state == State::Released { MIN_HOLD_OWNER.to_owned() } else { ours.label };
                let holder = HolderView::new(ours.id.to_string(), owner).token(number);
                holder.times(held, remaining).broken(broken)
            }
            None => {
                let owner = self.owner.clone().unwrap_or_else(|| "unknown".to_owned());
                let id = if self.identity.is_empty() { "row".to_owned() } else { self.identity.clone() };
                HolderView::new(id, owner).token(number).times(held, remaining).foreign(true)
            }
        }
    }

    /// The view of the name of this row.
    pub(crate) fn view(&self, name: Name, format: &Format, lineage: Option<Lineage>) -> View {
        let mut view = View::free(name, key_text(format, &self.key));
        if self.is_free {
            return view;
        }
        view.add_holder(Mode::Exclusive, self.holder(format));
        view.lineage = lineage;
        view.note = match format.layout {
            Layout::Insert => Some(
                "the row is the lock, and does not say who holds it: if its program has ended, free the name by \
                 leasehold break --force with this token"
                    .to_owned(),
            ),
            Layout::Liquibase => Some(
                "no time frees the row: if its holder has ended, free it by leasehold break --force with this token"
                    .to_owned(),
            ),
            _ => None,
        };
        view
    }
}

/// The `key` of a view: the table and the key of the row.
pub(crate) fn key_text(format: &Format, key: &str) -> String {
    format!("{}:{key}", format.table_name)
}

/// The view of a name without a row.
pub(crate) fn free_view(format: &Format, name: Name, key: &Key) -> View {
    View::free(name, key_text(format, key.text()))
}

fn unreadable(what: &str) -> Failed {
    misconfigured(&format!("a row of its table cannot be read: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::ClaimId;

    fn row(owner: &str, identity: &str) -> StoredRow {
        let columns = ["k", owner, "0", "5000", "-7", identity].map(|text| Some(text.to_owned()));
        StoredRow::read(&columns).unwrap().0
    }

    #[test]
    fn the_number_of_a_foreign_hold_does_not_fit_the_next_one() {
        assert_eq!(row("host", "1").number(), row("host", "1").number());
        assert_ne!(row("host", "1").number(), row("host", "2").number());
        assert_ne!(row("host", "1").number(), row("other", "1").number());
        let ours = OwnerText::claiming(ClaimId([7; 16]), "me").with_token(42);
        assert_eq!(row(&ours.text(255), "1").number(), 42);
    }

    #[test]
    fn rows_with_other_values_are_refused() {
        let columns = ["k", "o", "0", "soon", "1", ""].map(|text| Some(text.to_owned()));
        assert!(StoredRow::read(&columns).is_err());
        assert!(StoredRow::read(&columns[..5]).is_err());
        let columns = [None, None, None, None, None, None];
        assert!(StoredRow::read(&columns).is_err());
    }
}
