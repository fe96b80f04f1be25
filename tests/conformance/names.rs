//! Hostile names through every door: definitions, conversations, messages, views.

use crate::rig::{Text, code};
use dialoq::Level;

/// Names that break what splices, folds or cuts them; each is legal.
fn hostile() -> Vec<String> {
    let mut names: Vec<String> = [
        "it's",
        "quo\"te",
        "br[ack]et",
        "]]",
        "[",
        "semi;colon",
        "-- comment",
        "/* open",
        "GO",
        "SELECT",
        "a b\tc",
        "100%_?*",
        "back\\slash",
        "new\nline",
        "🚚📦",
        "Ünïcödé",
        "İıſß",
        "\u{202e}rtl",
        "null",
        "'; DROP TABLE x; --",
        "//shop/Order?x=1&y=2",
        "{}",
        "{0}",
        "$1",
        ":name",
        "@h",
        "#hash",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(128));
    names.push("🚚".repeat(128));
    names
}

fn bracketed(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

fn quoted(name: &str) -> String {
    name.replace('\'', "''")
}

case!(hostile_names_work_everywhere, [4, 5, 6], async |t| {
    for name in hostile() {
        // A queue may not begin with #.
        let queue = if name.starts_with('#') { format!("q{name}") } else { name.clone() };
        let (n, q, literal) = (bracketed(&name), bracketed(&queue), quoted(&name));
        t.define(&format!(
            "CREATE MESSAGE TYPE {n} VALIDATION = NONE;
             CREATE CONTRACT {n} ({n} SENT BY ANY);
             CREATE QUEUE {q};
             CREATE SERVICE {n} ON QUEUE {q} ({n});
             CREATE BROKER PRIORITY {n} FOR CONVERSATION
                SET (CONTRACT_NAME = {n}, LOCAL_SERVICE_NAME = {n}, REMOTE_SERVICE_NAME = '{literal}', PRIORITY_LEVEL = 7)"
        ))
        .await
        .unwrap_or_else(|error| panic!("{name:?}: {error}"));
        let dialog = t.begin_dialog(t.to(&name).from(&name).on(&name)).await?.handle;
        t.send(dialog, &name, &name).await?;
        let received = t.receive(&queue).await?;
        assert_eq!(received.texts(), std::slice::from_ref(&name), "{name:?}");
        assert_eq!(
            (
                &*received[0].service_name,
                &*received[0].service_contract_name,
                &*received[0].message_type_name,
                received[0].priority
            ),
            (&*name, &*name, &*name, 7)
        );
        t.end_with_error(received[0].conversation_handle, 1, &name).await?;
        assert_eq!(t.receive_from(&queue, dialog).await?.error_codes(), [1]);
        t.end(dialog).await?;
        for (view, found) in [
            ("service_message_types", &name),
            ("service_contracts", &name),
            ("services", &name),
            ("service_queues", &queue),
            ("conversation_priorities", &name),
        ] {
            assert!(t.view(view).await?.iter().any(|row| row.text("name") == *found), "{name:?} in {view}");
        }
    }
    // All of them at once survive a restart, and go again.
    let t = t.restart().await?;
    for name in hostile() {
        let queue = if name.starts_with('#') { format!("q{name}") } else { name.clone() };
        let (n, q) = (bracketed(&name), bracketed(&queue));
        t.define(&format!(
            "DROP BROKER PRIORITY {n}; DROP SERVICE {n}; DROP QUEUE {q}; DROP CONTRACT {n}; DROP MESSAGE TYPE {n}"
        ))
        .await?;
    }
});

case!(hostile_names_by_builder_and_dump, [4, 5, 6], async |t| {
    let names: Vec<String> = hostile().into_iter().filter(|name| !name.starts_with('#')).collect();
    t.broker
        .define(|d| {
            for name in &names {
                d.message_type(name);
                d.contract(name).sent_by_any(name);
                d.queue(name);
                d.service(name, name, [name.as_str()]);
                d.broker_priority(name).contract(name).local_service(name).remote_service(name).level(Level::new(9));
            }
        })
        .await?;
    let dump = t.broker.dump();
    for name in &names {
        let dialog = t.begin_dialog(t.to(name).from(name).on(name)).await?.handle;
        t.send(dialog, name, name).await?;
        let received = t.receive(name).await?;
        assert_eq!((received.texts(), received[0].priority), (vec![name.clone()], 9), "{name:?}");
    }
    // What is dumped makes the same again, in a broker that has nothing yet.
    let other = t.bare().await?;
    other.define(&dump).await?;
    assert_eq!(other.broker.dump(), dump);
    for name in &names {
        let dialog = other.begin_dialog(other.to(name).from(name).on(name)).await?.handle;
        other.send(dialog, name, name).await?;
        assert_eq!(other.receive(name).await?.texts(), std::slice::from_ref(name));
    }
});

case!(queue_names_fold_a_to_z_and_nothing_else, [4], async |t| {
    for (made, same, other) in
        [("ÄUFTRÄGE", "ÄuftrÄge", "äufträge"), ("ΟΔΟΣ", "ΟΔΟΣ", "οδος"), ("İstan", "İSTAN", "istan")]
    {
        t.define(&format!("CREATE QUEUE [{made}]")).await?;
        for name in [made, same] {
            assert!(t.receive(name).await?.is_empty(), "{name} is {made}");
        }
        assert_eq!(code(t.receive(other).await), 60002, "{other} is not {made}");
        // Another queue may have the name that differs in such a letter only.
        t.define(&format!("CREATE QUEUE [{other}]")).await?;
    }
});

case!(names_that_are_refused, [4, 35], async |t| {
    let before = t.view("service_message_types").await?.len();
    for name in [String::new(), "x".repeat(129), "🚚".repeat(129)] {
        for statement in [
            format!("CREATE MESSAGE TYPE [{name}]"),
            format!("CREATE CONTRACT [{name}] ([Text] SENT BY ANY)"),
            format!("CREATE QUEUE [{name}]"),
            format!("CREATE SERVICE [{name}] ON QUEUE [QT]"),
            format!("CREATE BROKER PRIORITY [{name}] FOR CONVERSATION"),
        ] {
            let refused = code(t.define(&statement).await);
            assert!([60003, 60004].contains(&refused), "{statement}: {refused}");
        }
    }
    for statement in [
        "CREATE MESSAGE TYPE [Text]",
        "CREATE CONTRACT [C] ([Text] SENT BY ANY)",
        "CREATE QUEUE [qi]",
        "CREATE SERVICE [I] ON QUEUE [QT]",
    ] {
        assert_eq!(code(t.define(statement).await), 60001, "{statement}");
    }
    assert_eq!(t.view("service_message_types").await?.len(), before);
});

case!(scripts_are_applied_whole_or_not_at_all, [1], async |t| {
    let mut script: String = (1..=9).map(|number| format!("CREATE MESSAGE TYPE [M{number}];\n")).collect();
    script.push_str("CREATE CONTRACT [Broken] ([Nowhere] SENT BY ANY);\nCREATE MESSAGE TYPE [M11];");
    let error = t.define(&script).await.expect_err("the tenth statement is wrong");
    assert_eq!(error.position().map(|position| position.line), Some(10), "{error}");
    let types = t.view("service_message_types").await?;
    assert!(!types.iter().any(|row| row.text("name").starts_with('M')));
});

case!(nul_is_refused_alike, [4, 35], async |t| {
    let nul = "a\0b";
    let dialog = t.dialog().await?;
    let tx = t.begin().await?;
    for refused in [
        (code(t.begin_dialog(t.to(nul)).await), 8412),
        (code(t.begin_dialog(t.to_target().from(nul)).await), 60003),
        (code(t.begin_dialog(t.to_target().on(nul)).await), 60003),
        (code(t.send(dialog, nul, "x").await), 60003),
        (code(t.receive(nul).await), 60003),
        (code(t.end_with_error(dialog, 1, nul).await), 60005),
        (code(tx.send(dialog, nul, "x").await), 60003),
        (code(tx.receive(nul).await), 60003),
        (code(tx.end_with_error(dialog, 1, nul).await), 60005),
    ] {
        assert_eq!(refused.0, refused.1);
    }
    for (trace, is_refused) in [("x".repeat(64 << 10), false), ("x".repeat((64 << 10) + 1), true), (nul.into(), true)] {
        let sent = dialoq::act::within_trace(trace, async { t.send(dialog, "Text", "traced").await }).await;
        assert_eq!(sent.err().map(|error| error.code().0), is_refused.then_some(60005));
    }
    assert_eq!(t.receive("QT").await?.texts(), ["traced"]);
    // The transaction goes on.
    tx.send(dialog, "Text", "a\0b").await?;
    tx.commit().await?;
    assert_eq!(t.receive("QT").await?.texts(), [nul], "a body may hold it");
    for define in [
        t.broker
            .define(|d| {
                d.message_type(nul);
            })
            .await,
        t.broker
            .define(|d| {
                d.queue(nul);
            })
            .await,
        t.broker
            .define(|d| {
                d.service(nul, "QT", ["C"]);
            })
            .await,
    ] {
        assert_eq!(code(define), 60003);
    }
});
