//! Attacks of other roles of the server on a broker.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::status::FindingKind;
use dialoq::work::{JobFilter, StatisticsBy};
use dialoq::{Act, Broker, Code, OpenOptions};
use std::future::Future;

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE; CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);";

fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(6 * SOON, test()).await.expect("the test hangs") });
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A role that may make objects in the database and its schema public, and nothing else; its URL and its name.
fn intruder(database: &Database) -> (String, String) {
    let url = database.login("");
    let name = url.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap().to_owned();
    database.sql(&format!(
        "GRANT CREATE ON SCHEMA public TO {name}; DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO {name}',
            current_database()); END $$"
    ));
    (url, name)
}

/// Overloads that fit the arguments of our texts better than PostgreSQL's own, and give their owner every right.
fn plants(name: &str) -> String {
    let body = |value: &str| {
        format!(
            "LANGUAGE plpgsql AS $f$ BEGIN
                IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN ALTER ROLE {name} SUPERUSER; END IF;
                RETURN {value}; END $f$;"
        )
    };
    let mut text = String::new();
    for schema in ["public", "plant"] {
        for (declared, value) in [
            ("concat_ws(text, text, text) RETURNS text", "concat_ws($1, $2, $3)"),
            ("concat_ws(text, text) RETURNS text", "concat_ws($1, VARIADIC ARRAY[$2])"),
            ("format(text, name) RETURNS text", "format($1, VARIADIC ARRAY[$2::text])"),
            ("format(text, text) RETURNS text", "format($1, VARIADIC ARRAY[$2])"),
            ("times(numeric, integer) RETURNS numeric", "$1 * $2::numeric"),
            ("times(bigint, interval) RETURNS interval", "$1::float8 * $2"),
            ("plus(text, integer) RETURNS text", "concat($1, $2::text)"),
            ("plus(text, bigint) RETURNS text", "concat($1, $2::text)"),
            ("one(bigint, uuid) RETURNS bigint", "$1 + 1"),
        ] {
            text.push_str(&format!(
                "CREATE FUNCTION {schema}.{declared} {}",
                body(&value.replace("concat_ws(", "pg_catalog.concat_ws(").replace("= format(", "pg_catalog.format("))
            ));
        }
        text.push_str(&format!(
            "CREATE OPERATOR {schema}.* (FUNCTION = {schema}.times, LEFTARG = numeric, RIGHTARG = integer);
             CREATE OPERATOR {schema}.* (FUNCTION = {schema}.times, LEFTARG = bigint, RIGHTARG = interval);
             CREATE OPERATOR {schema}.|| (FUNCTION = {schema}.plus, LEFTARG = text, RIGHTARG = integer);
             CREATE OPERATOR {schema}.|| (FUNCTION = {schema}.plus, LEFTARG = text, RIGHTARG = bigint);
             CREATE AGGREGATE {schema}.count(uuid) (SFUNC = {schema}.one, STYPE = bigint, INITCOND = '0');"
        ));
    }
    text
}

/// What `dialoq status` asks.
const STATUS: &[&str] = &[
    include_str!("../../sql/postgres/status/broker.sql"),
    include_str!("../../sql/postgres/status/queues.sql"),
    include_str!("../../sql/postgres/status/levels.sql"),
    include_str!("../../sql/postgres/status/conversations.sql"),
    include_str!("../../sql/postgres/status/transmission.sql"),
];

pub(crate) fn overloads_of_a_stranger_are_never_called(store: Store) {
    run(|| async move {
        let database = Database::bare(store);
        let (url, name) = intruder(&database);
        database.sql(&format!("CREATE SCHEMA plant AUTHORIZATION {name}"));
        database.try_sql_as(&url, &plants(&name)).unwrap();
        let is_super = || database.sql(&format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{name}'"));
        let broker = Broker::open(database.url()).await.unwrap();
        assert_eq!(is_super(), "f", "connecting and installing");
        broker.execute(SCRIPT).await.unwrap();
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        let tx = broker.begin().await.unwrap();
        tx.send(dialog, "//t/Word", "a").await.unwrap();
        tx.savepoint("x").await.unwrap();
        tx.commit().await.unwrap();
        broker.receive("server").await.unwrap().expect("the message");
        broker.end(dialog).await.unwrap();
        for text in STATUS {
            broker.query(*text, ()).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        broker.doctor().await.unwrap();
        for call in ["tick(500)", "poll()", "define_begin(1)", "get_transmission_status(NULL)"] {
            database.sql(&format!("SET search_path = plant, public, pg_catalog; SELECT * FROM dialoq.{call}"));
        }
        assert_eq!(is_super(), "f", "verbs, status and doctor");
        broker.close().await.unwrap();
    });
}

/// A search path may name a schema before pg_catalog. An operator there comes before that of PostgreSQL, also where NULLIF, CASE and
/// IN mean one.
pub(crate) fn operators_of_a_stranger_before_those_of_the_server_are_never_called(store: Store) {
    run(|| async move {
        let database = Database::bare(store);
        let (url, name) = intruder(&database);
        database.sql(&format!("CREATE SCHEMA plant AUTHORIZATION {name}"));
        database.try_sql_as(&url, &every_operator(&name)).unwrap();
        let is_super = || database.sql(&format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{name}'"));
        let url = format!("{}&options=-c%20search_path%3Dplant,pg_catalog", database.url());
        let options = OpenOptions::default().careful_receives(0);
        let broker = Broker::open_with(&url, options).await.unwrap();
        assert_eq!(is_super(), "f", "connecting and installing");
        broker.execute(SCRIPT).await.unwrap();
        broker
            .execute("ALTER QUEUE server WITH POISON_MESSAGE_HANDLING (QUARANTINE = ON); CREATE WORK QUEUE work")
            .await
            .unwrap();
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        broker.send(dialog, "//t/Word", "a").await.unwrap();
        broker.push_job("work", "a").await.unwrap();
        // A claim that is taken over, and a rollback that keeps its locks until it is counted.
        let tx = broker.begin().await.unwrap();
        let batch = tx.receive("server").await.unwrap().expect("the message");
        tx.savepoint("x").await.unwrap();
        tx.send(batch.first().conversation_handle, "//t/Word", "b").await.unwrap();
        tx.rollback().await.unwrap();
        assert_eq!(is_super(), "f", "verbs and transactions");
        broker.status().await.unwrap();
        broker.doctor().await.unwrap();
        broker.explain("server").await.unwrap();
        broker.conversation(dialog.0, 10, 10).await.unwrap();
        broker.work_queues().await.unwrap();
        broker.jobs(&JobFilter::default(), 10).await.unwrap();
        broker.work_statistics(None, StatisticsBy::Queue).await.unwrap();
        broker.work_schedules().await.unwrap();
        assert_eq!(is_super(), "f", "status, doctor and work queues");
        broker.close().await.unwrap();
    });
}

/// A copy of every operator of two operands that gives its owner every right.
fn every_operator(name: &str) -> String {
    format!(
        "DO $do$
        DECLARE o record;
        BEGIN
            FOR o IN
                SELECT p.oid, p.oprname AS name, format_type(p.oprleft, NULL) AS lhs, format_type(p.oprright, NULL) AS rhs,
                    format_type(p.oprresult, NULL) AS result
                FROM pg_operator AS p JOIN pg_type AS l ON l.oid = p.oprleft JOIN pg_type AS r ON r.oid = p.oprright
                WHERE p.oprnamespace = 'pg_catalog'::regnamespace AND 'p' NOT IN (l.typtype, r.typtype)
            LOOP
                EXECUTE format('CREATE FUNCTION plant.of_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN
                    IF (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) current_user)
                    THEN ALTER ROLE {name} SUPERUSER; END IF;
                    RETURN $1 OPERATOR(pg_catalog.%s) $2; END $f$', o.oid, o.lhs, o.rhs, o.result, o.name);
                EXECUTE format('CREATE OPERATOR plant.%s (FUNCTION = plant.of_%s, LEFTARG = %s, RIGHTARG = %s)',
                    o.name, o.oid, o.lhs, o.rhs);
            END LOOP;
        END $do$"
    )
}

pub(crate) fn a_schema_of_another_owner_is_refused(store: Store) {
    run(|| async move {
        // The first installation on a server makes the roles, which needs CREATEROLE.
        let _roles = Database::fresh(store);
        let database = Database::bare(store);
        let (url, name) = intruder(&database);
        // An empty one that waits for the installer.
        database.try_sql_as(&url, "CREATE SCHEMA dialoq").unwrap();
        let refused = Broker::open(database.url()).await.expect_err("the schema belongs to another role");
        assert_eq!(refused.code(), Code::STORE_FOREIGN, "{refused}");
        assert!(refused.message().contains(&name), "{refused}");
        assert_eq!(database.sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'dialoq'::regnamespace"), "0");
        database.try_sql_as(&url, "DROP SCHEMA dialoq").unwrap();
        // A whole broker of the stranger's own, whose views would run the stranger's functions for each process that opens it.
        Broker::open(&url).await.unwrap().close().await.unwrap();
        let refused = Broker::open(database.url()).await.expect_err("the broker belongs to another role");
        assert_eq!(refused.code(), Code::STORE_FOREIGN, "{refused}");
        assert!(refused.message().contains("GRANT dialoq_admin TO"), "{refused}");
        database.sql(&format!("GRANT dialoq_admin TO {name}"));
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        // A role that may add to it.
        database.sql("GRANT CREATE ON SCHEMA dialoq TO dialoq_user");
        let refused = Broker::open(database.url()).await.expect_err("others may create in the schema");
        assert!(refused.message().contains("REVOKE CREATE ON SCHEMA dialoq FROM dialoq_user"), "{refused}");
        database.sql("REVOKE CREATE ON SCHEMA dialoq FROM dialoq_user; ALTER FUNCTION dialoq.poll() SECURITY INVOKER");
        let refused = Broker::open(database.url()).await.expect_err("a function runs with the caller's rights");
        assert!(refused.message().contains("poll()"), "{refused}");
    });
}

/// An overload that fits a call of a verb better than the broker's own function. It outlives the right to make it.
pub(crate) fn a_function_that_another_role_left_is_refused(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let (url, name) = intruder(&database);
        let left = "dialoq.check_range(text, integer, integer, integer)";
        database.sql(&format!("GRANT USAGE, CREATE ON SCHEMA dialoq TO {name}"));
        let create = format!("CREATE FUNCTION {left} RETURNS void LANGUAGE sql AS $$ SELECT $$");
        database.try_sql_as(&url, &create).unwrap();
        database.sql(&format!("REVOKE ALL ON SCHEMA dialoq FROM {name}"));
        let refused = Broker::open(database.url()).await.expect_err("another role's function is in the schema");
        assert_eq!(refused.code(), Code::STORE_FOREIGN, "{refused}");
        assert!(refused.message().contains(&name) && refused.message().contains("check_range"), "{refused}");
        database.sql(&format!("DROP FUNCTION {left}"));
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
    });
}

/// Every function that other roles may call has a search path of its own; no role may call another function.
pub(crate) fn every_granted_function_fixes_its_search_path(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let open = database.sql(
            "SELECT coalesce(string_agg(p.oid::regprocedure::text, ' '), '') FROM pg_proc AS p
             WHERE p.pronamespace = 'dialoq'::regnamespace
                 AND CASE WHEN has_function_privilege('dialoq_user', p.oid, 'EXECUTE')
                     OR has_function_privilege('dialoq_admin', p.oid, 'EXECUTE') OR p.prosecdef
                     THEN NOT p.prosecdef OR NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(p.proconfig, '{}'))
                     ELSE EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
                         WHERE a.grantee <> p.proowner) END",
        );
        assert_eq!(open, "");
    });
}

const TURN: &str = "SELECT is_receive_enabled FROM dialoq.service_queue WHERE name = 'server'";

pub(crate) fn a_queue_is_turned_off_by_receiving_only(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        broker.send(dialog, "//t/Word", "a").await.unwrap();
        broker.close().await.unwrap();
        let user = database.login("dialoq_user");
        let (mut receiver, side) = (connect(&user).await, connect(&user).await);
        let ids = "SELECT e.conversation_group_id::text, s.queue_id FROM dialoq.conversation_endpoint AS e
            JOIN dialoq.service AS s ON s.service_id = e.service_id WHERE NOT e.is_initiator";
        let row = connect(database.url()).await.query_one(ids, &[]).await.unwrap();
        let (group, queue): (String, i32) = (row.get(0), row.get(1));
        let attempt = async || {
            let id = uuid::Uuid::new_v4().to_string();
            side.execute("SELECT dialoq.begin_attempt($1::text::uuid, $2, $3::text::uuid)", &[&id, &queue, &group])
                .await
                .unwrap();
            id
        };
        let count = async |id: &String| {
            side.execute("SELECT * FROM dialoq.count_rollback($1::text::uuid)", &[id]).await.unwrap();
        };
        let counted = || database.sql("SELECT count(*) FROM dialoq.queue_rollback");
        // No session receives.
        for _ in 0..6 {
            count(&attempt().await).await;
        }
        assert_eq!((database.sql(TURN), counted()), ("t".to_owned(), "0".to_owned()));
        // A session receives and commits; that is no rollback however often it is noted.
        let receive = "SELECT count(*) FROM dialoq.receive('server')";
        let transaction = receiver.transaction().await.unwrap();
        assert_eq!(transaction.query_one(receive, &[]).await.unwrap().get::<_, i64>(0), 1);
        let mut attempts = Vec::new();
        for _ in 0..6 {
            let id = attempt().await;
            count(&id).await;
            attempts.push(id);
        }
        assert_eq!(counted(), "0", "the transaction is open");
        transaction.rollback().await.unwrap();
        for id in &attempts {
            count(id).await;
        }
        assert_eq!(counted(), "1", "one RECEIVE that was rolled back counts once");
        for turn in 2..=5 {
            assert_eq!(database.sql(TURN), "t", "after {} rollbacks", turn - 1);
            let transaction = receiver.transaction().await.unwrap();
            assert_eq!(transaction.query_one(receive, &[]).await.unwrap().get::<_, i64>(0), 1);
            let id = attempt().await;
            transaction.rollback().await.unwrap();
            count(&id).await;
        }
        assert_eq!(database.sql(TURN), "f", "five in a row turn the queue off");
    });
}

pub(crate) fn locks_of_a_stranger_stop_no_reader_and_no_sender_for_ever(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        let stranger = connect(&database.login("")).await;
        let queue: i32 =
            database.sql("SELECT queue_id FROM dialoq.service_queue WHERE name = 'server'").parse().unwrap();
        let slots = format!(
            "SELECT count(pg_advisory_lock((17490::bigint << 48) | ({queue}::bigint << 16) | g.n)) FROM generate_series(0, 3) AS g (n)"
        );
        stranger.query(&slots, &[]).await.unwrap();
        let taken = format!("SELECT slot FROM dialoq.take_reader_slot({queue}, 1)");
        assert_eq!(database.sql(&taken), "4", "the only reader of the queue finds a place");
        // Every role may ask for this lock; the wait for it ends with the name of its holder.
        let group =
            "SELECT conversation_group_id FROM dialoq.conversation_endpoint WHERE is_initiator AND NOT is_system";
        for key in ["group_key", "claim_key"] {
            let holder = broker.begin().await.unwrap();
            if key == "claim_key" {
                // A session that waits for the holder waits for this lock first.
                holder.send(dialog, "//t/Word", "b").await.unwrap();
            }
            let key = database.sql(&format!("SELECT dialoq.{key}(({group}))"));
            stranger.query(&format!("SELECT pg_advisory_lock({key})"), &[]).await.unwrap();
            let refused = broker.send(dialog, "//t/Word", "a").await.expect_err("the group is held");
            assert_eq!(refused.code(), Code::STORE_OWNED, "{refused}");
            assert!(refused.message().contains("may not use the broker"), "{refused}");
            stranger.query("SELECT pg_advisory_unlock_all()", &[]).await.unwrap();
            holder.rollback().await.unwrap();
        }
        broker.send(dialog, "//t/Word", "a").await.unwrap();
        broker.close().await.unwrap();
    });
}

/// A login with NOINHERIT uses the broker after SET ROLE; the server shows its login to others, and no rights of the role.
pub(crate) fn a_member_by_set_role_is_no_stranger(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        broker.close().await.unwrap();
        let url = database.login("");
        let name = url.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
        // On PostgreSQL 16 and later a grant has INHERIT of its own.
        database.sql(&format!("ALTER ROLE {name} NOINHERIT; GRANT dialoq_user TO {name}"));
        let member = connect(&url).await;
        member.batch_execute("SET ROLE dialoq_user").await.unwrap();
        let queue = database.sql("SELECT queue_id FROM dialoq.service_queue WHERE name = 'server'");
        let take = format!("SELECT slot FROM dialoq.take_reader_slot({queue}, 1)");
        assert_eq!(member.query_one(&take, &[]).await.unwrap().get::<_, Option<i32>>(0), Some(0));
        assert_eq!(database.sql(&take), "", "the only place is taken");
        let key = database.sql("SELECT dialoq.group_key(conversation_group_id) FROM dialoq.conversation_endpoint WHERE is_initiator AND NOT is_system");
        member.query(&format!("SELECT pg_advisory_lock({key})"), &[]).await.unwrap();
        assert_eq!(database.sql(&format!("SELECT dialoq.is_held_by_stranger({key})")), "f");
    });
}

/// An upgrade keeps such rights. Who waited for it was refused after 15 s, for a login "whose role may not use the broker".
pub(crate) fn a_login_with_rights_on_single_verbs_is_no_stranger(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        let url = database.login("");
        let name = url.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
        let sender = connect(&url).await;
        let send = format!("BEGIN; SELECT * FROM dialoq.send('{dialog}', '//t/Word', 'a')");
        sender.batch_execute(&send).await.unwrap_err();
        sender.batch_execute("ROLLBACK").await.unwrap();
        database.sql(&format!(
            "GRANT USAGE ON SCHEMA dialoq TO {name}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA dialoq TO {name}"
        ));
        sender.batch_execute(&send).await.unwrap();
        let key = database.sql("SELECT dialoq.group_key(conversation_group_id) FROM dialoq.conversation_endpoint WHERE is_initiator AND NOT is_system");
        assert_eq!(database.sql(&format!("SELECT dialoq.is_held_by_stranger({key})")), "f");
        broker.close().await.unwrap();
    });
}

/// A trigger runs with the rights of the tables' owner, and a foreign key keeps jobs from being deleted. Both outlive the right to make them.
pub(crate) fn what_a_role_left_on_the_tables_is_refused(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        let (url, name) = intruder(&database);
        database.sql(&format!("GRANT USAGE ON SCHEMA dialoq TO {name}; GRANT ALL ON dialoq.job TO {name}"));
        for (left, names, removed) in [
            (
                "CREATE FUNCTION left_behind() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
                 CREATE TRIGGER left_behind AFTER INSERT ON dialoq.job FOR EACH ROW EXECUTE FUNCTION left_behind()",
                "DROP TRIGGER left_behind ON dialoq.job",
                "DROP FUNCTION left_behind() CASCADE",
            ),
            (
                "CREATE FUNCTION left_behind(n bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
                 CREATE TRIGGER asks AFTER INSERT ON dialoq.job FOR EACH ROW WHEN (left_behind(NEW.job_id))
                 EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
                "left_behind(bigint)",
                "DROP FUNCTION left_behind(bigint) CASCADE",
            ),
            (
                "CREATE TABLE left_behind (job_id bigint CONSTRAINT holds REFERENCES dialoq.job)",
                "DROP CONSTRAINT holds",
                "DROP TABLE left_behind",
            ),
        ] {
            database.try_sql_as(&url, left).unwrap();
            let refused = Broker::open(database.url()).await.expect_err(left);
            assert_eq!(refused.code(), Code::STORE_FOREIGN, "{refused}");
            assert!(refused.message().contains(&name) && refused.message().contains(names), "{refused}");
            database.try_sql_as(&url, removed).unwrap();
        }
        // Of the owner of the broker, or of a superuser, both are allowed, and anything on tables that are not the broker's.
        database.sql(&format!("CREATE TABLE dialoq.own (id bigint PRIMARY KEY); GRANT ALL ON dialoq.own TO {name}"));
        let own = "CREATE TABLE of_own (id bigint REFERENCES dialoq.own);
             CREATE FUNCTION of_own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
             CREATE TRIGGER of_own AFTER INSERT ON dialoq.own FOR EACH ROW EXECUTE FUNCTION of_own()";
        database.try_sql_as(&url, own).unwrap();
        database.sql(
            "CREATE TABLE public.mine (job_id bigint REFERENCES dialoq.job);
             CREATE FUNCTION public.mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
             CREATE TRIGGER mine AFTER INSERT ON dialoq.job FOR EACH ROW EXECUTE FUNCTION public.mine()",
        );
        dialoq::install::install(database.url()).await.unwrap();
        assert_eq!(database.sql(&format!("SELECT has_table_privilege('{name}', 'dialoq.job', 'TRIGGER')")), "f");
    });
}

/// A common setup: the installer gives its applications all rights on whatever it makes. They could write the broker's tables.
pub(crate) fn default_privileges_give_no_right_on_the_broker(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let url = database.login("");
        let name = url.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
        for what in ["SCHEMAS", "TABLES", "SEQUENCES", "ROUTINES"] {
            database.sql(&format!("ALTER DEFAULT PRIVILEGES GRANT ALL ON {what} TO {name} WITH GRANT OPTION"));
        }
        let rights = format!(
            "SELECT coalesce(string_agg(DISTINCT concat(o.name, ' ', a.privilege_type), ', '), '') FROM (
                SELECT 'schema', nspacl FROM pg_namespace WHERE nspname = 'dialoq' AND has_schema_privilege('{name}', oid, 'CREATE')
                UNION ALL SELECT relname, relacl FROM pg_class WHERE relnamespace = 'dialoq'::regnamespace AND relname <> 'mine'
                UNION ALL SELECT proname, proacl FROM pg_proc WHERE pronamespace = 'dialoq'::regnamespace) AS o (name, acl)
            CROSS JOIN LATERAL aclexplode(o.acl) AS a WHERE a.grantee = '{name}'::regrole"
        );
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        assert_eq!(database.sql(&rights), "");

        // What an administrator grants stays at an upgrade, and so does what is not the broker's.
        database.sql(&format!(
            "GRANT ALL ON dialoq.sys_services, dialoq.job TO {name}; CREATE TABLE dialoq.mine (n integer);
             UPDATE dialoq.installed SET logic_hash = 'older'"
        ));
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        assert_eq!(database.sql(&rights), "job SELECT, sys_services SELECT");
        assert_eq!(database.sql(&format!("SELECT has_table_privilege('{name}', 'dialoq.mine', 'INSERT')")), "t");

        // A dump that was restored here has all these rights, and so has an installation before they were revoked.
        database.sql(&format!(
            "GRANT ALL ON ALL TABLES IN SCHEMA dialoq TO {name}; GRANT ALL ON ALL ROUTINES IN SCHEMA dialoq TO {name}"
        ));
        let user = Broker::open(&database.login("dialoq_user")).await.unwrap();
        let found = user.doctor().await.unwrap();
        let found = found.iter().find(|finding| finding.kind == FindingKind::ForeignPrivileges).unwrap();
        assert!(found.subject == name && found.amount > 200 && found.what.contains("EXECUTE, INSERT"), "{found:?}");
        user.close().await.unwrap();
        // Not by an opening: to take them away replaces all verbs, which open transactions may use.
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        assert_ne!(database.sql(&rights), "");
        assert!(!dialoq::install::install(database.url()).await.unwrap().is_empty());
        assert_eq!(database.sql(&rights), "");
        assert!(dialoq::install::plan(database.url()).await.unwrap().is_empty());

        // Each kind by itself, without default privileges: verbs for users stay.
        for what in ["SCHEMAS", "TABLES", "SEQUENCES", "ROUTINES"] {
            database.sql(&format!("ALTER DEFAULT PRIVILEGES REVOKE ALL ON {what} FROM {name}"));
        }
        for (granted, kept) in [
            ("ALL ON ALL SEQUENCES IN SCHEMA dialoq", ""),
            ("EXECUTE ON ALL FUNCTIONS IN SCHEMA dialoq", "push_job EXECUTE"),
            ("EXECUTE ON FUNCTION dialoq.raise_sequences()", "push_job EXECUTE"),
            ("INSERT ON dialoq.job", "push_job EXECUTE"),
            ("UPDATE (job_type) ON dialoq.job", "push_job EXECUTE"),
            ("INSERT ON dialoq.dead_letters", "push_job EXECUTE"),
        ] {
            let found = async || {
                let broker = Broker::open(database.url()).await.unwrap();
                let found = broker.doctor().await.unwrap();
                broker.close().await.unwrap();
                found.into_iter().filter(|finding| finding.kind == FindingKind::ForeignPrivileges).count()
            };
            database.sql(&format!("GRANT {granted} TO {name}"));
            assert_eq!(found().await, 1, "{granted}");
            assert!(!dialoq::install::install(database.url()).await.unwrap().is_empty(), "{granted}");
            assert_eq!(found().await, 0, "{granted}");
            let left = database.sql(&rights);
            assert!(left.contains(kept) && !left.contains("record_installation"), "{granted}: {left}");
            assert!(dialoq::install::plan(database.url()).await.unwrap().is_empty(), "{granted}");
        }
    });
}

/// `doctor` named no such login, and the pages said that no role but the owner touches a table.
pub(crate) fn a_login_that_may_write_all_tables_is_named(_: Store) {
    run(|| async {
        // The memberships are those of the whole server.
        let database = Database::on_a_server_of_its_own();
        if database.sql("SELECT count(*) FROM pg_roles WHERE rolname = 'pg_write_all_data'") == "0" {
            return;
        }
        let broker = Broker::open(database.url()).await.unwrap();
        let named = async || -> Vec<(FindingKind, String)> {
            broker.doctor().await.unwrap().into_iter().map(|finding| (finding.kind, finding.subject)).collect()
        };
        database.sql(
            "CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader;
             CREATE ROLE root LOGIN SUPERUSER; GRANT pg_write_all_data TO root;
             CREATE ROLE team; GRANT pg_write_all_data TO team",
        );
        assert_eq!(named().await, []);
        database.sql("CREATE ROLE writer LOGIN NOINHERIT; GRANT team TO writer");
        assert_eq!(named().await, [(FindingKind::DataWriters, "writer".to_owned())]);
        let finding = broker.doctor().await.unwrap().remove(0);
        assert!(finding.to_string().contains("'writer' is a member of pg_write_all_data"), "{finding}");
        // `install` cannot take this away, so it has nothing to do.
        assert!(dialoq::install::plan(database.url()).await.unwrap().is_empty());
        database.sql("REVOKE team FROM writer");
        assert_eq!(named().await, []);
        broker.close().await.unwrap();
    });
}

/// A batch has read a peer and not written yet, and the peer is erased: the recheck finds the messages that it writes then.
pub(crate) fn a_batch_that_stalls_before_it_writes_leaves_nothing_behind(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let broker = Broker::open_with(database.url(), OpenOptions::default()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        broker.send(dialog, "//t/Word", "a").await.unwrap();
        broker.close().await.unwrap();
        let (holder, sender, other) =
            (connect(database.url()).await, connect(database.url()).await, connect(database.url()).await);
        // Numbers of messages are given before the first row is written. The holder has no number of a transaction, which
        // would hold up tick by itself: it has used the sequence, and another session waits to change it.
        let number = "SELECT nextval('dialoq.queue_message_queuing_order_seq')";
        holder.batch_execute(number).await.unwrap();
        holder.batch_execute(&format!("BEGIN; {number}")).await.unwrap();
        let changer = connect(database.url()).await;
        let change = "BEGIN; ALTER SEQUENCE dialoq.queue_message_queuing_order_seq CACHE 1; ROLLBACK";
        let changing = tokio::spawn(async move { changer.batch_execute(change).await });
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let until = async |waiting: i64| {
            while other.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) < waiting {
                tokio::task::yield_now().await;
            }
        };
        until(1).await;
        let batch = format!(
            "SELECT count(*) FROM dialoq.send_batch(ARRAY['{0}']::uuid[], ARRAY['//t/Word'], ARRAY['b']::bytea[],
             ARRAY[NULL]::text[], ARRAY[''], ARRAY[NULL]::uuid[])",
            dialog.0
        );
        let sending = tokio::spawn(async move { sender.batch_execute(&batch).await });
        until(2).await;
        other
            .batch_execute(
                "SELECT dialoq.end_conversation(conversation_handle, p_cleanup => true)
                 FROM dialoq.conversation_endpoint WHERE NOT is_initiator AND NOT is_system",
            )
            .await
            .unwrap();
        // As if more than the time had passed that a statement usually needs.
        let settle = async || {
            other.batch_execute("UPDATE dialoq.recheck_queue SET noted_at = '2026-01-01'").await.unwrap();
            other.batch_execute("SELECT * FROM dialoq.tick(500)").await.unwrap();
        };
        for _ in 0..3 {
            settle().await;
        }
        holder.batch_execute("ROLLBACK").await.unwrap();
        changing.await.unwrap().unwrap();
        sending.await.unwrap().unwrap();
        // Transactions of other databases of the server may still hold up what was noted.
        let noted = "SELECT count(*) FROM dialoq.recheck_queue";
        while other.query_one(noted, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            settle().await;
        }
        let left = "SELECT count(*) FROM dialoq.queue_message AS m
            WHERE NOT EXISTS (SELECT FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = m.endpoint_id)";
        assert_eq!(database.sql(left), "0", "a message of an endpoint that is gone");
    });
}

pub(crate) fn plain_sql_names_queues_as_clients_do(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        for (made, same) in [("ÄUFTRÄGE", "ÄuftrÄge"), ("ΟΔΟΣ", "ΟΔΟΣ"), ("Orders", "ORDERS")] {
            broker.execute(&format!("CREATE QUEUE [{made}]")).await.unwrap();
            for name in [made, same] {
                broker.receive(name).await.unwrap_or_else(|error| panic!("{name}: {error}"));
                for verb in ["receive", "get_conversation_group", "post_queue_activation"] {
                    database.sql(&format!("SELECT dialoq.{verb}('{name}')"));
                }
                database.sql(&format!("SELECT dialoq.receive_batch('{name}', ARRAY[1])"));
            }
        }
        broker.close().await.unwrap();
    });
}

/// The roles are the server's: what `docs/security.md` says of two applications in two databases.
pub(crate) fn the_right_to_connect_keeps_a_member_out_of_another_database(store: Store) {
    run(|| async move {
        let (own, other) = (Database::fresh(store), Database::fresh(store));
        for database in [&own, &other] {
            Broker::open(database.url()).await.unwrap().close().await.unwrap();
        }
        let user = own.login("dialoq_user");
        let [here, there] = [&own, &other].map(|database| format!("/{}", database.sql("SELECT current_database()")));
        let (place, rest) = user.rsplit_once(&here).unwrap();
        let there = format!("{place}{there}{rest}");
        Broker::open(&there).await.expect("nothing keeps it out").close().await.unwrap();
        other
            .sql("DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database()); END $$");
        assert_eq!(Broker::open(&there).await.unwrap_err().code(), Code::ACCESS_DENIED);
        Broker::open(&user).await.unwrap().close().await.unwrap();
    });
}

/// A wait that ends before the server looks for deadlocks would hide every deadlock.
pub(crate) fn a_wait_for_a_group_lasts_longer_than_the_search_for_deadlocks(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        let client = connect(database.url()).await;
        for (timeout, wait) in [("30ms", 15_000), ("20s", 40_000), ("1h", 7_200_000), ("2147483647ms", 2_147_483_647)] {
            client.batch_execute(&format!("SET deadlock_timeout = '{timeout}'")).await.unwrap();
            let interval = "SELECT dialoq.holder_check_interval()::bigint";
            assert_eq!(client.query_one(interval, &[]).await.unwrap().get::<_, i64>(0), wait, "{timeout}");
        }
    });
}
