//! Tokens of tables that have no column for them.

use leasehold_core::Token;

use super::{LAYOUTS, Site, held_soon, released, table};

/// How many grants each client gets.
const GRANTS: usize = 25;

/// Tokens strictly grow over many grants to several clients that compete for a name.
pub(crate) async fn tokens_grow_over_competing_clients<S: Site>(site: &S) {
    for layout in LAYOUTS {
        site.query(site.sql().plain_table(layout));
        let order = std::sync::Mutex::new(Vec::<Token>::new());
        let client = async || {
            let engine = site.engine(table(layout));
            for _ in 0..GRANTS {
                let (claim, grant) = held_soon(&*engine, layout).await;
                order.lock().unwrap().push(grant.token);
                released(&*engine, &claim, Some(&grant)).await;
            }
        };
        tokio::join!(client(), client(), client());
        let order = order.into_inner().unwrap();
        assert_eq!(order.len(), 3 * GRANTS);
        assert!(order.is_sorted_by(|earlier, later| earlier < later), "{layout:?}: {order:?}");
    }
}

/// The token of one grant of the first layout, to be compared over a restart of the server.
pub(crate) async fn one_token(site: &impl Site) -> Token {
    let layout = LAYOUTS[0];
    let engine = site.engine(table(layout));
    let (claim, grant) = held_soon(&*engine, layout).await;
    released(&*engine, &claim, Some(&grant)).await;
    grant.token
}
