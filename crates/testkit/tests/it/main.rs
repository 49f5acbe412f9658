//! Tests of the testkit, on the memory engine and on engines with defects.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod broken_engines;
mod check;
mod conformance;
mod counting;
mod etcd;
mod faulty;
mod history;
mod java;
mod proxy;
mod redis_cluster;
mod redis_sentinels;
mod rig;
mod slow;
mod zookeeper;
