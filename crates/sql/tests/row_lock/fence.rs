//! Fences by way of the client libraries.

use leasehold_core::{Lineage, Token};
use leasehold_sql::{Dialect, Fence, Fenced};

const fn token(number: u64) -> Token {
    Token { lineage: Lineage::new(1), number }
}

/// More statements than a connection of `sqlx` caches.
const UPDATES: u64 = 150;

macro_rules! cases {
    ($rig:ident, $dialect:expr, $second:literal, $third:literal) => {
        async fn shop() -> ($rig, Fence) {
            let rig = $rig::start().await;
            let fence = Fence::new("stock", "fence").unwrap().dialect($dialect);
            rig.server.query("CREATE TABLE stock (item varchar(20) PRIMARY KEY, pieces bigint NOT NULL)");
            rig.server.query(&fence.column());
            rig.server.query("INSERT INTO stock (item, pieces) VALUES ('a', 500)");
            (rig, fence)
        }

        #[tokio::test]
        async fn one_statement_serves_all_tokens() {
            let (rig, fence) = shop().await;
            let mut connection = rig.pool.acquire().await.unwrap();
            let cached_before = sqlx::Connection::cached_statements_size(&*connection);
            for number in 1..=UPDATES {
                let update = fence.update(
                    token(number),
                    concat!("pieces = pieces - ", $second),
                    concat!("item = ", $third),
                );
                let query = sqlx::query(sqlx::AssertSqlSafe(update.text.as_str()))
                    .bind(update.token)
                    .bind(2_i64)
                    .bind("a");
                assert_eq!(query.execute(&mut *connection).await.unwrap().rows_affected(), 1, "{number}");
            }
            assert_eq!(sqlx::Connection::cached_statements_size(&*connection), cached_before + 1);
            assert_eq!(rig.server.query("SELECT pieces, fence FROM stock"), ["200|150"]);
        }

        #[tokio::test]
        async fn a_smaller_token_changes_nothing_and_is_told_from_a_missing_row() {
            let (rig, fence) = shop().await;
            let large = token((1 << 53) + 2);
            for (token, item, rows, judged) in [
                (large, "a", 1, Fenced::Passed),
                (token((1 << 53) + 1), "a", 0, Fenced::Overtaken { seen: large.number }),
                (large, "b", 0, Fenced::NoRow),
            ] {
                let seal = fence.seal(token, concat!("item = ", $second));
                let query = sqlx::query(sqlx::AssertSqlSafe(seal.text.as_str())).bind(seal.token).bind(item);
                assert_eq!(query.execute(&rig.pool).await.unwrap().rows_affected(), rows, "{token} {item}");
                let update = fence.update(token, "pieces = pieces - 1", concat!("item = ", $second));
                let query =
                    sqlx::query(sqlx::AssertSqlSafe(update.text.as_str())).bind(update.token).bind(item);
                assert_eq!(query.execute(&rig.pool).await.unwrap().rows_affected(), rows, "{token} {item}");
                let seen = fence.seen(&format!("item = '{item}'"));
                let seen: Option<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(seen.as_str()))
                    .fetch_optional(&rig.pool)
                    .await
                    .unwrap();
                assert_eq!(fence.judge(token, seen), judged);
            }
            assert_eq!(rig.server.query("SELECT pieces FROM stock"), ["499"]);
        }

        #[tokio::test]
        async fn a_row_whose_fence_is_null_has_seen_no_token() {
            let (rig, _) = shop().await;
            rig.server
                .query("CREATE TABLE notes (item varchar(20) PRIMARY KEY, pieces bigint, fence bigint)");
            let fence = Fence::new("notes", "fence").unwrap().dialect($dialect);
            for statement in [
                fence.seal(token(3), concat!("item = ", $second)),
                fence.update(token(3), "pieces = 4", concat!("item = ", $second)),
                fence.upsert(token(3), &["item"], &[]).unwrap(),
            ] {
                rig.server.query("DELETE FROM notes");
                rig.server.query("INSERT INTO notes (item, pieces) VALUES ('a', 1)");
                let seen = fence.seen("item = 'a'");
                let before: Option<i64> = sqlx::query_scalar(sqlx::AssertSqlSafe(seen.as_str()))
                    .fetch_optional(&rig.pool)
                    .await
                    .unwrap();
                assert_eq!(fence.judge(token(3), before), Fenced::Passed);
                let query =
                    sqlx::query(sqlx::AssertSqlSafe(statement.text.as_str())).bind(statement.token).bind("a");
                let rows = query.execute(&rig.pool).await.unwrap().rows_affected();
                assert!(fence.passed(token(3), rows).is_ok(), "{statement:?}");
                assert_eq!(rig.server.query("SELECT fence FROM notes"), ["3"], "{statement:?}");
            }
        }

        #[tokio::test]
        async fn an_upsert_inserts_or_changes_and_refuses_a_smaller_token() {
            let (rig, fence) = shop().await;
            for (number, item, pieces, judged) in [
                (7, "b", 10, Fenced::Passed),
                (8, "b", 20, Fenced::Passed),
                (7, "b", 30, Fenced::Overtaken { seen: 8 }),
                (8, "b", 25, Fenced::Passed),
            ] {
                let upsert = fence.upsert(token(number), &["item"], &["pieces"]).unwrap();
                let query = sqlx::query(sqlx::AssertSqlSafe(upsert.text.as_str()))
                    .bind(upsert.token)
                    .bind(item)
                    .bind(pieces);
                let rows = query.execute(&rig.pool).await.unwrap().rows_affected();
                if $dialect == Dialect::Postgres {
                    assert_eq!(
                        fence.passed(token(number), rows).is_ok(),
                        judged == Fenced::Passed,
                        "{pieces}"
                    );
                }
                let seen = sqlx::query_scalar(sqlx::AssertSqlSafe(fence.seen("item = 'b'").as_str()))
                    .fetch_optional(&rig.pool)
                    .await
                    .unwrap();
                assert_eq!(fence.judge(token(number), seen), judged, "{pieces}");
            }
            let rows = rig.server.query("SELECT item, pieces, fence FROM stock ORDER BY item");
            assert_eq!(rows, ["a|500|0", "b|25|8"]);
        }
    };
}

mod on_postgres {
    use super::*;
    use crate::postgres::Rig;

    cases!(Rig, Dialect::Postgres, "$2", "$3");
}

mod on_mysql {
    use super::*;
    use crate::mysql::Rig;

    cases!(Rig, Dialect::Mysql, "?", "?");

    /// The server counts rows that changed, unless the client asks for the rows that it found, as sqlx does.
    #[tokio::test]
    async fn a_token_that_is_shown_twice_has_passed() {
        use mysql_async::prelude::Queryable;
        let (rig, fence) = shop().await;
        let mut conn = mysql_async::Conn::from_url(rig.server.url()).await.unwrap();
        for rows in [1, 0] {
            let seal = fence.seal(token(5), "item = ?");
            conn.exec_drop(&seal.text, (seal.token, "a")).await.unwrap();
            assert_eq!(conn.affected_rows(), rows);
            let seen: Option<i64> = conn.exec_first(fence.seen("item = ?"), ("a",)).await.unwrap();
            assert_eq!(fence.judge(token(5), seen), Fenced::Passed);
        }
        conn.disconnect().await.unwrap();
    }
}
