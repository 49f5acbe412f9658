//! The tokens grow over all grants of a server.

use crate::rig::{Rig, claim, claim_and_hold, release_hold};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_over_many_grants_of_several_clients_and_a_restart() {
    let mut rig = Rig::new();
    let mut newest = None;
    for _ in 0..2 {
        let clients = [rig.session(), rig.session(), rig.session()];
        for number in 0..90 {
            let (client, mine) = (&*clients[number % 3], claim(["a", "b"][number % 2]));
            let token = claim_and_hold(client, &mine).await;
            release_hold(client, &mine, &token).await;
            let token = token.token;
            assert!(
                newest.is_none_or(|newest| newest < (token.lineage.get(), token.number)),
                "{newest:?} {token:?}"
            );
            assert!(newest.is_none_or(|(lineage, _)| lineage == token.lineage.get()));
            newest = Some((token.lineage.get(), token.number));
        }
        rig.server.stop();
        rig.server.restart();
    }
}
