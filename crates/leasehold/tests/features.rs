//! Every engine has a scheme. The error for an engine that is not compiled in names its feature.

use leasehold::Locks;

#[test]
fn a_missing_engine_names_its_feature() {
    for (url, feature, compiled_in) in [
        ("memory:", "memory", cfg!(feature = "memory")),
        ("redis://h", "redis", cfg!(feature = "redis")),
        ("redis://h?wake=spring&gap=0s&prefix=registry:", "redis", cfg!(feature = "redis")),
        ("etcd://h", "etcd", cfg!(feature = "etcd")),
        ("etcd://h?prefix=&layout=key", "etcd", cfg!(feature = "etcd")),
        ("zookeeper://h/chroot?layout=rw&acl=world:anyone:r", "zookeeper", cfg!(feature = "zookeeper")),
        ("postgres://h/d?listen_url=postgres://g/d&hold=lease", "postgres", cfg!(feature = "postgres")),
        ("mysql://h/d", "mysql", cfg!(feature = "mysql")),
        ("sqlite:///a.db", "sqlite", cfg!(feature = "sqlite")),
        ("postgres://h/d?ca=c", "postgres", cfg!(feature = "postgres") && cfg!(feature = "tls")),
        ("rediss://h", "redis", cfg!(feature = "redis") && cfg!(feature = "tls")),
        ("etcds://h", "etcd", cfg!(feature = "etcd") && cfg!(feature = "tls")),
        ("zookeepers://h", "zookeeper", cfg!(feature = "zookeeper") && cfg!(feature = "tls")),
    ] {
        match Locks::connect(url) {
            Ok(_) => assert!(compiled_in, "{url}"),
            Err(error) => {
                let message = error.to_string();
                assert!(error.is_misconfigured() && !compiled_in, "{url}: {message}");
                assert!(
                    message.contains(&format!("{feature:?}")) || message.contains("\"tls\""),
                    "{url}: {message}"
                );
            }
        }
    }
}
