//! Fuzz targets for the parsers of untrusted bytes: for the tests below and for `fuzz/`. A target panics when a parser
//! gives a wrong result.

#[cfg(all(feature = "sqlite", target_os = "linux"))]
pub use rows::rows;
#[cfg(feature = "postgres")]
pub use wire::{messages, notification};

#[cfg(feature = "postgres")]
mod wire {
    use leasehold_core::{Frames, Lineage};

    use crate::{
        postgres::{
            messages::Messages,
            notification_text::{read, write},
        },
        row::ClientId,
    };

    /// Bytes that a PostgreSQL server sends.
    pub fn messages(bytes: &[u8]) {
        let whole = Messages::new().read_part(bytes);
        for part_size in [1, 7] {
            let mut messages = Messages::new();
            let parts = bytes.chunks(part_size).try_for_each(|bytes| messages.read_part(bytes));
            assert_eq!(parts, whole, "the bound depends on how the bytes were cut");
        }
    }

    /// The payload of a notification, which any client may have sent.
    pub fn notification(bytes: &[u8]) {
        let (client, lineage) = (ClientId(7), Lineage::new(7));
        let Some(notification) = std::str::from_utf8(bytes).ok().and_then(|text| read(text, client, lineage))
        else {
            return;
        };
        assert!(read(&write(&notification), client, lineage).is_some(), "what is read can be written");
    }
}

#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod rows {
    use std::time::Duration;

    use leasehold_core::{Claim, ClaimId, How, Lineage, Mode, Name};
    use rusqlite::{Connection, params_from_iter, types::Value};

    use crate::{
        row::{ClaimRow, ClientId, LockRow},
        sqlite::rows::{claim_row, lock_row},
        step::{Snapshot, Verb},
    };

    /// The maximum number of columns of our rows.
    const COLUMNS: usize = 16;
    /// Returns its parameters as one row.
    const ECHO: &str = "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16";

    thread_local! {
        static DATABASE: Connection = Connection::open_in_memory().expect("memory has room for it");
    }

    /// Rows of an SQLite file: the row of a name, and those of its claims. SQLite stores any type in any column.
    pub fn rows(mut bytes: &[u8]) {
        let (mut lock, mut claims) = (LockRow::default(), Vec::new());
        while !bytes.is_empty() {
            let values: Vec<Value> = (0..COLUMNS).map(|_| value(&mut bytes)).collect();
            let (lock_row, claim_row) = read(&values);
            lock = lock_row.unwrap_or(lock);
            claims.extend(claim_row);
        }
        let name = Name::new("a").expect("it is a name");
        let snapshot = Snapshot { now: 5_000_000, floor: 7, lineage: Lineage::new(7), lock, claims };
        for verb in
            [Verb::Settle, claim(&name, Mode::Exclusive), claim(&name, Mode::Permits { count: 2, limit: 3 })]
        {
            drop(snapshot.apply(&verb));
        }
        drop(snapshot.view(&name));
    }

    /// Decodes the values as a row of a name, and as a row of a claim.
    fn read(values: &[Value]) -> (Option<LockRow>, Option<ClaimRow>) {
        DATABASE.with(|database| {
            let mut echo = database.prepare_cached(ECHO).expect("it is SQL");
            let rows =
                echo.query_row(params_from_iter(values), |row| Ok((lock_row(row).ok(), claim_row(row).ok())));
            rows.expect("there is one row")
        })
    }

    fn claim(name: &Name, mode: Mode) -> Verb {
        let ttl = Duration::from_secs(30);
        let (id, name) = (ClaimId([0xab; 16]), name.clone());
        let claim = Claim {
            id,
            name,
            mode,
            ttl,
            claim_time: ttl,
            may_queue: true,
            tokens: 2,
            owner: "me".into(),
            stops_on_term: false,
        };
        Verb::Claim { claim, how: How::Create, client: ClientId(7), entry_life: Duration::ZERO }
    }

    /// One value: its type, and its bytes.
    fn value(bytes: &mut &[u8]) -> Value {
        match take(bytes, 1).first().map_or(0, |kind| kind % 6) {
            0 => Value::Null,
            1 => Value::Integer(number(take(bytes, 8))),
            2 => Value::Integer(number(take(bytes, 1))),
            3 => Value::Real(f64::from_bits(number(take(bytes, 8)).cast_unsigned())),
            4 => Value::Text(String::from_utf8_lossy(take_text(bytes)).into_owned()),
            _ => Value::Blob(take_text(bytes).to_vec()),
        }
    }

    /// Takes a text: one byte for its length, then its bytes.
    fn take_text<'a>(input: &mut &'a [u8]) -> &'a [u8] {
        let length = take(input, 1).first().map_or(0, |length| usize::from(*length));
        take(input, length)
    }

    /// Takes bytes as a big-endian number.
    fn number(bytes: &[u8]) -> i64 {
        bytes.iter().fold(0, |number: i64, byte| number << 8 | i64::from(*byte))
    }

    /// Takes up to `count` bytes from the front.
    fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(count.min(bytes.len()));
        *bytes = rest;
        taken
    }
}

#[cfg(all(test, any(feature = "postgres", feature = "sqlite")))]
mod tests {
    use leasehold_testkit::fuzz;

    #[cfg(feature = "postgres")]
    #[test]
    fn messages_are_read_from_random_bytes() {
        let message = |kind: u8, body: &[u8]| {
            let length = u32::try_from(body.len() + 4).unwrap();
            [&[kind], &length.to_be_bytes()[..], body].concat()
        };
        let welcome = [
            message(b'R', &[0; 4]),
            message(b'S', b"server_version\x0015\0"),
            message(b'K', &[7; 8]),
            message(b'Z', b"I"),
        ];
        let rows =
            [message(b'T', &[0, 1]), message(b'D', &[7; 40]), message(b'A', b"xyz"), message(b'Z', b"I")];
        fuzz::run(&[welcome.concat(), [welcome.concat(), rows.concat()].concat()], super::messages);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn notifications_are_read_from_random_bytes() {
        let id = "ab".repeat(16);
        let samples = [format!("granted {id} 7 2 30000000 3 5000000"), format!("broken {id} a b")];
        fuzz::run(&samples.map(String::into_bytes), super::notification);
    }

    /// Samples of rows as leasehold writes them, with small and large numbers, an id and an owner.
    #[cfg(all(feature = "sqlite", target_os = "linux"))]
    #[test]
    fn rows_of_any_types_are_read_from_random_bytes() {
        let row = |columns: &[&[u8]]| columns.concat();
        let (id, owner, one, many) =
            (&[&[5, 16][..], &[7; 16]].concat()[..], b"\x04\x02me", b"\x02\x01", b"\x01\0\0\0\0\0\x7f\0\0");
        let lock = row(&[many, id, one, one, owner, many, many, one, one, one, many, many, b"\0\0\0\0"]);
        let claim = row(&[
            id,
            b"\x02\0",
            one,
            b"\x02\x02",
            one,
            one,
            many,
            one,
            one,
            owner,
            many,
            many,
            many,
            many,
            many,
            one,
        ]);
        fuzz::run(&[lock.clone(), claim.clone(), [lock, claim].concat()], super::rows);
    }
}
