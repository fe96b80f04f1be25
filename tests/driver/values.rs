//! Values there and back.

use crate::servers::Store;
use crate::stage::{call, execute, number, on, refused, rows, sql};
use dialoq::internals::store::database::link::{Arg, Column};
use dialoq::{Code, SqlValue, Timestamp};
use std::sync::Arc;
use uuid::Uuid;

const ECHO: &str = "
CREATE FUNCTION dialoq.echo(b boolean, i int, l bigint, t text, y bytea, u uuid, m timestamptz, n text)
RETURNS TABLE (b2 boolean, i2 int, l2 bigint, t2 text, y2 bytea, u2 uuid, m2 timestamptz, n2 text)
LANGUAGE sql AS $$ SELECT b, i, l, t, y, u, m, n $$;
CREATE FUNCTION dialoq.unfold(ids uuid[], names text[], bodies bytea[], levels int[], longs bigint[], version bigint)
RETURNS TABLE (item int, id uuid, name text, body bytea, level int, long bigint, version2 bigint)
LANGUAGE sql AS $$
    SELECT (place - 1)::int, id, name, body, level, long, version
    FROM unnest(ids, names, bodies, levels, longs) WITH ORDINALITY AS row(id, name, body, level, long, place) $$;";

pub(crate) fn arguments_arrive_in_the_declared_types(store: Store) {
    on(store, "", ECHO, |stage| async move {
        let mut link = stage.link().await;
        let (id, moment) = (Uuid::now_v7(), Timestamp(1_700_000_000_123_456));
        let args = vec![
            Arg::Bool(true),
            Arg::Int(-7),
            Arg::BigInt(1 << 40),
            Arg::Text("größe"),
            Arg::Bytes(Arc::new(vec![0, 1, 255])),
            Arg::Uuid(id),
            Arg::Time(moment),
            Arg::Null,
        ];
        let rows = link.call(call("echo", args)).await.unwrap();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(
            row.values(),
            [
                SqlValue::Integer(1),
                SqlValue::Integer(-7),
                SqlValue::Integer(1 << 40),
                SqlValue::Text("größe".into()),
                SqlValue::Blob(vec![0, 1, 255]),
                SqlValue::Blob(id.as_bytes().to_vec()),
                SqlValue::Integer(moment.0),
                SqlValue::Null,
            ]
        );
        assert_eq!(row.get::<i64>("l2").unwrap(), 1 << 40);
        let nulls = link.call(call("echo", vec![Arg::Null; 8])).await.unwrap();
        assert_eq!(nulls[0].values(), vec![SqlValue::Null; 8]);
    });
}

pub(crate) fn rows_are_a_column_of_each(store: Store) {
    on(store, "", ECHO, |stage| async move {
        let mut link = stage.link().await;
        let id = Uuid::now_v7();
        let columns = vec![
            Column::Uuid(vec![Some(id), None]),
            Column::Text(vec![None, Some("b")]),
            Column::Bytes(vec![Some(Arc::new(vec![9; 100_000])), None]),
            Column::Int(vec![Some(1), Some(2)]),
            Column::BigInt(vec![None, Some(5)]),
        ];
        let args = vec![Arg::Rows { type_name: "unfold_rows", columns }, Arg::BigInt(3)];
        let rows = link.call(call("unfold", args)).await.unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get::<Vec<u8>>("id").unwrap(), id.as_bytes());
        assert_eq!(rows[0].get::<Vec<u8>>("body").unwrap().len(), 100_000);
        assert_eq!(rows[1].get::<i64>("item").unwrap(), 1);
        assert_eq!(rows[1].get::<String>("name").unwrap(), "b");
        assert_eq!((rows[1].get::<i64>("long").unwrap(), rows[1].get::<i64>("version2").unwrap()), (5, 3));
        let empty = vec![Column::Uuid(vec![]), Column::Text(vec![]), Column::Bytes(vec![]), Column::Int(vec![])];
        let empty = empty.into_iter().chain([Column::BigInt(vec![])]).collect();
        let args = vec![Arg::Rows { type_name: "unfold_rows", columns: empty }, Arg::Null];
        assert!(link.call(call("unfold", args)).await.unwrap().is_empty());
    });
}

const EVERY: &str = "
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE DOMAIN short AS smallint CHECK (VALUE < 100);
CREATE TABLE every (
    b boolean, s short, i int, l bigint, r real, d double precision, n numeric(12, 4), t text, v varchar(9), j jsonb,
    k json, y bytea, u uuid, z timestamptz, w date, h time, m mood);";

pub(crate) fn users_values_fit_every_type(store: Store) {
    on(store, "", EVERY, |stage| async move {
        let mut link = stage.link().await;
        let id = "0190b2c4-7d1e-7a3b-8c4d-5e6f708192a3";
        let text = |text: &str| SqlValue::Text(text.to_owned());
        let params = vec![
            SqlValue::Integer(1),
            SqlValue::Integer(42),
            SqlValue::Integer(-1),
            SqlValue::Integer(1 << 40),
            SqlValue::Real(0.5),
            SqlValue::Integer(2),
            text("-12.3400"),
            SqlValue::Integer(7),
            text("abc"),
            text(r#"{"a": 1}"#),
            text("[1,2]"),
            SqlValue::Blob(vec![1, 2]),
            text(id),
            text("2024-02-29 12:00:00.25+01"),
            text("2024-02-29"),
            text("23:59:59.5"),
            text("happy"),
        ];
        let places: Vec<String> = (1..=params.len()).map(|place| format!("${place}")).collect();
        let insert = format!("INSERT INTO every VALUES ({})", places.join(", "));
        assert_eq!(link.execute(&sql(&insert, params)).await.unwrap(), 1);
        let found = rows(&mut *link, "SELECT * FROM every").await;
        assert_eq!(
            found[0].values(),
            [
                SqlValue::Integer(1),
                SqlValue::Integer(42),
                SqlValue::Integer(-1),
                SqlValue::Integer(1 << 40),
                SqlValue::Real(0.5),
                SqlValue::Real(2.0),
                text("-12.3400"),
                text("7"),
                text("abc"),
                text(r#"{"a": 1}"#),
                text("[1,2]"),
                SqlValue::Blob(vec![1, 2]),
                text(id),
                text("2024-02-29 11:00:00.250000"),
                text("2024-02-29"),
                text("23:59:59.500000"),
                text("happy"),
            ]
        );
        let nulls: Vec<SqlValue> = vec![SqlValue::Null; places.len()];
        assert_eq!(link.execute(&sql(&insert, nulls)).await.unwrap(), 1);
        let id = Uuid::parse_str(id).unwrap();
        for same in [SqlValue::Uuid(id), SqlValue::Blob(id.as_bytes().to_vec()), text(&id.to_string())] {
            let found = link.query(&sql("SELECT count(*) AS n FROM every WHERE u = $1", vec![same])).await.unwrap();
            assert_eq!(found.rows[0].get::<i64>("n").unwrap(), 1);
        }
        let moment = SqlValue::Integer(1_709_204_400_250_000);
        let found = link.query(&sql("SELECT count(*) AS n FROM every WHERE z = $1", vec![moment])).await.unwrap();
        assert_eq!(found.rows[0].get::<i64>("n").unwrap(), 1);
    });
}

pub(crate) fn users_see_ids_and_times_as_text(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.link().await;
        let text =
            "SELECT '0190b2c4-7d1e-7a3b-8c4d-5e6f708192a3'::uuid AS id, timestamptz '2024-01-02 03:04:05Z' AS at";
        let row = &rows(&mut *link, text).await[0];
        assert_eq!(row.get::<String>("id").unwrap(), "0190b2c4-7d1e-7a3b-8c4d-5e6f708192a3");
        assert_eq!(row.get::<String>("at").unwrap(), "2024-01-02 03:04:05.000000");
        let (failure, code) = refused(link.query(&sql("SELECT interval '1 day' AS span", vec![])).await);
        assert_eq!(code, Code::USER_SQL_FAILED);
        assert!(
            failure.error.message().contains("'span'") && failure.error.message().contains("interval"),
            "{failure:?}"
        );
        assert_eq!(number(&mut *link, "SELECT 1").await, 1);
    });
}

pub(crate) fn a_changed_table_is_read_again(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.link().await;
        execute(&mut *link, "INSERT INTO thing VALUES (1, 'one')").await.unwrap();
        assert_eq!(rows(&mut *link, "SELECT * FROM thing").await[0].values().len(), 2);
        execute(&mut *link, "ALTER TABLE thing ADD COLUMN colour text").await.unwrap();
        assert_eq!(rows(&mut *link, "SELECT * FROM thing").await[0].values().len(), 3);
    });
}

pub(crate) fn a_change_between_transactions_fails_no_statement(store: Store) {
    let function =
        |column: &str| format!("CREATE FUNCTION dialoq.once() RETURNS TABLE ({column} int) LANGUAGE sql AS 'SELECT 1'");
    on(store, "&sql_timeout_ms=60000", &function("old"), |stage| async move {
        let (mut link, mut other) = (stage.link().await, stage.link().await);
        let once = || call("once", Vec::new());
        rows(&mut *link, "SELECT * FROM thing").await;
        link.call(once()).await.unwrap();
        // The first statement of a transaction, and one behind a savepoint, which does not undo what is before it.
        execute(&mut *other, "ALTER TABLE thing ADD COLUMN colour text").await.unwrap();
        link.begin().await.unwrap();
        assert!(rows(&mut *link, "SELECT * FROM thing").await.is_empty());
        execute(&mut *link, "INSERT INTO thing VALUES (1, 'one')").await.unwrap();
        link.commit().await.unwrap();
        execute(&mut *other, "ALTER TABLE thing ADD COLUMN size int").await.unwrap();
        execute(&mut *other, "DROP FUNCTION dialoq.once()").await.unwrap();
        execute(&mut *other, &function("new")).await.unwrap();
        link.begin().await.unwrap();
        execute(&mut *link, "UPDATE thing SET name = 'two'").await.unwrap();
        link.savepoint(0).await.unwrap();
        assert_eq!(rows(&mut *link, "SELECT * FROM thing").await[0].values().len(), 4);
        link.release(0).await.unwrap();
        link.savepoint(0).await.unwrap();
        assert_eq!(link.call(once()).await.unwrap()[0].get::<i64>("new").unwrap(), 1);
        link.rollback_to(0).await.unwrap();
        link.commit().await.unwrap();
        assert_eq!(number(&mut *link, "SELECT count(*) FROM thing WHERE name = 'two'").await, 1);
    });
}

pub(crate) fn transactions_are_not_the_users(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.link().await;
        link.begin().await.unwrap();
        execute(&mut *link, "INSERT INTO thing VALUES (1, 'a')").await.unwrap();
        let disguised = ["/* a /* b */ c */ COMMIT", "; ; COMMIT", "-- so\rCOMMIT"];
        let plain = ["COMMIT", " -- so\n/* and so */ rollback", "prepare transaction 'x'", "DISCARD ALL"];
        for text in plain.into_iter().chain(disguised) {
            let (failure, code) = refused(execute(&mut *link, text).await);
            assert_eq!(code, Code::USER_SQL_FAILED, "{text}");
            assert!(failure.error.message().contains("Dialoq"), "{failure:?}");
        }
        link.rollback().await.unwrap();
        assert_eq!(number(&mut *link, "SELECT count(*) FROM thing").await, 0, "it was not committed");
    });
}

pub(crate) fn a_query_changes_nothing(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.link().await;
        let (failure, code) = refused(link.query(&sql("INSERT INTO thing VALUES (1, 'a') RETURNING id", vec![])).await);
        assert_eq!(code, Code::USER_SQL_FAILED);
        assert!(failure.error.message().contains("read-only"), "{failure:?}");
        assert_eq!(number(&mut *link, "SELECT count(*) FROM thing").await, 0);
        execute(&mut *link, "INSERT INTO thing VALUES (1, 'a')").await.expect("the link is well");
    });
}
