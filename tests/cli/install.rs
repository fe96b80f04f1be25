//! `dialoq install` and `dialoq uninstall`, and what the roles allow.

use crate::servers::{Database, Store};
use crate::shop::{SEND_ORDER, SHOP, Shop};
use serde_json::Value;

/// A database without a broker; nothing if no server is here, which the tests of every store tell.
fn bare() -> Option<(Shop, Database)> {
    Store::Postgres.why_missing().is_none().then(|| (Shop::empty(), Database::bare(Store::Postgres)))
}

/// What a command prints as JSON for that database.
fn json(shop: &Shop, database: &str, arguments: &[&str]) -> Value {
    shop.json(&[&["--db", database, "--json"], arguments].concat()).remove(0)
}

fn names(steps: &Value) -> Vec<&str> {
    steps.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

#[test]
fn an_installation_is_done_once_and_can_be_taken_out_again() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let url = database.url();
    let would = json(&shop, url, &["install", "--dry-run"]);
    let would = names(&would["would_run"]);
    assert_eq!(would.first(), Some(&"schema/0001_broker.sql"));
    assert_eq!(would.last(), Some(&"roles.sql"), "rights are given on what is there by then");
    assert_eq!(database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'dialoq'"), "0", "nothing was done");
    let texts = shop.ok(&["--db", url, "install", "--dry-run", "--sql"]);
    assert!(texts.contains("CREATE TABLE dialoq.broker"));
    // What is printed is whole: run by hand, it leaves nothing to do.
    let by_hand = Database::bare(Store::Postgres);
    by_hand.sql(&texts);
    assert!(shop.ok(&["--db", by_hand.url(), "install", "--dry-run", "--sql"]).contains("nothing to do"));
    shop.ok_with(&["--db", by_hand.url(), "apply", "-"], SHOP.as_bytes());
    by_hand.sql("UPDATE dialoq.installed SET logic_hash = 'another', installed_by = 'dialoq 0.0.1'");
    let upgrade = shop.ok(&["--db", by_hand.url(), "install", "--dry-run", "--sql"]);
    by_hand.sql(&upgrade);
    assert!(shop.ok(&["--db", by_hand.url(), "install"]).contains("nothing to do"));

    database.sql("CREATE TABLE mine (id integer)");
    let ran = json(&shop, url, &["install"]);
    assert_eq!(names(&ran["ran"]), would);
    assert_eq!(database.sql("SELECT count(*) FROM dialoq.broker"), "1");
    assert_eq!(database.sql("SELECT count(*) FROM dialoq.sys_service_message_types"), "5", "what is built in is there");
    for arguments in [&["install"][..], &["install", "--dry-run"]] {
        assert!(shop.ok(&[&["--db", url], arguments].concat()).contains("nothing to do"));
    }

    let refused = shop.fails(1, &["--db", url, "uninstall"]);
    assert!(refused.contains("messages and jobs") && refused.contains("--yes"), "{refused}");
    assert_eq!(json(&shop, url, &["uninstall", "--yes"])["uninstalled"], true);
    assert_eq!(database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'dialoq'"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM mine"), "0", "the application's tables stay");
    assert_eq!(json(&shop, url, &["uninstall", "--yes"])["uninstalled"], false);
    let installed = shop.ok(&["--db", url, "install"]);
    assert!(installed.contains("GRANT dialoq_user TO name"), "what is needed next: {installed}");
}

#[test]
fn plain_sql_has_its_comments_and_its_texts() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    shop.ok(&["--db", database.url(), "install"]);
    let marked = |of: &str, pattern: &str| {
        database.sql(&format!(
            "SELECT count(*) > 10 AND bool_and(coalesce(obj_description(p.oid, 'pg_proc'), '') ~ '{pattern}') FROM pg_proc AS p
             WHERE p.pronamespace = 'dialoq'::regnamespace AND {of}"
        ))
    };
    let is_for_users = "has_function_privilege('dialoq_admin', p.oid, 'EXECUTE')";
    assert_eq!(marked(is_for_users, "^Dialoq: .{25}"), "t", "each routine for users says what it is for");
    let of_plain_sql = "p.proname IN ('send', 'send_json', 'receive', 'begin_dialog_conversation', 'end_conversation', 'take_jobs', 'push_job', 'complete_job', 'fail_job', 'tick', 'error_of')";
    assert_eq!(marked(of_plain_sql, "^Dialoq: [^(]"), "t", "those that people call are marked");
    let of_clients = "has_function_privilege('dialoq_admin', p.oid, 'EXECUTE') AND p.proname ~ '^(send|receive|begin|end|claim)_batch$|^put_|^on_'";
    assert_eq!(marked(of_clients, "^Dialoq: .client. "), "t");
    assert_eq!(marked(&format!("NOT {is_for_users}"), "^Dialoq$"), "t", "internal ones are marked only");
    // What is commented is known to be the broker's: it goes and comes with the next installation.
    database.sql("UPDATE dialoq.installed SET logic_hash = 'another', installed_by = 'dialoq 0.0.1'");
    shop.ok(&["--db", database.url(), "install"]);
    assert_eq!(marked(is_for_users, "^Dialoq: .{25}"), "t");

    shop.ok_with(&["--db", database.url(), "apply", "-"], SHOP.as_bytes());
    let handle = database.sql(
        "SELECT conversation_handle FROM dialoq.begin_dialog_conversation('//shop/Checkout', '//shop/OrderService', NULL, \
         '//shop/Orders')",
    );
    database.sql(&format!("SELECT message_id FROM dialoq.send_text('{handle}', '//shop/PlaceOrder', 'grün 🚚')"));
    database
        .sql(&format!("SELECT message_id FROM dialoq.send_json('{handle}', '//shop/PlaceOrder', '{{\"a\":[1, 2]}}')"));
    let received = "SELECT string_agg(convert_from(message_body, 'UTF8'), '|') FROM dialoq.receive('orders', 10)";
    assert_eq!(database.sql(received), "grün 🚚|{\"a\": [1, 2]}");
    let target = database
        .sql("SELECT conversation_handle FROM dialoq.sys_conversation_endpoints WHERE NOT is_initiator::boolean");
    database.sql(&format!("SELECT notices FROM dialoq.end_conversation('{target}', 42, '<no> stöck & 🚚')"));
    let read = "SELECT e.code || ': ' || e.description FROM dialoq.receive('checkout') AS r, dialoq.error_of(r.message_body) AS e";
    assert_eq!(database.sql(read), "42: <no> stöck & 🚚");
    for none in
        ["NULL", "''", "'\\x00'", "'\\xfffe00'", "'\\xfffe00d8'", "'\\xfffe3c00'", "decode(repeat('fe', 70000), 'hex')"]
    {
        let sql = format!("SELECT code IS NULL AND description IS NULL FROM dialoq.error_of({none}::bytea)");
        assert_eq!(database.sql(&sql), "t", "{none}");
    }
}

#[test]
fn of_many_installers_one_installs() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let installers: Vec<_> = (0..6).map(|_| shop.start(&["--db", database.url(), "--json", "install"])).collect();
    let mut ran = 0;
    for mut installer in installers {
        let line = installer.line();
        let (code, error) = installer.end();
        assert_eq!(code, Some(0), "{error}");
        let answer: Value = serde_json::from_str(&line).unwrap();
        ran += usize::from(!names(&answer["ran"]).is_empty());
    }
    assert_eq!(ran, 1);
    assert_eq!(database.sql("SELECT count(*) FROM dialoq.installed"), "1");
}

#[test]
fn logic_that_differs_is_replaced_unless_it_is_newer() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let url = database.url();
    shop.ok(&["--db", url, "install"]);
    let guid = database.sql("SELECT service_broker_guid FROM dialoq.broker");
    let there =
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'dialoq'::regnamespace AND proname = 'notify_processes'";
    database.sql(
        "DROP FUNCTION dialoq.notify_processes; UPDATE dialoq.installed SET logic_hash = 'another', installed_by = 'dialoq 0.0.1'",
    );
    let ran = json(&shop, url, &["install"]);
    let ran = names(&ran["ran"]);
    assert!(ran.iter().all(|name| !name.starts_with("schema/")), "{ran:?}");
    assert_eq!(database.sql(there), "1");
    assert_eq!(database.sql("SELECT service_broker_guid FROM dialoq.broker"), guid, "the broker is the same");

    database.sql(
        "DROP FUNCTION dialoq.notify_processes; UPDATE dialoq.installed SET logic_hash = 'newer', installed_by = 'dialoq 999.0.0'",
    );
    assert!(shop.ok(&["--db", url, "install"]).contains("nothing to do"));
    assert_eq!(database.sql(there), "0");
}

#[test]
fn a_newer_foreign_or_damaged_schema_is_left_alone() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let url = database.url();
    shop.ok(&["--db", url, "install"]);
    database.sql("UPDATE dialoq.installed SET schema_version = 99");
    let refused = shop.fails(1, &["--db", url, "install"]);
    assert!(refused.contains("60013") && refused.contains("99"), "{refused}");
    database.sql("DELETE FROM dialoq.installed");
    let refused = shop.fails(1, &["--db", url, "install"]);
    assert!(refused.contains("60035"), "{refused}");

    let foreign = Database::bare(Store::Postgres);
    foreign.sql("CREATE SCHEMA dialoq; CREATE TABLE dialoq.theirs (id integer)");
    for command in [&["install"][..], &["uninstall", "--yes"]] {
        let refused = shop.fails(1, &[&["--db", foreign.url()], command].concat());
        assert!(refused.contains("60011"), "{refused}");
    }
    assert_eq!(foreign.sql("SELECT count(*) FROM dialoq.theirs"), "0");
}

#[test]
fn an_installation_without_rights_names_the_missing_right() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let user = database.login("");
    let refused = shop.fails(1, &["--db", &user, "install"]);
    for part in ["60034", "CREATE on the database", "dialoq install --db postgres://"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    // Once another user has installed it, there is nothing to do; but this user may not use it.
    shop.ok(&["--db", database.url(), "install"]);
    let refused = shop.fails(1, &["--db", &user, "install"]);
    assert!(refused.contains("60034") && refused.contains("dialoq_user"), "{refused}");
    let member = database.login("dialoq_user");
    assert!(shop.ok(&["--db", &member, "install"]).contains("nothing to do"));
    let refused = shop.fails(1, &["--db", &member, "uninstall", "--yes"]);
    for part in ["60034", "owner of schema dialoq", "dialoq uninstall --db postgres://"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert!(!refused.contains("earlier version"), "it is this version: {refused}");
}

#[test]
fn a_user_executes_verbs_and_reads_views_and_nothing_else() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    shop.ok(&["--db", database.url(), "install"]);
    let (user, admin) = (database.login("dialoq_user"), database.login("dialoq_admin"));
    let refused = |url: &str, text: &str| {
        let why = database.try_sql_as(url, text).expect_err(text);
        assert!(why.contains("permission denied"), "{text}: {why}");
    };
    let tables = database.sql(
        "SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = 'dialoq'::regnamespace AND relkind = 'r'",
    );
    for table in tables.split(' ').filter(|table| *table != "installed") {
        refused(&user, &format!("SELECT FROM dialoq.{table}"));
        refused(&admin, &format!("SELECT FROM dialoq.{table}"));
    }
    for text in [
        "INSERT INTO dialoq.installed SELECT * FROM dialoq.installed",
        "DELETE FROM dialoq.queue_message",
        "CREATE TABLE dialoq.mine (id integer)",
        "SELECT dialoq.erase(1)",
        "SELECT dialoq.record_installation(1, '', '', 1)",
        "DELETE FROM dialoq.sys_services",
    ] {
        refused(&user, text);
        refused(&admin, text);
    }
    // A clock that stands stops every timer and lifetime; it is for tests, which connect as the owner.
    refused(&admin, "SELECT dialoq.set_manual_now(now())");
    for text in ["SELECT dialoq.define_begin(1)", "SELECT dialoq.delete_service(1)"] {
        refused(&user, text);
        assert!(database.try_sql_as(&admin, text).is_ok(), "{text}");
    }
    let views = database.sql(
        "SELECT string_agg(relname, ' ') FROM pg_class WHERE relnamespace = 'dialoq'::regnamespace AND relkind = 'v'",
    );
    assert!(views.contains("sys_conversation_endpoints"), "{views}");
    for view in views.split(' ') {
        database.try_sql_as(&user, &format!("SELECT * FROM dialoq.{view}")).unwrap();
    }
    let unknown = database.try_sql_as(&user, "SELECT dialoq.get_conversation_group('nowhere')").unwrap_err();
    assert!(!unknown.contains("permission denied"), "the verb itself refuses: {unknown}");
}

#[test]
fn a_user_sends_and_receives_but_does_not_define() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let (user, admin) = {
        shop.ok(&["--db", database.url(), "install"]);
        (database.login("dialoq_user"), database.login("dialoq_admin"))
    };
    let refused = shop.fails_with(1, &["--db", &user, "apply", "-"], SHOP.as_bytes());
    assert!(refused.contains("60034") && refused.contains("grants dialoq_admin"), "{refused}");
    assert_eq!(database.sql("SELECT count(*) FROM dialoq.sys_service_queues"), "0", "nothing of it was made");
    shop.ok_with(&["--db", &admin, "apply", "-"], SHOP.as_bytes());
    shop.ok(&[&["--db", &user], SEND_ORDER, &["one", "two"]].concat());
    let status = json(&shop, &user, &["status"]);
    let orders = status["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == "orders").unwrap();
    assert_eq!(orders["levels"][0]["messages"], 2, "{status}");
    assert_eq!(status["service_broker_guid"], database.sql("SELECT service_broker_guid FROM dialoq.broker"));
    let received = shop.json(&["--db", &user, "--json", "receive", "orders"]);
    assert_eq!(received[0]["body"], "one", "{received:?}");
    assert!(shop.ok(&["--db", &user, "dump"]).contains("//shop/OrderService"));
}

/// A function that every user may execute, and that runs with its owner's rights, must not follow the caller's search path.
#[test]
fn a_users_search_path_does_not_change_the_owners_functions() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    shop.ok(&["--db", database.url(), "install"]);
    let open = database.sql(
        "SELECT coalesce(string_agg(proname, ' '), '') FROM pg_proc
         WHERE pronamespace = 'dialoq'::regnamespace AND prosecdef
             AND NOT coalesce(array_to_string(proconfig, ' '), '') LIKE '%search_path=%pg_temp%'",
    );
    assert_eq!(open, "", "SECURITY DEFINER without a search_path of its own");
    let granted = database.sql(
        "SELECT coalesce(string_agg(proname, ' '), '') FROM pg_proc
         WHERE pronamespace = 'dialoq'::regnamespace AND has_function_privilege('dialoq_user', oid, 'EXECUTE')
             AND NOT prosecdef",
    );
    assert_eq!(granted, "", "a verb that runs with the caller's rights can do nothing");
}

#[test]
fn an_extension_in_the_schema_is_neither_lost_nor_left_behind() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let url = database.url();
    // PostgreSQL's own packages bring both: hstore can be moved, xml2 cannot.
    for name in ["hstore", "xml2"] {
        let here = format!("SELECT count(*) FROM pg_available_extensions WHERE name = '{name}'");
        if database.sql(&here) == "0" {
            eprintln!("skipped: an extension in the schema (this PostgreSQL has no {name})");
            return;
        }
    }
    shop.ok(&["--db", url, "install"]);
    // As a user named dialoq gets them there.
    database.sql("SET search_path = dialoq; CREATE EXTENSION hstore; CREATE EXTENSION xml2");
    database.sql("UPDATE dialoq.installed SET logic_hash = 'another', installed_by = 'dialoq 0.0.1'");
    shop.ok(&["--db", url, "install"]);
    let used = "SELECT 'a=>1'::dialoq.hstore OPERATOR(dialoq.->) 'a'";
    assert_eq!(database.sql(used), "1", "logic is replaced around it");

    let objects = "SELECT count(*) FROM pg_depend
        WHERE refclassid = 'pg_namespace'::regclass AND refobjid = 'dialoq'::regnamespace";
    let before = database.sql(objects);
    let refused = shop.fails(1, &["--db", url, "uninstall", "--yes"]);
    for part in ["error[3716]", "hstore, xml2", "ALTER EXTENSION hstore SET SCHEMA", "DROP EXTENSION xml2"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(database.sql(objects), before, "nothing was removed");
    assert!(shop.ok(&["--db", url, "install"]).contains("nothing to do"));
    database.sql("ALTER EXTENSION hstore SET SCHEMA public; DROP EXTENSION xml2");
    assert_eq!(json(&shop, url, &["uninstall", "--yes"])["uninstalled"], true);
    assert_eq!(database.sql("SELECT 'a=>1'::hstore -> 'a'"), "1");
}

#[test]
fn dependent_objects_prevent_replacement_and_removal() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let url = database.url();
    shop.ok(&["--db", url, "install"]);
    database.sql("CREATE VIEW public.mine AS SELECT name FROM dialoq.sys_services");
    database.sql("UPDATE dialoq.installed SET logic_hash = 'another', installed_by = 'dialoq 0.0.1'");
    for command in [&["install"][..], &["uninstall", "--yes"]] {
        let refused = shop.fails(1, &[&["--db", url], command].concat());
        assert!(refused.contains("error[3716]") && refused.contains("view public.mine"), "{refused}");
        assert!(refused.len() < 2000, "{refused}");
    }
    assert_eq!(database.sql("SELECT count(*) > 0 FROM public.mine"), "t");
    database.sql("DROP VIEW public.mine");
    shop.ok(&["--db", url, "install"]);
    assert_eq!(json(&shop, url, &["uninstall", "--yes"])["uninstalled"], true);
}

#[test]
fn objects_of_a_user_named_dialoq_stay_his() {
    let _limit = crate::limit();
    let Some((shop, database)) = bare() else { return };
    let url = database.url();
    shop.ok(&["--db", url, "install"]);
    // His search path leads there first.
    database.sql(
        "SET search_path = dialoq; CREATE TABLE mine (id integer); INSERT INTO mine VALUES (7);
         CREATE VIEW seen AS SELECT id FROM mine; CREATE FUNCTION seven() RETURNS integer LANGUAGE sql AS 'SELECT 7'",
    );
    let stands = || {
        assert_eq!(database.sql("SELECT id + dialoq.seven() FROM dialoq.seen"), "14");
        let granted = "SELECT has_table_privilege('dialoq_user', 'dialoq.seen', 'SELECT')";
        assert_eq!(database.sql(granted), "f", "what he did not give others they have not");
    };
    for installer in ["dialoq 0.0.1", "dialoq 0.0.2"] {
        database.sql(&format!("UPDATE dialoq.installed SET logic_hash = 'another', installed_by = '{installer}'"));
        assert!(!names(&json(&shop, url, &["install"])["ran"]).is_empty());
        stands();
    }
    let refused = shop.fails(1, &["--db", url, "uninstall", "--yes"]);
    for part in ["error[3716]", "table dialoq.mine", "view dialoq.seen", "function dialoq.seven()", "SET SCHEMA"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert!(!refused.contains("sys_services") && !refused.contains("broker,"), "nothing of ours is named: {refused}");
    stands();
    database.sql(
        "ALTER TABLE dialoq.mine SET SCHEMA public; ALTER VIEW dialoq.seen SET SCHEMA public;
         ALTER FUNCTION dialoq.seven() SET SCHEMA public",
    );
    assert_eq!(json(&shop, url, &["uninstall", "--yes"])["uninstalled"], true);
    assert_eq!(database.sql("SELECT id + seven() FROM seen"), "14");
}
