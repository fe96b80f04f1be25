//! The user's own definitions may not reach the broker's tables, under no name.

use crate::shop::{began, bodies, definitions, dialog, open, options, receive, send, sql};
use dialoq::Code;
use dialoq::internals::store::Seen;
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::SqliteStore;
use dialoq::protocol::Verb;

/// Each unit ends with the statement that goes too far.
const UNITS: &[&[&str]] = &[
    &["create table child (n integer references dialoq_queue_message (queuing_order))"],
    &["create table child (n integer, foreign key (n) references Dialoq_Queue_Message)"],
    &["/* a comment */ create table child (n references dialoq_conversation_endpoint (endpoint_id))"],
    &["create table child (n)", "alter table child add column m references dialoq_queue_message (queuing_order)"],
    &[
        "create table child (n references later (m))",
        "create table later (m unique)",
        "alter table later rename to dialoq_later",
    ],
    &["create table mine (n)", "alter table mine rename to dialoq_queue_reader"],
    &["create table mine (n)", "alter table mine rename to sys_mine"],
    &[
        "create table mine (n)",
        "alter table mine rename to queue_messages_2",
        "alter table queue_messages_2 rename to Sys_x",
    ],
    &["create table dialoq_mine (n)"],
    &["create temp table mine (n)"],
    &["create temp table mine (n)", "alter table mine rename to dialoq_queue_message"],
    &["create temp view dialoq_queue_message as select 1"],
    &["create table temp.dialoq_queue_message (n)"],
    &["create table temp.mine (n)"],
    &["create table Temp.mine as select 1 as n"],
    &["create view temp.mine as select 1"],
    &["create temp trigger x after insert on t begin select 1; end"],
    &["create trigger temp.x after insert on t begin select 1; end"],
    &["create virtual table temp.mine using fts5(body)"],
    &["create virtual table dialoq_search using fts5(body)"],
    &["create view sys_mine as select 1"],
    &["drop view queue_messages"],
    &["drop view dead_letters"],
    &["drop view Dead_Letters", "create table dead_letters (id integer primary key, body text)"],
    &["create table mine (n)", "alter table mine rename to Dead_Letters"],
    &["create trigger mine instead of delete on dead_letters begin select 1; end"],
    &["create index mine on dialoq_queue_message (body)"],
    &["create index dialoq_mine on t (n)"],
    &["create trigger dialoq_mine after insert on t begin select 1; end"],
    &["create trigger mine after delete on dialoq_queue_message begin select 1; end"],
    &["create trigger mine instead of insert on queue_messages begin select 1; end"],
    &["create trigger mine after insert on t begin delete from dialoq_queue_message; end", "insert into t values (1)"],
    &["create view mine as select * from queue_messages", "insert into mine values (1)"],
    &["alter table dialoq_queue_message add column x"],
    &["drop table dialoq_queue_message"],
    &["update sqlite_schema set sql = 'x'"],
    &["insert into sqlite_dbpage (pgno, data) values (1, zeroblob(4096))"],
    // The tables in which full-text search keeps its index.
    &["create virtual table search using fts5(body)", "delete from search_data"],
    &["create virtual table search using fts4(body)", "update search_segdir set root = x'00'"],
    &["select load_extension('x')"],
    // In a transaction it gave another number each time, and so 1205 for ever.
    &["insert into t values (1)", "select Total_Changes()"],
    &["vacuum into 'copy.db'"],
    &["reindex; drop table t"],
];

/// The statements that must stay possible.
const ALLOWED: &[&[&str]] = &[
    &[
        "create table parent (id integer primary key)",
        "create table child (id references parent (id) on delete cascade)",
    ],
    &["insert into parent values (1)", "insert into child values (1)", "delete from parent"],
    &["alter table child rename to infant", "alter table infant add column note text default 'x'"],
    &["create view mine as select count(*) as n from queue_messages", "create index infant_note on infant (note)"],
    &["create trigger keep after insert on infant begin insert into t select count(*) from queue_messages; end"],
    &["insert into infant values (null, 'y')"],
    &[
        "create virtual table search using fts5(body)",
        "insert into search values ('hello')",
        "insert into search (search) values ('rebuild')",
        "insert into search (search) values ('optimize')",
        "alter table search rename to found",
        "drop table found",
    ],
];

#[tokio::test]
async fn no_definition_of_the_user_reaches_the_tables_of_the_broker() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    store.run_sql(sql("create table t (n integer)", Vec::new())).await.unwrap();
    let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
    store.submit(vec![send(handle, "kept")]).await.unwrap();
    for unit in UNITS {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        let mut refused = None;
        for text in *unit {
            refused = refused.or(tx.sql(sql(text, Vec::new())).await.err());
        }
        let refused = match refused {
            Some(refused) => refused,
            None => tx.commit().await.expect_err(&format!("{unit:?}")),
        };
        assert_eq!(refused.code(), Code::USER_SQL_FAILED, "{unit:?}: {refused}");
    }
    for unit in ALLOWED {
        let mut tx = store.begin(Seen::always()).await.unwrap();
        for text in *unit {
            tx.sql(sql(text, Vec::new())).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        tx.commit().await.unwrap_or_else(|error| panic!("{unit:?}: {error}"));
    }
    assert_eq!(bodies(&store.submit(vec![receive(9)]).await.unwrap()[0]), ["kept"]);
    store.close().await.unwrap();
    drop(store);
    drop(open(&path));
}

/// The scripts of the schema after the sixth are undone.
#[tokio::test]
async fn a_file_of_an_earlier_version_is_refused_to_readers_as_such_until_it_is_upgraded() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = open(&path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let mut statement = connection.prepare("select name from sqlite_schema where type = 'view'").unwrap();
    let views: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    drop(statement);
    for view in &views {
        connection.execute_batch(&format!("drop view \"{view}\"")).unwrap();
    }
    let undone = "drop table dialoq_job_body; drop table dialoq_dead_letter; alter table dialoq_service_queue drop column off_by; \
                  alter table dialoq_service_queue drop column off_since; \
                  alter table dialoq_service_queue drop column off_reason; pragma user_version = 6";
    connection.execute_batch(undone).unwrap();
    connection.close().unwrap();
    let refused = SqliteStore::open_read_only(options(&path)).err().expect("it is refused");
    assert_eq!(refused.code(), Code::SCHEMA_MISSING, "{refused}");
    assert!(refused.message().contains("tables have version 6"), "{refused}");
    // A name that was the user's in that version.
    let connection = rusqlite::Connection::open(&path).unwrap();
    for (made, renamed) in [
        (
            "create table dead_letters (id integer primary key); insert into dead_letters values (7)",
            "alter table dead_letters rename to mine",
        ),
        ("create view Dead_Letters as select id from mine", "drop view dead_letters"),
        ("create index Dead_Letters on mine (id)", "drop index dead_letters"),
    ] {
        connection.execute_batch(made).unwrap();
        let refused = SqliteStore::open(options(&path)).err().expect("it is the user's");
        assert_eq!(refused.code(), Code::OBJECT_IN_USE, "{refused}");
        assert!(
            refused
                .message()
                .to_lowercase()
                .contains(renamed.rsplit_once(" rename").map_or(renamed, |(first, _)| first)),
            "{refused}"
        );
        let kept = "select count(*) from sqlite_schema where name = 'dead_letters' collate nocase";
        let kept: i64 = connection.query_row(kept, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, 1, "nothing was changed");
        connection.execute_batch(renamed).unwrap();
    }
    connection.close().unwrap();
    let store = open(&path);
    SqliteStore::open_read_only(options(&path)).unwrap();
    store.close().await.unwrap();
}

/// It was reported as damage, with the advice to drop the table.
#[tokio::test]
async fn a_table_in_the_place_of_a_view_is_refused_and_stays() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    drop(open(&path));
    for view in ["queue_messages", "dead_letters"] {
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch(&format!("drop view {view}; create table {view} (n)")).unwrap();
        let error = SqliteStore::open(options(&path)).err().expect("the name is the broker's");
        assert_eq!(error.code(), Code::OBJECT_IN_USE, "{error}");
        assert!(error.message().contains(&format!("ALTER TABLE {view} RENAME TO")), "{error}");
        other.execute_batch(&format!("alter table {view} rename to mine; drop table mine")).unwrap();
        drop(other);
        drop(open(&path));
    }
}

#[tokio::test]
async fn a_foreign_key_that_another_program_made_is_reported_at_opening() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    drop(open(&path));
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("create table child (n references dialoq_queue_message (queuing_order))").unwrap();
    drop(other);
    let error = SqliteStore::open(options(&path)).err().expect("the next RECEIVE would poison the store");
    assert_eq!(error.code(), Code::OBJECT_IN_USE);
    assert!(error.message().contains("child") && error.message().contains("dialoq_queue_message"), "{error}");
    rusqlite::Connection::open(&path).unwrap().execute_batch("drop table child").unwrap();
    drop(open(&path));
}
