//! What the guarantee of a table of another program says beside the settings of its server.

use leasehold_core::{Guarantee, Level};

use super::{format::Format, options::Layout, store::Dialect};

/// Adds what follows from the layout to the guarantee of a server.
pub(crate) fn add_layout(guarantee: &mut Guarantee, format: &Format) {
    if !format.layout.has_time() {
        // Nothing lapses. The note on the clock of the database does not apply.
        guarantee.notes.retain(|note| !note.contains("clock"));
        if guarantee.level == Level::LeaseBounded {
            guarantee.level = Level::Exact;
        }
    }
    guarantee.note(match format.dialect {
        Dialect::Postgres => "tokens are places in the log of the server, which only grow on one server",
        Dialect::Mysql => {
            "tokens are UUID_SHORT() of the server: they grow unless its clock is set back before it is started again"
        }
    });
    match format.layout {
        Layout::Laravel => guarantee.note(
            "Laravel judges by the clock of each client, leasehold by that of the database: let both differ by less than half a second",
        ),
        Layout::Liquibase => guarantee.note("no time ends a hold: the row of a holder that was killed stays until an operator frees it"),
        Layout::Insert => {
            guarantee.note("no time ends a hold, and the row does not say who holds it: the row of a holder that was killed stays until an operator frees it");
            if !format.tells_rows_apart() {
                guarantee.note(
                    "no column numbers the rows: if the answer to a commit is lost, the row may be left behind, and a row that another program deletes and inserts again is taken for ours; an AUTO_INCREMENT column prevents both, except after a TRUNCATE of the table",
                );
            } else if format.dialect == Dialect::Mysql {
                guarantee.note(
                    "rows are told apart by their AUTO_INCREMENT column: after a TRUNCATE of the table, which begins its numbers again, a row of another program may be taken for ours",
                );
            }
        }
        Layout::Shedlock => guarantee.note(
            "ShedLock agrees with leasehold on the time only with usingDbTime(), or with withTimeZone(UTC) and clocks of the JVMs that do not differ from that of the database; without usingDbTime() it unlocks by name, also a row of leasehold if its job outlived lockAtMostFor",
        ),
        Layout::Symfony => {}
    }
}
