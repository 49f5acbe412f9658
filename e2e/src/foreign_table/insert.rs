//! Rows whose existence is the lock, on MariaDB (`layout=insert`). No time frees the row of a killed process, and no
//! row says whose it is. So each client of a round has a user of its own, and the table records the user. An operator
//! breaks the holds of a killed client before the next client starts in its place.

use std::collections::BTreeMap;

use leasehold_core::{Broken, Guarantee, Level};
use leasehold_testkit::server::MariadbServer;

use crate::{
    mariadb::{count_of_sessions, end_sessions_of},
    proxied::Proxied,
    served::{CLIENTS, Served, System},
    world::{Fault, Promise, World, block_on},
};

/// The table, as the programs of this layout have it, and who inserted each row.
const CREATE: &str = "CREATE TABLE method_lock (id int NOT NULL AUTO_INCREMENT PRIMARY KEY, \
     method_name varchar(64) NOT NULL UNIQUE, inserted_by varchar(64) NOT NULL DEFAULT CURRENT_USER())";
/// Locks the rows of two names for a short time, as an operator may do.
const KEEP_LOCKED: &str = "BEGIN; SELECT id FROM method_lock WHERE method_name IN ('m0', 'r0') FOR UPDATE; SELECT SLEEP(0.4); COMMIT";

/// The only server. It runs whenever a fault of a client begins or ends, because the operator needs it.
pub struct Inserted(MariadbServer);

impl Inserted {
    /// The faults of [`Proxied::FAULTS`], with an operator after the kill.
    const CLIENT_FAULTS: &'static [Fault<Served<Self>>] = &[
        Served::<Self>::STOP,
        Fault {
            end: |w, client| {
                break_holds_of(w, client);
                w.workers().replace(client);
            },
            ..Served::<Self>::KILL
        },
        Served::<Self>::CUT_BEFORE_REQUEST,
        Served::<Self>::CUT_AFTER_REQUEST,
        Served::<Self>::CUT_BEFORE_REPLY,
        Served::<Self>::REQUESTS_HELD,
        Served::<Self>::ANSWERS_HELD,
        Served::<Self>::HALF_OPEN,
        Served::<Self>::RESET,
        Served::<Self>::SLOW,
    ];
}

impl System for Inserted {
    const SCHEME: &'static str = "mysql";
    const MAX_STOP: u64 = 2500;
    const MAX_HOLD_BACK: u64 = 1500;

    fn client_faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        Self::CLIENT_FAULTS
    }

    fn faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        &[
            Fault {
                name: "server restarts",
                lasts: 1..10,
                begin: |w, _| {
                    w.system.0.kill();
                    w.system.0.restart();
                },
                end: |_, _| {},
            },
            Fault {
                name: "sessions ended",
                lasts: 1..10,
                begin: |w, _| (0..CLIENTS).for_each(|client| end_sessions_of(&w.system.0, &user(client))),
                end: |_, _| {},
            },
            Fault {
                name: "rows kept locked",
                lasts: 1..10,
                begin: |w, _| drop(w.system.0.query(KEEP_LOCKED)),
                end: |_, _| {},
            },
        ]
    }

    fn start(_: u64, _: Promise) -> Self {
        let server = MariadbServer::start(&[]);
        server.query(CREATE);
        for user in (0..CLIENTS).map(user) {
            let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON method_lock TO {user}");
            server.query(&format!("CREATE USER {user}; {grant}"));
        }
        Self(server)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn url_of(&self, ports: &[u16]) -> String {
        url("root", ports)
    }

    fn url_of_client(&self, client: usize, ports: &[u16]) -> String {
        url(&user(client), ports)
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        // With the settings of the server, a kill of it loses nothing, but a power cut may lose data. The engine
        // reports the setting, and nothing else lowers the level.
        let finding = guarantee.findings.iter().map(|finding| finding.what.as_str());
        guarantee.level == Level::BestEffort && finding.eq(["innodb_flush_log_at_trx_commit"])
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let rows = self.0.query("SELECT method_name, inserted_by FROM method_lock");
        rows.into_iter().map(|row| (format!("row {row}"), 1)).collect()
    }
}

/// The user of the client with this index.
fn user(client: usize) -> String {
    format!("client{client}")
}

fn url(user: &str, ports: &[u16]) -> String {
    let table = "layout=insert&table=method_lock&column=method_name";
    format!("mysql://{user}@127.0.0.1:{}/locks?{table}", ports[0])
}

/// Breaks the holds of a killed client, as the page tells operators to do. Its sessions have ended before, so it
/// inserts no row later.
fn break_holds_of(world: &mut Served<Inserted>, client: usize) {
    let (server, user) = (&world.system.0, user(client));
    while count_of_sessions(server, &user) > 0 {
        end_sessions_of(server, &user);
    }
    let names = format!("SELECT method_name FROM method_lock WHERE inserted_by LIKE '{user}@%'");
    for name in server.query(&names) {
        // A server that was restarted grants nothing in its first two seconds, and `break` takes as long.
        let broken = block_on(async {
            let admin = world.admin();
            let view = admin.show(&name).await?;
            let token = view.holders.first().and_then(|holder| holder.token).unwrap_or(0);
            admin.break_hold(&name, token, true).await
        });
        assert!(matches!(broken, Ok(Broken::Done)), "the hold of {name} by {user} is not broken: {broken:?}");
    }
}
