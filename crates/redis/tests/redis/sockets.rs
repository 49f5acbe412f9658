//! Connections by a port or a Unix socket; databases and prefixes.

use std::sync::Arc;

use leasehold_core::{Env, Locks};
use leasehold_redis::{Address, Config, RedisEngine};

use crate::rig::{Rig, acquire};

fn locks_of(config: Config) -> Locks {
    Locks::builder(Arc::new(RedisEngine::new(config, &Env::system()))).build()
}

#[test]
fn a_unix_socket_and_a_port_lead_to_the_same_locks() {
    let rig = Rig::new();
    let (near, far) = (locks_of(Config::new(Address::Unix(rig.server.socket()))), rig.locks());
    let guard = acquire(&near, "a");
    assert!(far.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    guard.release_blocking().unwrap();
    acquire(&far, "a").release_blocking().unwrap();
}

#[test]
fn databases_and_prefixes_keep_locks_apart() {
    let rig = Rig::new();
    let plain = rig.config.clone();
    let configs = [
        plain.clone(),
        plain.clone().db(3),
        plain.clone().prefix("").unwrap(),
        plain.prefix("x:{y}:").unwrap(),
    ];
    let locks = configs.map(locks_of);
    let guards = locks.each_ref().map(|locks| acquire(locks, "a"));
    assert_eq!(rig.command(&["EXISTS", "lock:a", "a", "x:{y}:a"]), "3");
    assert_eq!(rig.command(&["-n", "3", "EXISTS", "lock:a", "a"]), "1");
    guards.into_iter().for_each(|guard| guard.release_blocking().unwrap());
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}
