//! A transaction that is lost under `dialoq work push` and `dialoq send`: the session of the server ends at one line.

use crate::servers::{Database, Store};
use crate::shop::{SEND_ORDER, SHOP, Shop};

/// A broker on a server with the definitions of the shop and the work queue `emails`, whose session ends when it stores `end` in
/// that table; nothing if no server is here.
fn that_ends_at(table: &str) -> Option<(Shop, Database)> {
    Store::Postgres.why_missing().is_none().then(|| {
        let (shop, database) = (Shop::empty(), Database::bare(Store::Postgres));
        shop.ok(&["--db", database.url(), "install"]);
        let script = format!("{SHOP}CREATE WORK QUEUE emails;");
        shop.ok_with(&["--db", database.url(), "apply", "-"], script.as_bytes());
        database.sql(&format!(
            "CREATE FUNCTION public.end_session() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
             CREATE TRIGGER ends AFTER INSERT ON {table} FOR EACH ROW WHEN (NEW.body = 'end'::bytea)
             EXECUTE FUNCTION public.end_session()"
        ));
        (shop, database)
    })
}

#[test]
fn a_push_whose_connection_is_lost_names_the_cause_the_lines_and_what_was_pushed() {
    let _limit = crate::limit();
    let Some((shop, database)) = that_ends_at("dialoq.job") else { return };
    let mut lines: String = (0..1500).map(|line| format!("{line}\n")).collect();
    lines.push_str("end\nnever\n");
    let arguments = ["--db", database.url(), "--json", "work", "push", "emails"];
    let error = shop.fails_with(1, &arguments, lines.as_bytes());
    let error: serde_json::Value = serde_json::from_str(&error).unwrap();
    let (error, pushed) = (&error["error"], database.sql("SELECT count(*) FROM dialoq.job"));
    assert_eq!((&error["code"], &error["is_retryable"]), (&60030.into(), &true.into()), "{error}");
    let message = error["message"].as_str().unwrap();
    let pushed: u64 = pushed.parse().unwrap();
    assert!(pushed > 0, "no commit has more than 1000 lines; {error}");
    let fate = match pushed {
        1500 => "line 1501 was not pushed: ".to_owned(),
        _ => format!("nothing from line {} to line 1501 was pushed: ", pushed + 1),
    };
    assert!(
        message.starts_with(&fate) && message.ends_with(&format!("; {pushed} jobs were pushed before")),
        "{message}"
    );
}

#[test]
fn a_send_whose_connection_is_lost_calls_no_message_refused() {
    let _limit = crate::limit();
    let Some((shop, database)) = that_ends_at("dialoq.queue_message") else { return };
    let mut lines: String = (0..1000).map(|line| format!("{{\"body\":\"{line}\"}}\n")).collect();
    lines.push_str("{\"body\":\"a\"}\n{\"body\":\"end\"}\n{\"body\":\"never\"}\n");
    for more in [&["--dialog-per-message", "--keep-going"][..], &["--dialog-per-message"], &["--keep-going"], &[]] {
        database.sql("DELETE FROM dialoq.queue_message");
        let arguments = [&["--db", database.url()], SEND_ORDER, more].concat();
        let error = shop.fails_with(1, &arguments, lines.as_bytes());
        let sent: u64 = database.sql("SELECT count(*) FROM dialoq.queue_message").parse().unwrap();
        assert!(error.starts_with("error[60030]: ") && !error.contains("refused"), "{more:?}, {sent} sent: {error}");
        assert!(sent > 0, "no commit has more than 1000 messages; {more:?}: {error}");
        let message = error.lines().next().unwrap();
        let fates = [format!("line {} was not sent: ", sent + 1), format!("nothing from line {} to line ", sent + 1)];
        let is_named = fates.iter().any(|fate| message.starts_with(&format!("error[60030]: {fate}")));
        assert!(is_named, "{more:?}: {error}");
        assert!(message.ends_with(&format!("; {sent} messages were sent before")), "{more:?}: {error}");
    }
}

#[test]
fn a_change_of_many_whose_connection_is_lost_says_how_much_was_done() {
    let _limit = crate::limit();
    let Some((shop, database)) = that_ends_at("dialoq.job") else { return };
    database.sql(
        "CREATE TRIGGER ends_too AFTER DELETE ON dialoq.job FOR EACH ROW WHEN (OLD.job_type = 'end') EXECUTE FUNCTION public.end_session()",
    );
    let lines: String = (0..6000).map(|line| format!("{line}\n")).collect();
    shop.ok_with(&["--db", database.url(), "work", "push", "emails"], lines.as_bytes());
    shop.ok(&["--db", database.url(), "work", "push", "emails", "--type", "end", "x"]);
    let error = shop.fails(1, &["--db", database.url(), "work", "cancel", "emails", "--yes"]);
    let left: u64 = database.sql("SELECT count(*) FROM dialoq.job").parse().unwrap();
    assert!((1..6001).contains(&left), "{left}");
    let done = format!("]: cancelled {} jobs, then: ", 6001 - left);
    assert!(error.starts_with("error[6003") && error.contains(&done), "{error}");
    let error = shop.fails(1, &["--db", database.url(), "work", "cancel", "--job", "6001", "--yes"]);
    assert!(error.starts_with("error[6003") && !error.contains("cancelled 0"), "{error}");
}
