//! The methods of the operators' commands: what is shown, explained and changed by hand.

use crate::rig::{Text, code};
use dialoq::define::DefinitionChangeKind;
use dialoq::protocol::{EndForm, system};
use dialoq::status::{ConversationFilter, FindingKind, MessageFilter, MessageState, OffBy, ReasonKind, SubjectKind};
use dialoq::{Act, GroupId, Level};
use std::time::Duration;

fn all() -> MessageFilter {
    MessageFilter::default()
}

case!(a_peek_receives_nothing, [284], async |t| {
    let first = t.dialog().await?;
    t.send(first, "Text", "one").await?;
    t.send(first, "Text", "two").await?;
    let second = t.dialog().await?;
    t.send(second, "Text", "three").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive("QT").await?.texts(), ["one", "two"]);
    // Held by a session, and off: both are seen.
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    let seen = t.broker.peek("qt", &all(), 10, 2).await?;
    assert_eq!((&*seen.queue, seen.is_receive_enabled, seen.has_more), ("QT", false, false));
    assert_eq!(seen.off.as_ref().map(|off| (off.since, off.by)), Some((t.now(), OffBy::Statement)));
    let bodies: Vec<_> = seen.messages.iter().map(|message| (&*message.body.bytes, message.body.length)).collect();
    assert_eq!(bodies, [(&b"on"[..], 3), (b"tw", 3), (b"th", 5)]);
    assert!(seen.messages.iter().all(|message| message.state == MessageState::Waiting), "{seen:?}");
    assert!(t.broker.peek("QT", &all(), 2, 0).await?.has_more);
    let of_second = MessageFilter { conversation: Some(seen.messages[2].conversation_handle), ..all() };
    assert_eq!(t.broker.peek("QT", &of_second, 10, 9).await?.messages.len(), 1);
    tx.rollback().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["one", "two"]);
    assert_eq!(code(t.broker.peek("none", &all(), 1, 1).await), 60002);
});

case!(a_peek_shows_first_what_a_receive_gives_first, [284], async |t| {
    // Two conversations of one group, the younger one with the older message; then a group of its own; then an Error.
    let group = GroupId(uuid::Uuid::from_u128(1));
    let first = t.broker.begin_dialog("I", "T").contract("C").in_group(group).await?;
    let second = t.broker.begin_dialog("I", "T").contract("C").in_group(group).await?;
    let alone = t.dialog().await?;
    for (dialog, texts) in [(second, &["2a", "2b"][..]), (alone, &["3a", "3b"]), (first, &["1a"])] {
        t.send(dialog, "Text", "hello").await?;
        let target = t.receive("QT").await?[0].conversation_handle;
        for text in texts {
            t.send(target, "Text", text).await?;
        }
        if dialog == alone {
            t.broker.end_with_error(target, 7, "given up").await?;
        }
    }
    let peeked: Vec<_> = t.broker.peek("QI", &all(), 10, 9).await?.messages;
    let peeked: Vec<_> = peeked.iter().map(|message| message.message_id).collect();
    let mut received = Vec::new();
    loop {
        let group = t.receive("QI").await?;
        if group.is_empty() {
            break;
        }
        received.extend(group.iter().map(|message| message.message_id));
    }
    assert_eq!(received.len(), 6);
    assert_eq!(peeked, received);
});

case!(a_conversation_is_shown_with_its_lock_holder, [285], async |t| {
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "waits").await?;
    t.broker.timer(pair.initiator, Duration::from_secs(60)).await?;
    let shown = t.broker.conversation(pair.target.0, 10, 100).await?;
    let [initiator, target] = &shown.sides[..] else { panic!("{shown:?}") };
    assert_eq!(
        (initiator.side.conversation_handle, target.side.conversation_handle),
        (pair.initiator, pair.target),
        "the initiator first"
    );
    assert!(initiator.side.dialog_timer.is_some() && target.side.dialog_timer.is_none());
    assert_eq!(target.messages.len(), 1);
    assert_eq!((&initiator.held_by, &target.held_by), (&None, &None));

    let tx = t.begin().await?;
    assert_eq!(tx.receive("QT").await?.texts(), ["waits"]);
    let shown = t.broker.conversation(pair.target.0, 10, 100).await?;
    assert_eq!(shown.sides[0].held_by, None, "the group of the other side is free");
    let holder = shown.sides[1].held_by.clone().expect("the session that has received holds the group");
    // A claim that is 20 ms old goes to another session.
    let now = t.broker.lock_holder(shown.sides[1].side.conversation_group_id).await?.expect("the group is still held");
    assert_eq!(
        (now.process_id, &now.program_name, &now.principal),
        (holder.process_id, &holder.program_name, &holder.principal)
    );
    if !t.store().is_server() {
        assert_eq!(holder.process_id, Some(std::process::id().into()), "{holder:?}");
        assert_eq!(holder.since, Some(t.now()), "{holder:?}");
        assert!(holder.session_id.is_some() && holder.principal.is_some() == cfg!(unix), "{holder:?}");
    }
    if t.store() == crate::servers::Store::Postgres {
        assert!(holder.session_id.is_some() && holder.principal.is_some() && holder.since.is_some(), "{holder:?}");
    }
    tx.rollback().await?;
    let free = |found: &Option<_>| found.is_none();
    let group = shown.sides[1].side.conversation_group_id;
    assert_eq!(t.soon(async || t.broker.lock_holder(group).await, free).await?, None);
    assert_eq!(t.broker.lock_holder(dialoq::GroupId(uuid::Uuid::nil())).await?, None);
});

case!(what_holds_something_up_is_named, [286], async |t| {
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "waits").await?;
    let message = t.broker.peek("QT", &all(), 1, 0).await?.messages.remove(0);
    let subjects = [message.message_id.0.to_string(), pair.target.0.to_string(), "QT".into(), "T".into()];
    let kinds = [SubjectKind::Message, SubjectKind::Conversation, SubjectKind::Queue, SubjectKind::Queue];
    for (subject, kind) in subjects.iter().zip(kinds) {
        let found = t.broker.explain(subject).await?;
        assert_eq!((found.kind, found.is_blocked()), (kind, false), "{found:?}");
        assert!(found.reasons.iter().all(|reason| reason.kind != ReasonKind::Held), "{found:?}");
    }
    let tx = t.begin().await?;
    assert_eq!(tx.receive("QT").await?.texts(), ["waits"]);
    for subject in &subjects {
        let found = t.broker.explain(subject).await?;
        let held = found.reasons.iter().find(|reason| reason.kind == ReasonKind::Held);
        assert!(held.is_some_and(|reason| reason.what.contains("is held by")), "{subject}: {found:?}");
    }
    tx.rollback().await?;
    t.broker.pause("QT", Some("a count")).await?;
    for subject in &subjects {
        let found = t.broker.explain(subject).await?;
        let off = &found.reasons[0];
        assert!(off.kind == ReasonKind::QueueOff && off.is_blocking && off.what.contains("a count"), "{found:?}");
    }
    assert!(t.broker.resume("QT").await?);
    let lost = t.begin_dialog(t.to("Nowhere")).await?.handle;
    t.send(lost, "Text", "x").await?;
    let found = t.broker.explain(&lost.0.to_string()).await?;
    assert!(found.reasons[0].kind == ReasonKind::Undelivered && found.reasons[0].is_blocking, "{found:?}");
    assert_eq!(code(t.broker.explain("nothing of that name").await), 60002);
    assert_eq!(code(t.broker.explain(&uuid::Uuid::nil().to_string()).await), 8426);
});

case!(a_pause_keeps_its_reason_until_it_is_resumed, [287], async |t| {
    assert!(t.broker.pause("QT", Some("stock taking")).await?);
    let at = t.now();
    assert!(!t.broker.pause("QT", None).await?, "it was off");
    let t = t.restart_after(5).await?;
    let queue = async || {
        let queues = t.broker.status().await?.queues;
        Ok::<_, dialoq::Error>(queues.into_iter().find(|queue| queue.name == "QT").expect("the queue"))
    };
    let off = queue().await?.off.expect("why it is off");
    assert_eq!((off.since, off.by, off.reason.as_deref()), (at, OffBy::Statement, Some("stock taking")));
    let finding = t.broker.doctor().await?.remove(0);
    assert!(finding.kind == FindingKind::DisabledQueue && finding.what.contains("stock taking"), "{finding}");
    assert!(t.broker.resume("QT").await?);
    assert_eq!(queue().await?.off, None);
    assert!(t.broker.doctor().await?.is_empty());
    assert_eq!(code(t.broker.pause("none", None).await), 60002);
});

case!(changes_of_many_touch_only_what_the_filter_means, [288], async |t| {
    let (one, two) = (t.pair().await?, t.pair().await?);
    t.send(one.initiator, "Text", "a").await?;
    t.send(two.initiator, "Text", "b").await?;
    let of_one = MessageFilter { conversation: Some(one.target), ..all() };
    let found = t.broker.purgeable("QT", &of_one).await?;
    assert_eq!((found.messages.len(), found.left), (1, 0), "a preview");
    assert_eq!(t.broker.peek("QT", &all(), 9, 0).await?.messages.len(), 2, "it changes nothing");
    t.send(one.initiator, "Text", "after the preview").await?;
    let purged = t.broker.purge_found("QT", found).await?;
    assert_eq!((purged.messages, purged.ended, purged.left), (1, 0, 0));
    assert_eq!(t.receive("QT").await?.texts(), ["b"]);
    assert_eq!(t.receive("QT").await?.texts(), ["after the preview"]);
    t.send(one.initiator, "Text", "goes on").await?;
    // The end of a conversation removes what is left of it, so an Error stays that stands before a message.
    let broken = t.pair().await?;
    t.send(broken.initiator, "Text", "c").await?;
    t.end_with_error(broken.initiator, 5, "why").await?;
    let of_broken = MessageFilter { conversation: Some(broken.target), ..all() };
    let errors = MessageFilter { message_type: Some(system::ERROR.to_owned()), ..all() };
    let found = t.broker.purgeable("QT", &errors).await?;
    assert_eq!((found.messages.len(), found.left), (0, 1));
    let purged = t.broker.purge("QT", &errors).await?;
    assert_eq!((purged.messages, purged.ended, purged.left), (0, 0, 1));
    let purged = t.broker.purge("QT", &of_broken).await?;
    assert_eq!((purged.messages, purged.ended, purged.left), (2, 1, 0));

    let by = |id| ConversationFilter { id: Some(id), ..ConversationFilter::default() };
    let changed = t.broker.reprioritise_conversations(&by(one.target.0), Level::new(9)).await?;
    assert_eq!((changed.changed, changed.gone, changed.held), (1, 0, 0));
    assert_eq!((t.levels_of(one).await?, t.levels_of(two).await?), ((5, 9), (5, 5)));
    let tx = t.begin().await?;
    tx.send(two.target, "Text", "holds its group").await?;
    let of_queue = ConversationFilter { queue: Some("QT".into()), ..ConversationFilter::default() };
    let form = EndForm::WithError { code: 7, description: "too old".into() };
    let mut ended = 0;
    // A server that takes seconds for a call makes a free conversation look held.
    for _ in 0..10 {
        let changed = t.broker.end_conversations(&of_queue, form.clone()).await?;
        assert!(changed.held >= 1, "a conversation that a session holds stays: {changed:?}");
        ended += changed.changed;
        if ended > 0 {
            break;
        }
    }
    assert_eq!(ended, 1);
    tx.rollback().await?;
    assert_eq!(t.receive_from("QI", one.initiator).await?.error_codes(), [7]);
    assert_eq!(t.state(two.target).await?, "CO");
});

case!(definitions_are_ensured_and_previewed, [289], async |t| {
    let script = "CREATE QUEUE [QT]; CREATE QUEUE [More] WITH RETENTION = ON";
    let planned = t.broker.preview_ensure(script)?;
    let objects: Vec<_> = planned.iter().map(|change| (change.kind, change.object.as_str())).collect();
    assert_eq!(objects, [(DefinitionChangeKind::Created, "queue 'More'")]);
    assert!(t.broker.catalog().queue("More").is_none(), "a preview changes nothing");
    t.broker.ensure_script(script).await?;
    let dump = t.broker.dump();
    t.broker.ensure_script(script).await?;
    assert_eq!(t.broker.dump(), dump, "the second time changes nothing");
    assert_eq!(
        code(t.broker.ensure_script("CREATE QUEUE [More] WITH RETENTION = OFF").await),
        60001,
        "it has other options"
    );
    let switched_on = "CREATE QUEUE [QT] WITH STATUS = ON";
    t.broker.pause("QT", None).await?;
    let warnings = t.broker.ensure_script(switched_on).await?;
    assert!(warnings.len() == 1 && warnings[0].contains("queue 'QT' has STATUS = OFF"), "{warnings:?}");
    assert_eq!(t.queue("QT").await?.int("is_receive_enabled"), 0, "it stays off");
    t.broker.resume("QT").await?;
    assert!(t.broker.ensure_script(switched_on).await?.is_empty());
    assert_eq!(t.broker.preview("DROP QUEUE [More]")?[0].kind, DefinitionChangeKind::Dropped);
    let t = t.restart().await?;
    assert!(t.broker.preview_ensure(script)?.is_empty());
});

case!(plain_sql_sends_texts_and_reads_errors, [290], async |t| {
    let is_postgres = t.store() == crate::servers::Store::Postgres;
    let call = |postgres: &str, mssql: &str| t.store().sql(if is_postgres { postgres } else { mssql });
    let pair = t.pair().await?;
    let send =
        call("SELECT dialoq.send_text(?1, 'Text', 'grün 🚚 ')", "EXEC dialoq.send_text ?1, N'Text', N'grün 🚚 '");
    t.broker.sql(&send, (pair.initiator.0,)).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["grün 🚚 "]);
    if is_postgres {
        t.broker.sql(&t.store().sql("SELECT dialoq.send_json(?1, 'Text', '{\"a\":[1]}')"), (pair.initiator.0,)).await?;
        assert_eq!(t.receive("QT").await?.texts(), ["{\"a\": [1]}"]);
    }
    // A collation that does not tell widths apart takes U+FF06 for an ampersand.
    let description = "<no>\r\n stöck & \u{ff06}lt; 🚚 ";
    t.broker.end_with_error(pair.target, 42, description).await?;
    let error = t.receive("QI").await?.remove(0).message_body.expect("an Error has a body");
    let read = call("SELECT code, description FROM dialoq.error_of(?1)", "EXEC dialoq.error_of ?1");
    let rows = t.broker.query(&read, (error.to_vec(),)).await?.rows;
    let (code, found): (i64, String) = (rows[0].get("code")?, rows[0].get("description")?);
    assert_eq!((code, &*found), (42, description));
    for none in [&b""[..], b"x", &[0xff, 0xfe], &[0xff, 0xfe, 0, 0xd8], "<Code>1</Code>".as_bytes()] {
        let rows = t.broker.query(&read, (none.to_vec(),)).await?.rows;
        assert_eq!(rows[0].get::<Option<i64>>("code")?, None, "{none:?}");
    }
});

case!(plain_sql_sends_no_trace_that_would_stop_receivers, [290], async |t| {
    let is_postgres = t.store() == crate::servers::Store::Postgres;
    let pair = t.pair().await?;
    let sends: &[&str] = match is_postgres {
        true => &[
            "SELECT dialoq.send(?1, 'Text', 'x', ?2)",
            "SELECT dialoq.send_many(ARRAY[?1]::uuid[], 'Text', 'x', ?2)",
            "SELECT dialoq.send_each(ARRAY[?1]::uuid[], ARRAY['Text'], ARRAY['x']::bytea[], ARRAY[?2]::text[])",
            "SELECT dialoq.send_batch(ARRAY[?1]::uuid[], ARRAY['Text'], ARRAY['x']::bytea[], ARRAY[?2]::text[], ARRAY[''],
                ARRAY[NULL]::uuid[])",
        ],
        false => &[
            "EXEC dialoq.send ?1, N'Text', 0x78, ?2",
            "DECLARE @h dialoq.send_many_rows; INSERT INTO @h VALUES (0, ?1); EXEC dialoq.send_many @h, N'Text', 0x78, ?2",
            "DECLARE @m dialoq.send_batch_rows; INSERT INTO @m VALUES (0, ?1, N'Text', 0x78, ?2, N'', NULL);
            EXEC dialoq.send_each @m",
        ],
    };
    for send in sends {
        let send = t.store().sql(send);
        t.broker.sql(&send, (pair.initiator.0, "t".repeat(65_536))).await?;
        assert_eq!(t.receive("QT").await?.texts(), ["x"]);
        let Err(error) = t.broker.sql(&send, (pair.initiator.0, "t".repeat(65_537))).await else { panic!("{send}") };
        let cause = format!("{error} {:?}", std::error::Error::source(&error));
        assert!(cause.contains("65536"), "{send}: {cause}");
        assert!(t.receive("QT").await?.is_empty());
    }
});
