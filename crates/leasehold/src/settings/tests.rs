//! What is taken over of each client library, as the text of a URL.

use leasehold_core::Password;

use super::*;
use crate::Locks;

/// The URL of the settings, with the options of `connect`.
fn url_with(
    settings: impl TryInto<ConnectionSettings, Error = Error>,
    connect: &Connect,
) -> Result<String, Error> {
    let settings = settings.try_into()?;
    assert!(!format!("{settings:?}").contains("hunter2"), "{settings:?}");
    let url = settings.into_url(connect)?;
    let options: Vec<_> = url.options().map(|(key, value)| format!("{key}={value}")).collect();
    Ok(format!("{}:{}?{}", url.scheme, url.rest, options.join("&")))
}

fn url(settings: impl TryInto<ConnectionSettings, Error = Error>) -> String {
    url_with(settings, &Connect::default()).unwrap()
}

fn postgres(text: &str) -> ::tokio_postgres::Config {
    text.parse().unwrap()
}

#[test]
fn a_config_of_tokio_postgres_is_taken_over() {
    let full = postgres(
        "host=a,::1 port=1,2 user='m e' password='hunter2@/:' dbname='d b' application_name=x \
         options='-c a=b' sslmode=disable channel_binding=require target_session_attrs=read-write",
    );
    assert_eq!(
        url(&full),
        "postgres://m%20e:hunter2%40%2F%3A@/d%20b?host=a,::1&port=1,2&options=-c a=b&application_name=x\
         &sslmode=disable&channel_binding=require&target_session_attrs=read-write"
    );
    assert!(url(&postgres("host=a password=hunter2")).starts_with("postgres://?host=a&"));
    let least = postgres("host=/run/pg");
    assert_eq!(url(&least), "postgres://?host=/run/pg&sslmode=prefer&channel_binding=prefer");
    assert!(
        url(&postgres("hostaddr=10.0.0.1 sslmode=require")).contains("host=10.0.0.1&sslmode=verify-full")
    );
    for refused in ["host=a hostaddr=10.0.0.1", "host=a target_session_attrs=read-only"] {
        assert!(Locks::connect_like(&postgres(refused)).unwrap_err().is_misconfigured(), "{refused}");
    }
    Locks::connect_like(&full).unwrap();
}

#[test]
fn options_of_sqlx_are_taken_over() {
    use ::sqlx::{mysql::MySqlConnectOptions, postgres::PgConnectOptions, sqlite::SqliteConnectOptions};
    let options = PgConnectOptions::new_without_pgpass()
        .host("::1")
        .port(7)
        .username("m/e:#")
        .password("hunter2@%")
        .database("d?b")
        .application_name("x")
        .options([("a", "b")])
        .ssl_root_cert("/ca.pem");
    assert_eq!(
        url(&options),
        "postgres://m%2Fe%3A%23:hunter2%40%25@/d%3Fb?host=::1&port=7&options=-c a=b&application_name=x\
         &sslmode=prefer&sslrootcert=/ca.pem"
    );
    Locks::connect_like(&options).unwrap();
    assert!(url(&options.clone().socket("/run/pg")).contains("host=/run/pg&"));
    let options = options.ssl_root_cert_from_pem(b"-----BEGIN CERTIFICATE-----".to_vec());
    let error = Locks::connect_like(&options).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("give Connect::tls"), "{error}");

    let options = MySqlConnectOptions::new()
        .host("::1")
        .username("m/e:#")
        .password("hunter2@%")
        .database("d?b")
        .ssl_mode(::sqlx::mysql::MySqlSslMode::VerifyCa)
        .ssl_ca("/ca.pem");
    assert_eq!(
        url(&options),
        "mysql://m%2Fe%3A%23:hunter2%40%25@[::1]:3306/d%3Fb?ssl-mode=VERIFY_CA&ssl-ca=/ca.pem"
    );
    Locks::connect_like(&options).unwrap();
    assert!(url(&options.socket("/run/my")).contains("?socket=/run/my&"));

    let options = SqliteConnectOptions::new().filename("/a b?.db").create_if_missing(true);
    assert_eq!(url(&options), "sqlite://%2Fa%20b%3F%2Edb?mode=rwc");
    let memory: SqliteConnectOptions = "sqlite::memory:".parse().unwrap();
    for refused in [memory, SqliteConnectOptions::new().filename("/a.db").read_only(true)] {
        assert!(Locks::connect_like(&refused).unwrap_err().is_misconfigured(), "{refused:?}");
    }
}

#[test]
fn options_of_mysql_async_are_taken_over() {
    use ::mysql_async::{Opts, OptsBuilder, SslOpts};
    let builder = || {
        OptsBuilder::default()
            .ip_or_hostname("h")
            .tcp_port(7)
            .user(Some("m/e"))
            .pass(Some("hunter2@%"))
            .db_name(Some("d?b"))
    };
    let opts = |builder: OptsBuilder| Opts::from(builder);
    assert_eq!(url(&opts(builder())), "mysql://m%2Fe:hunter2%40%25@h:7/d%3Fb?ssl-mode=DISABLED");
    assert!(url(&opts(builder().socket(Some("/run/my")))).contains("?socket=/run/my&"));
    for (ssl, mode) in [
        (SslOpts::default(), "VERIFY_IDENTITY"),
        (SslOpts::default().with_danger_skip_domain_validation(true), "VERIFY_CA"),
        (SslOpts::default().with_danger_accept_invalid_certs(true), "REQUIRED"),
    ] {
        assert!(url(&opts(builder().ssl_opts(ssl))).ends_with(&format!("?ssl-mode={mode}")), "{mode}");
    }
    let own = SslOpts::default().with_root_certs(vec![std::path::PathBuf::from("/ca.pem").into()]);
    let own = opts(builder().ssl_opts(own));
    assert!(Locks::connect_like(&own).unwrap_err().to_string().contains("give Connect::tls"));
    Connect::default().tls(crate::Tls::system()).connect_like(&own).unwrap();
}

#[test]
fn a_client_of_redis_is_taken_over() {
    let client = |text: &str| ::redis::Client::open(text).unwrap();
    assert_eq!(url(&client("redis://me:hunter2%40@h:7/3")), "redis://me:hunter2%40@h:7?db=3");
    assert_eq!(url(&client("redis://[::1]")), "redis://[::1]:6379?");
    assert_eq!(url(&client("redis+unix:///run/a%20b?db=2")), "redis+unix:///run%2Fa%20b?db=2");
    let encrypted = |insecure| {
        let host = "h".to_owned();
        let address = ::redis::ConnectionAddr::TcpTls { host, port: 7, insecure, tls_params: None };
        ::redis::IntoConnectionInfo::into_connection_info(address).unwrap()
    };
    assert_eq!(url(&encrypted(false)), "rediss://h:7?");
    let error = Locks::connect_like(&encrypted(true)).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("give Connect::tls"), "{error}");
    for text in ["redis://me:hunter2%40@h:7/3", "redis+unix:///run/a%20b?db=2"] {
        Locks::connect_like(&client(text)).unwrap();
        Locks::connect_like(client(text).get_connection_info()).unwrap();
    }
}

/// What the program says itself replaces what the client has.
#[test]
fn password_and_tls_of_the_program_replace_those_of_the_client() {
    use ::sqlx::postgres::{PgConnectOptions, PgSslMode};
    let config = postgres("host=a user=me password=hunter2 sslmode=prefer");
    let connect = Connect::default().password(Password::from("hunter3")).tls(crate::Tls::system());
    let taken_over = url_with(&config, &connect).unwrap();
    assert_eq!(taken_over, "postgres://me@?host=a&channel_binding=prefer");
    for mode in [PgSslMode::Require, PgSslMode::VerifyCa, PgSslMode::VerifyFull] {
        let options = PgConnectOptions::new_without_pgpass().host("a").ssl_mode(mode);
        let taken_over = url_with(&options, &connect).unwrap();
        assert!(!taken_over.contains("sslmode"), "the program itself says what to verify: {taken_over}");
    }
    connect.connect_like(&config).unwrap();
    let off = postgres("host=a sslmode=disable");
    let error = Connect::default().tls(crate::Tls::system()).connect_like(&off).unwrap_err();
    assert!(error.to_string().contains("turns TLS off"), "{error}");
}
