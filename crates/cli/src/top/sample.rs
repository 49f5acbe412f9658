//! Views for the tests of this folder.

use std::time::Duration;

use leasehold::{HolderView, Mode, Name, View, WaiterView};

pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A view with these holders (owner, seconds since the grant and until the end) and the waits of these seconds. Tokens
/// count from 7.
pub(super) fn view(name: &str, holders: &[(&str, Option<u64>, Option<u64>)], waits: &[u64]) -> View {
    let mut view = View::free(Name::new(name).unwrap(), format!("key of {name}"));
    for (number, (owner, held, remaining)) in holders.iter().enumerate() {
        let holder = HolderView::new(format!("id of {owner}"), (*owner).to_owned());
        let token = Some(7 + number as u64);
        view.holders.push(holder.token(token).times(held.map(seconds), remaining.map(seconds)));
    }
    view.mode =
        (!holders.is_empty()).then_some(if holders.len() > 1 { Mode::Shared } else { Mode::Exclusive });
    for (number, wait) in waits.iter().enumerate() {
        let owner = format!("waiter {number}");
        view.waiters.push(WaiterView::new(format!("wait {number} of {name}"), owner, Some(seconds(*wait))));
    }
    view
}
