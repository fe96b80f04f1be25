//! What became of messages, what waits in a queue, why it does not move, and changes of many: on every store. Each is read by
//! a second broker too, which on SQLite works through the owner of the file.

use crate::servers::Store;
use crate::{HOUR, Patient, broker, dialog};
use dialoq::define::DefinitionChangeKind;
use dialoq::protocol::{ConversationState, EndForm};
use dialoq::status::{
    ConversationFilter, DeadLetterFilter, DeliveryOutcome, FindingKind, MessageFilter, MessageState, NameKind,
    ReasonKind, SentOn, SubjectKind,
};
use dialoq::testing::START;
use dialoq::{Act, Broker, ConversationHandle, Level, Timestamp};
use std::time::Duration;

/// The same broker, another that is open at the same time, and one that only reads.
async fn doors(broker: &Patient) -> [Broker; 3] {
    let url = broker.database.url();
    let options = dialoq::OpenOptions::new().clock(broker.clock.clone());
    let guest = Broker::open_with(url, options).await.unwrap();
    [broker.broker.clone(), guest, Broker::open_read_only(url).await.unwrap()]
}

async fn outcome(broker: &Broker, sent: impl Into<SentOn>) -> DeliveryOutcome {
    broker.deliveries([sent.into()]).await.unwrap().remove(0).outcome
}

pub(crate) async fn deliveries_say_what_became_of_messages(store: Store) {
    let broker = broker(store).await;
    broker
        .execute(
            "CREATE MESSAGE TYPE xml VALIDATION = WELL_FORMED_XML; CREATE CONTRACT strict (xml SENT BY ANY);
             ALTER SERVICE worker (ADD CONTRACT strict); CREATE CONTRACT other ([DEFAULT] SENT BY ANY)",
        )
        .await
        .unwrap();
    let good = dialog(&broker).await;
    let lost = broker.begin_dialog("client", "woker").await.unwrap();
    broker.send(lost, "DEFAULT", "x").await.unwrap();
    broker.send(lost, "DEFAULT", "y").await.unwrap();
    let wrong = broker.begin_dialog("client", "worker").contract("other").await.unwrap();
    broker.send(wrong, "DEFAULT", "x").await.unwrap();
    let body = broker.begin_dialog("client", "worker").contract("strict").await.unwrap();
    broker.send(body, "xml", "no xml").await.unwrap();
    // Sent and ended in one commit: only the other side, or nothing, is left of it.
    let tx = broker.begin().await.unwrap();
    let gone = tx.begin_dialog("client", "worker").contract("other").with_ids().await.unwrap();
    tx.send(gone.handle, "DEFAULT", "x").await.unwrap();
    tx.end(gone.handle).await.unwrap();
    let ended = tx.begin_dialog("client", "worker").with_ids().await.unwrap();
    tx.send(ended.handle, "DEFAULT", "x").await.unwrap();
    tx.end(ended.handle).await.unwrap();
    tx.commit().await.unwrap();
    let app = dialog(&broker).await;
    let batch = broker.receive("work").conversation(target_of(&broker, app).await).await.unwrap().unwrap();
    broker.end_with_error(batch.first().handle(), 42, "of our own").await.unwrap();

    for door in doors(&broker).await {
        let sent: Vec<SentOn> =
            vec![good.into(), lost.into(), wrong.into(), body.into(), gone.into(), ended.into(), app.into()];
        let all: Vec<_> = door.deliveries(sent).await.unwrap().into_iter().map(|delivery| delivery.outcome).collect();
        assert_eq!(all[0], DeliveryOutcome::Delivered);
        let DeliveryOutcome::Waits { code, messages, is_mistake, .. } = &all[1] else { panic!("{:?}", all[1]) };
        assert_eq!((*code, *messages, *is_mistake), (Some(9793), 2, true));
        assert!(all[1].to_string().contains("no service 'woker'; did you mean 'worker'?"), "{}", all[1]);
        let DeliveryOutcome::Refused { code, .. } = &all[2] else { panic!("{:?}", all[2]) };
        assert_eq!(*code, Some(-8408));
        assert!(all[2].to_string().contains("accepts 'DEFAULT', 'strict'"), "{}", all[2]);
        let DeliveryOutcome::Refused { code, .. } = &all[3] else { panic!("{:?}", all[3]) };
        assert_eq!(*code, Some(-9615));
        assert!(matches!(all[4], DeliveryOutcome::Refused { .. }), "{:?}", all[4]);
        assert_eq!(all[5], DeliveryOutcome::Delivered);
        assert_eq!(all[6], DeliveryOutcome::Delivered, "an answer of the application is no refusal");
        assert_eq!(door.did_you_mean(NameKind::Queue, "wrok").as_deref(), Some("work"));
    }

    broker.pause("work", Some("a count")).await.unwrap();
    broker.send(good, "DEFAULT", "later").await.unwrap();
    let waits = outcome(&broker, good).await;
    assert!(matches!(waits, DeliveryOutcome::Waits { code: Some(11219), is_mistake: false, .. }), "{waits:?}");
    assert!(waits.to_string().contains("a count"), "{waits}");
    assert!(broker.resume("work").await.unwrap());
    assert!(!broker.resume("work").await.unwrap(), "it was on already");
    assert_eq!(outcome(&broker, good).await, DeliveryOutcome::Delivered);
}

async fn target_of(broker: &Broker, handle: ConversationHandle) -> ConversationHandle {
    let found = broker.conversation(handle.0, 1, 0).await.unwrap();
    found.sides.last().unwrap().side.conversation_handle
}

pub(crate) async fn a_queue_is_peeked_at_without_receiving(store: Store) {
    let broker = broker(store).await;
    let first = dialog(&broker).await;
    broker.advance(HOUR);
    broker.send(first, "DEFAULT", "grün, and more").await.unwrap();
    let second = dialog(&broker).await;
    broker.send(second, "DEFAULT", &[0xff_u8, 0, 1][..]).await.unwrap();
    // A session that holds the group, and a queue that is off, change nothing.
    let tx = broker.begin().await.unwrap();
    tx.send(second, "DEFAULT", "not yet").await.unwrap();
    for door in doors(&broker).await {
        let all = door.peek("WORK", &MessageFilter::default(), 10, 4).await.unwrap();
        assert_eq!((all.queue.as_str(), all.messages.len(), all.has_more), ("work", 4, false));
        assert!(all.messages.iter().all(|message| message.state == MessageState::Waiting));
        let cut = serde_json::to_value(&all.messages[1]).unwrap();
        assert_eq!((&cut["body"], &cut["body_bytes"], &cut["is_body_cut"]), (&"grü".into(), &15.into(), &true.into()));
        let cut = &all.messages[1];
        assert_eq!((cut.message_sequence_number, cut.message_enqueue_time), (1, Timestamp(START.0 + 3_600_000_000)));
        let binary = serde_json::to_value(&all.messages[3]).unwrap();
        assert_eq!(binary["body_base64"], "/wAB");

        let one = door.peek("work", &MessageFilter::default(), 1, 10).await.unwrap();
        assert_eq!((one.messages.len(), one.has_more), (1, true));
        let old = MessageFilter { before: Some(Timestamp(START.0 + 1)), ..MessageFilter::default() };
        assert_eq!(door.peek("work", &old, 10, 10).await.unwrap().messages.len(), 1);
        let of = MessageFilter { conversation: Some(all.messages[3].conversation_handle), ..MessageFilter::default() };
        assert_eq!(door.peek("work", &of, 10, 10).await.unwrap().messages.len(), 2);
        let none = MessageFilter { message_type: Some("none".into()), ..MessageFilter::default() };
        assert!(door.peek("work", &none, 10, 10).await.unwrap().messages.is_empty());
        assert_eq!(door.peek("wrk", &none, 10, 10).await.unwrap_err().code().0, 60002);
    }
    tx.rollback().await.unwrap();
    broker.execute("ALTER QUEUE work WITH STATUS = OFF").await.unwrap();
    let off = broker.peek("work", &MessageFilter::default(), 10, 10).await.unwrap();
    assert_eq!((off.is_receive_enabled, off.messages.len()), (false, 4));
    broker.resume("work").await.unwrap();
    assert_eq!(broker.receive("work").await.unwrap().unwrap().len(), 2, "nothing was received");
    // RECEIVE follows levels in every broker, also where the transmission queue does not.
    let urgent = target_of(&broker, dialog(&broker).await).await;
    broker.reprioritise(urgent, Level::new(9)).await.unwrap();
    let head = broker.peek("work", &MessageFilter::default(), 1, 0).await.unwrap().messages.remove(0);
    assert_eq!((head.conversation_handle, head.priority), (urgent, 9));
    let older = MessageFilter { conversation: Some(target_of(&broker, second).await), ..MessageFilter::default() };
    let older = broker.peek("work", &older, 1, 0).await.unwrap().messages.remove(0);
    let why = broker.explain(&older.message_id.0.to_string()).await.unwrap();
    let ahead: Vec<_> = why.reasons.iter().filter(|reason| reason.kind == ReasonKind::Ahead).collect();
    assert!(ahead[0].what.contains("higher levels than 5"), "{why:?}");
    assert_eq!(broker.receive("work").await.unwrap().unwrap().first().handle(), urgent);
}

pub(crate) async fn a_conversation_is_shown_from_both_sides(store: Store) {
    let broker = broker(store).await;
    broker.execute("ALTER QUEUE work WITH RETENTION = ON").await.unwrap();
    let handle = dialog(&broker).await;
    broker.send(handle, "DEFAULT", "waits").await.unwrap();
    assert_eq!(broker.receive("work").top(1).await.unwrap().unwrap().len(), 1);
    broker.timer(handle, HOUR).await.unwrap();
    let target = target_of(&broker, handle).await;
    for door in doors(&broker).await {
        for id in [handle, target] {
            let found = door.conversation(id.0, 10, 100).await.unwrap();
            let [initiator, other] = &found.sides[..] else { panic!("{found:?}") };
            assert_eq!((initiator.side.conversation_handle, other.side.conversation_handle), (handle, target));
            assert_eq!((initiator.side.state, other.side.state_desc), (ConversationState::Conversing, "CONVERSING"));
            assert_eq!((initiator.side.service_name.as_str(), other.side.queue.as_str()), ("client", "work"));
            assert_eq!(initiator.side.dialog_timer, Some(Timestamp(START.0 + 3_600_000_000)));
            assert_eq!(initiator.side.lifetime, Some(Timestamp(START.0 + 360_000_000_000)));
            let bodies = |messages: &[dialoq::status::PeekedMessage]| -> Vec<_> {
                messages.iter().map(|message| (message.state, message.body.bytes.clone())).collect()
            };
            assert_eq!(bodies(&other.messages), [(MessageState::Waiting, b"waits".to_vec())]);
            assert_eq!(bodies(&other.kept), [(MessageState::Received, b"x".to_vec())]);
        }
        assert_eq!(door.conversation(uuid::Uuid::nil(), 1, 1).await.unwrap_err().code().0, 8426);
    }
    broker.execute("ALTER QUEUE work WITH STATUS = OFF").await.unwrap();
    broker.send(handle, "DEFAULT", "held").await.unwrap();
    let found = broker.conversation(handle.0, 10, 100).await.unwrap();
    assert_eq!(found.sides[0].undelivered.len(), 1, "{found:?}");
    assert!(found.sides[0].undelivered[0].transmission_status.starts_with("11219"), "{found:?}");
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["sides"][0]["undelivered"][0]["body"], "held");
    assert_eq!(json["sides"][0]["dialog_timer"], "2026-01-01T01:00:00.000Z");
}

pub(crate) async fn what_does_not_move_is_explained(store: Store) {
    let broker = broker(store).await;
    let handle = dialog(&broker).await;
    let lost = broker.begin_dialog("client", "woker").await.unwrap();
    broker.send(lost, "DEFAULT", "x").await.unwrap();
    let silent = broker.begin_dialog("client", "worker").await.unwrap();
    let message = broker.peek("work", &MessageFilter::default(), 1, 0).await.unwrap().messages.remove(0);
    broker.pause("work", Some("a count")).await.unwrap();
    for door in doors(&broker).await {
        let has = |explanation: &dialoq::status::Explanation, kind| {
            explanation.reasons.iter().any(|reason| reason.kind == kind && reason.is_blocking)
        };
        for subject in ["work".to_owned(), "worker".into(), message.message_id.0.to_string(), handle.0.to_string()] {
            let found = door.explain(&subject).await.unwrap();
            assert!(has(&found, ReasonKind::QueueOff), "{subject}: {found:?}");
            // A broker that only reads has a clock of its own, by which lifetimes may be over.
            let text = "since 2026-01-01T00:00:00.000Z: a count";
            assert!(found.reasons.iter().any(|reason| reason.what.contains(text)), "{found:?}");
        }
        let found = door.explain(&lost.0.to_string()).await.unwrap();
        assert_eq!(found.kind, SubjectKind::Conversation);
        assert!(
            has(&found, ReasonKind::Undelivered)
                && found.reasons.iter().any(|reason| reason.advice.contains("'worker'")),
            "{found:?}"
        );
        assert!(has(&door.explain(&silent.0.to_string()).await.unwrap(), ReasonKind::NothingSent));
        let unknown = door.explain("wrok").await.unwrap_err();
        assert!(unknown.message().contains("did you mean 'work'?"), "{unknown}");
        let unknown = door.explain("nothing").await.unwrap_err();
        let text = "no queue, work queue or service is named 'nothing', and it is no id";
        assert_eq!((unknown.code().0, unknown.message()), (60002, text));
        assert_eq!(door.explain(&uuid::Uuid::nil().to_string()).await.unwrap_err().code().0, 8426);
    }
    broker.resume("work").await.unwrap();
    broker
        .execute(
            "CREATE WORK QUEUE jobs WITH STATUS = OFF, RATE_JOBS = 5;
             ALTER QUEUE work WITH POISON_MESSAGE_HANDLING (QUARANTINE = ON)",
        )
        .await
        .unwrap();
    let found = broker.explain("jobs").await.unwrap();
    assert_eq!((found.kind, found.reasons[0].kind), (SubjectKind::WorkQueue, ReasonKind::Paused));
    assert!(found.reasons.iter().any(|reason| reason.what.contains("RATE_JOBS = 5 in 1000 ms")), "{found:?}");
    // The job that failed holds the other one up; a reader would not help.
    broker.execute("CREATE WORK QUEUE line WITH ORDER = FIFO_STRICT, RETRY_DELAY_MS = 60000").await.unwrap();
    for body in ["first", "second"] {
        broker.push_job("line", body).await.unwrap();
    }
    let first = broker.take_jobs("line").await.unwrap().remove(0);
    broker.fail_job(&first, "no").await.unwrap();
    assert!(broker.take_jobs("line").await.unwrap().is_empty());
    let found = broker.explain("line").await.unwrap();
    let strict =
        |reason: &dialoq::status::Reason| reason.kind == ReasonKind::Limited && reason.what.contains("FIFO_STRICT");
    assert!(found.reasons.iter().any(strict), "{found:?}");
    let no_reader = found.reasons.iter().find(|reason| reason.kind == ReasonKind::NoReader).unwrap();
    assert!(no_reader.advice.starts_with("unless"), "{found:?}");
    broker.execute("CREATE WORK QUEUE pair WITH MAX_TAKEN = 2").await.unwrap();
    for body in ["first", "second", "third"] {
        broker.push_job("pair", body).await.unwrap();
    }
    for is_full in [false, true] {
        assert_eq!(broker.take_jobs("pair").await.unwrap().len(), 1);
        let found = broker.explain("pair").await.unwrap();
        let limited = |reason: &&dialoq::status::Reason| reason.is_blocking && reason.kind == ReasonKind::Limited;
        let full = found.reasons.iter().find(limited).map(|reason| &*reason.what);
        assert_eq!(full, is_full.then_some("2 jobs are taken, and MAX_TAKEN = 2 lets no more"), "{found:?}");
    }
    for _ in 0..5 {
        let tx = broker.begin().await.unwrap();
        assert!(tx.receive("work").await.unwrap().is_some());
        tx.rollback().await.unwrap();
    }
    let aside = broker.explain(&message.message_id.0.to_string()).await.unwrap();
    assert_eq!(aside.reasons[0].kind, ReasonKind::Quarantined, "{aside:?}");
    let peek = broker.peek("work", &MessageFilter::default(), 1, 0).await.unwrap();
    assert_eq!(peek.messages[0].state, MessageState::Quarantined);
    for (id, was_quarantined) in [(message.conversation_handle.0, true), (message.conversation_group_id.0, false)] {
        let released = broker.release(id).await.unwrap();
        assert_eq!((released.group, released.was_quarantined), (message.conversation_group_id, was_quarantined));
    }
    assert!(!broker.explain(&message.message_id.0.to_string()).await.unwrap().is_blocked());
    assert_eq!(broker.release(uuid::Uuid::nil()).await.unwrap_err().code().0, 8436);
    broker.execute("ALTER QUEUE work WITH RETRY (DELAY_MS = 60000, JITTER_PERCENT = 0)").await.unwrap();
    let tx = broker.begin().await.unwrap();
    assert!(tx.receive("work").await.unwrap().is_some());
    tx.rollback().await.unwrap();
    let pauses = broker.explain(&message.message_id.0.to_string()).await.unwrap();
    assert_eq!(pauses.reasons[0].kind, ReasonKind::Pausing, "{pauses:?}");
    assert!(pauses.reasons[0].what.contains("2026-01-01T00:01:00.000Z"), "{pauses:?}");
    let queue = broker.explain("work").await.unwrap();
    assert!(queue.reasons.iter().any(|reason| reason.kind == ReasonKind::Pausing), "{queue:?}");
    let peek = broker.peek("work", &MessageFilter::default(), 1, 0).await.unwrap();
    assert_eq!(peek.messages[0].state, MessageState::Pausing);
    assert!(broker.release(message.conversation_handle.0).await.unwrap().was_quarantined, "from a pause");
}

pub(crate) async fn a_queue_whose_messages_all_pause_is_blocked(store: Store) {
    let broker = broker(store).await;
    dialog(&broker).await;
    let script = "CREATE WORK QUEUE work; ALTER QUEUE work WITH RETRY (DELAY_MS = 60000, JITTER_PERCENT = 0)";
    broker.execute(script).await.unwrap();
    let tx = broker.begin().await.unwrap();
    assert!(tx.receive("work").await.unwrap().is_some());
    tx.rollback().await.unwrap();
    let found = broker.explain("work").await.unwrap();
    let first = &found.reasons[0];
    assert!((first.kind, first.is_blocking) == (ReasonKind::Pausing, true), "{found:?}");
    assert!(first.what.ends_with("after rollbacks, the first for 60 s more"), "{found:?}");
    assert!(first.advice.contains("`dialoq release GROUP`"), "{found:?}");
    // The name of the queue is that of a work queue too, which this explanation is not about.
    assert!(found.summary.contains("`dialoq work list work`"), "{found:?}");
    let job = broker.explain("17").await.unwrap_err();
    assert!(job.message().contains("`dialoq work show 17`"), "{job}");
}

/// The clause of a queue is not the only way to activate it.
pub(crate) async fn a_queue_that_a_program_activates_is_explained(store: Store) {
    let broker = broker(store).await;
    let dialog = dialog(&broker).await;
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    let reasons_with = async |most: u16| {
        // It cannot be started, as if the place of the only reader were taken by one that is stopping.
        let program = dialoq::activation::Program::new("/nowhere/to/be/found");
        let readers = broker.activate("work", program).max_queue_readers(most).start();
        let is_known = async || {
            let status = broker.status().await.unwrap();
            let work = status.queues.iter().find(|queue| queue.name == "work").unwrap();
            work.monitors.iter().map(|monitor| monitor.max_queue_readers).eq([u64::from(most)])
        };
        while !is_known().await {
            tokio::task::yield_now().await;
        }
        let reasons = broker.explain("work").await.unwrap().reasons;
        readers.stop().await;
        reasons
    };
    let reasons = reasons_with(1).await;
    assert!(reasons.iter().all(|reason| reason.kind != ReasonKind::NoReader), "{reasons:?}");
    let what = "1 process activates it, and no reader runs";
    assert!(reasons.iter().any(|reason| reason.what == what), "{reasons:?}");
    let reasons = reasons_with(0).await;
    assert!(
        reasons.iter().any(|reason| reason.what == "MAX_QUEUE_READERS is 0, so no reader is started"),
        "{reasons:?}"
    );
    let findings = broker.doctor_after(Duration::MAX).await.unwrap();
    assert!(findings.iter().all(|finding| finding.kind != FindingKind::WaitingMessages), "{findings:?}");
}

pub(crate) async fn lifetimes_and_timers_are_shown_as_they_are(store: Store) {
    let broker = broker(store).await;
    broker.pause("work", None).await.unwrap();
    let endless = broker.begin_dialog("client", "worker").await.unwrap();
    broker.send(endless, "DEFAULT", "x").await.unwrap();
    broker.timer(endless, HOUR).await.unwrap();
    let limited = broker.begin_dialog("client", "worker").lifetime(10_000 * HOUR).await.unwrap();
    broker.send(limited, "DEFAULT", "x").await.unwrap();
    // The target's side begins later than the conversation.
    broker.advance(HOUR / 2);
    broker.resume("work").await.unwrap();
    target_of(&broker, limited).await;
    let lifetimes = |sides: Vec<dialoq::status::ConversationSideDetails>| {
        sides.into_iter().map(|details| details.side.lifetime.map(|end| end.0 - START.0)).collect::<Vec<_>>()
    };
    let shown = broker.conversation(endless.0, 1, 1).await.unwrap();
    assert_eq!(lifetimes(shown.sides), [None, None], "without LIFETIME neither side has an end");
    let shown = broker.conversation(limited.0, 1, 1).await.unwrap();
    assert_eq!(lifetimes(shown.sides), [Some(36_000_000_000_000); 2]);
    let timer = async |door: &Broker| {
        let found = door.explain(&endless.0.to_string()).await.unwrap();
        found.reasons.into_iter().find(|reason| reason.kind == ReasonKind::Timer).unwrap().what
    };
    assert_eq!(timer(&broker).await, "a timer of service 'client' fires at 2026-01-01T01:00:00.000Z");
    if store.is_server() {
        return;
    }
    // Past due by the clock of a broker that only reads; a server has one clock.
    let [.., reader] = doors(&broker).await;
    let due = "a timer of service 'client' is due since 2026-01-01T01:00:00.000Z and has not fired";
    assert_eq!(timer(&reader).await, due);
}

pub(crate) async fn a_purge_drops_messages_and_keeps_conversations(store: Store) {
    let broker = broker(store).await;
    broker
        .execute(
            "CREATE MESSAGE TYPE keep; CREATE CONTRACT c ([DEFAULT] SENT BY ANY, keep SENT BY ANY);
                  ALTER SERVICE worker (ADD CONTRACT c)",
        )
        .await
        .unwrap();
    let mixed = broker.begin_dialog("client", "worker").contract("c").await.unwrap();
    for message_type in ["DEFAULT", "DEFAULT", "keep", "DEFAULT"] {
        broker.send(mixed, message_type, "x").await.unwrap();
    }
    let ended = dialog(&broker).await;
    broker.end(ended).await.unwrap();
    let held = dialog(&broker).await;
    let only = MessageFilter { message_type: Some("DEFAULT".into()), ..MessageFilter::default() };
    let found = broker.purgeable("work", &only).await.unwrap();
    assert_eq!((found.messages.len(), found.left), (4, 1), "one stands behind a message that stays");

    let [_, guest, _] = doors(&broker).await;
    let tx = broker.begin().await.unwrap();
    let target = target_of(&broker, held).await;
    tx.send(target, "DEFAULT", "holds its group").await.unwrap();
    let purged = guest.purge("work", &only).await.unwrap();
    assert_eq!((purged.messages, purged.ended, purged.left), (3, 0, 2), "{purged:?}");
    tx.rollback().await.unwrap();

    let purged = broker.purge("work", &MessageFilter::default()).await.unwrap();
    assert_eq!((purged.messages, purged.ended, purged.left), (4, 1, 0), "{purged:?}");
    assert!(broker.peek("work", &MessageFilter::default(), 1, 1).await.unwrap().messages.is_empty());
    broker.send(mixed, "keep", "the conversation goes on").await.unwrap();
    assert_eq!(broker.receive("work").await.unwrap().unwrap().len(), 1);

    dialog(&broker).await;
    broker.pause("work", None).await.unwrap();
    assert_eq!(broker.purge("work", &MessageFilter::default()).await.unwrap_err().code().0, 9617);
    let preview = broker.purgeable("work", &MessageFilter::default()).await.unwrap_err();
    assert!(preview.code().0 == 9617 && preview.message().contains("dialoq resume work"), "{preview}");
    assert_eq!(broker.purge("wok", &MessageFilter::default()).await.unwrap_err().code().0, 60002);
    broker.resume("work").await.unwrap();
    // A purge is no rollback: the queue stays on.
    assert_eq!(broker.purge("work", &MessageFilter::default()).await.unwrap().messages, 1);
}

pub(crate) async fn many_conversations_are_ended_and_changed_by_a_filter(store: Store) {
    let broker = broker(store).await;
    let old = dialog(&broker).await;
    broker.advance(HOUR);
    let young = dialog(&broker).await;
    let of = |service: &str, before| ConversationFilter {
        service: Some(service.into()),
        before,
        ..ConversationFilter::default()
    };
    let [_, guest, reader] = doors(&broker).await;
    for door in [&*broker, &guest, &reader] {
        let sides = door.conversations(&of("client", Some(Timestamp(START.0 + 1))), 10).await.unwrap();
        assert_eq!(sides.iter().map(|side| side.conversation_handle).collect::<Vec<_>>(), [old]);
        assert_eq!(door.conversations(&of("client", None), 1).await.unwrap().len(), 1, "at most so many");
    }
    let queue = ConversationFilter { queue: Some("WORK".into()), ..ConversationFilter::default() };
    let changed = guest.reprioritise_conversations(&queue, Level::new(9)).await.unwrap();
    assert_eq!((changed.changed, changed.gone, changed.held), (2, 0, 0));
    let levels = broker.peek("work", &MessageFilter::default(), 10, 0).await.unwrap();
    assert!(levels.messages.iter().all(|message| message.priority == 9), "{levels:?}");

    let form = EndForm::WithError { code: 7, description: "too old".into() };
    let changed = guest.end_conversations(&of("client", Some(Timestamp(START.0 + 1))), form).await.unwrap();
    assert_eq!((changed.changed, changed.gone, changed.held), (1, 0, 0));
    assert_eq!(broker.conversations(&of("client", None), 10).await.unwrap()[0].conversation_handle, young);
    let errors = ConversationFilter { state: Some(ConversationState::Error), ..ConversationFilter::default() };
    let broken = broker.conversations(&errors, 10).await.unwrap();
    assert_eq!(broken.len(), 1, "the other side got the Error: {broken:?}");
    let changed = broker.end_conversations(&queue, EndForm::Cleanup).await.unwrap();
    assert_eq!(changed.changed, 2);
    assert!(broker.peek("work", &MessageFilter::default(), 1, 0).await.unwrap().messages.is_empty());
    let form = EndForm::WithError { code: 0, description: String::new() };
    let refused = broker.end_conversations(&of("client", None), form).await;
    assert_eq!(refused.unwrap_err().code().0, 8424);
}

pub(crate) async fn a_script_is_ensured_twice_and_previewed(store: Store) {
    let broker = broker(store).await;
    let script = "CREATE QUEUE work; CREATE QUEUE more WITH RETENTION = ON;\nCREATE SERVICE extra ON QUEUE more";
    let planned = broker.preview_ensure(script).unwrap();
    let objects: Vec<_> = planned.iter().map(|change| (change.kind, change.object.as_str())).collect();
    let created = DefinitionChangeKind::Created;
    assert_eq!(objects, [(created, "queue 'more'"), (created, "service 'extra'")]);
    assert!(planned[0].to_string().starts_with("+ CREATE QUEUE [more] WITH RETENTION = ON"), "{}", planned[0]);
    assert!(broker.catalog().queue("more").is_none(), "a preview changes nothing");
    broker.ensure_script(script).await.unwrap();
    let dump = broker.dump();
    assert!(broker.preview_ensure(script).unwrap().is_empty());
    broker.ensure_script(script).await.unwrap();
    assert_eq!(broker.dump(), dump, "the second time changes nothing");

    let altered = broker.preview("ALTER QUEUE more WITH RETENTION = OFF; DROP SERVICE extra").unwrap();
    let kinds: Vec<_> = altered.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [DefinitionChangeKind::Altered, DefinitionChangeKind::Dropped]);
    assert_eq!(altered[0].to_string(), "- CREATE QUEUE [more] WITH RETENTION = ON;\n+ CREATE QUEUE [more];");
    let differs = broker.ensure_script("CREATE QUEUE home;\nCREATE QUEUE more WITH RETENTION = OFF").await.unwrap_err();
    assert_eq!((differs.code().0, differs.position().map(|at| at.line)), (60001, Some(2)), "{differs}");
    let other = broker.preview_ensure("DROP QUEUE more").unwrap_err();
    assert_eq!((other.code().0, other.position().map(|at| at.line)), (60026, Some(1)), "{other}");
}

pub(crate) async fn dead_letters_are_seen_redriven_and_purged_by_a_filter(store: Store) {
    let broker = broker(store).await;
    broker.execute("ALTER QUEUE work WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER)").await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..3 {
        handles.push(dialog(&broker).await);
        let tx = broker.begin().await.unwrap();
        tx.receive("work").await.unwrap().unwrap();
        tx.rollback().await.unwrap();
        broker.advance(Duration::from_secs(60));
    }
    let all = DeadLetterFilter::default();
    let letters = broker.dead_letters(&all, 10, 100).await.unwrap();
    assert_eq!(letters.len(), 3);
    let first = &letters[0];
    assert_eq!((&*first.queue, &*first.service_name, &*first.far_service), ("work", "worker", "client"));
    assert_eq!((first.attempts, first.died_at, first.is_conversation_open), (1, START, true));
    assert_eq!((&first.body.bytes[..], &*first.message_type_name), (&b"x"[..], "DEFAULT"));
    assert_eq!(broker.dead_letters(&all, 2, 0).await.unwrap().len(), 2);

    let count = async |filter: DeadLetterFilter| broker.dead_letters(&filter, 10, 0).await.unwrap().len();
    let before = Some(Timestamp(START.0 + 1));
    assert_eq!(count(DeadLetterFilter { before, ..all.clone() }).await, 1);
    for (filter, right) in [
        (DeadLetterFilter { queue: Some("WORK".into()), ..all.clone() }, 3),
        (DeadLetterFilter { queue: Some("home".into()), ..all.clone() }, 0),
        (DeadLetterFilter { service: Some("worker".into()), ..all.clone() }, 3),
        (DeadLetterFilter { service: Some("client".into()), ..all.clone() }, 0),
        // Names of queues fold A to Z only, the others are compared byte by byte.
        (DeadLetterFilter { queue: Some("ｗork".into()), ..all.clone() }, 0),
        (DeadLetterFilter { service: Some("WORKER".into()), ..all.clone() }, 0),
        // To SQL Server a text equals the same text with spaces at its end.
        (DeadLetterFilter { queue: Some("work ".into()), ..all.clone() }, 0),
        (DeadLetterFilter { service: Some("worker ".into()), ..all.clone() }, 0),
        (DeadLetterFilter { message_type: Some("DEFAULT ".into()), ..all.clone() }, 0),
        (DeadLetterFilter { message_type: Some("DEFAULT".into()), ..all.clone() }, 3),
        (DeadLetterFilter { message_type: Some("other".into()), ..all.clone() }, 0),
        (DeadLetterFilter { letter: Some(letters[1].dead_letter_id), ..all.clone() }, 1),
        (DeadLetterFilter { conversation: Some(letters[2].conversation_handle), ..all.clone() }, 1),
    ] {
        assert_eq!(count(filter.clone()).await, right, "{filter:?}");
    }

    let queue = broker.status().await.unwrap().queues.into_iter().find(|queue| queue.name == "work").unwrap();
    assert_eq!((queue.dead_letters, queue.levels.len()), (3, 0));
    let found = broker.doctor().await.unwrap();
    assert_eq!((found.len(), found[0].kind, found[0].amount), (1, FindingKind::DeadLetters, 3), "{found:?}");
    assert_eq!(found[0].since, Some(START));
    let explained = broker.explain("work").await.unwrap();
    assert!(explained.reasons.iter().any(|reason| reason.kind == ReasonKind::DeadLetters), "{explained:?}");
    let seen = broker.conversation(letters[1].conversation_handle.0, 10, 100).await.unwrap();
    assert_eq!(seen.sides[1].dead_letters, [letters[1].clone()]);

    for letter in &letters {
        let explained = broker.explain(&letter.message_id.to_string()).await.unwrap();
        assert_eq!((explained.kind, &*explained.subject), (SubjectKind::Message, &*letter.message_id.to_string()));
        let [reason] = &explained.reasons[..] else { panic!("{explained:?}") };
        assert!(reason.is_blocking && reason.kind == ReasonKind::DeadLetters, "{explained:?}");
        let redrive = format!("`dialoq dead redrive {}`", letter.dead_letter_id);
        assert!(reason.advice.ends_with(&redrive), "{explained:?}");
        let explained = broker.explain(&letter.conversation_handle.to_string()).await.unwrap();
        assert!(explained.reasons.iter().any(|reason| reason.advice.ends_with(&redrive)), "{explained:?}");
    }

    broker.end_with_cleanup(letters[0].conversation_handle).await.unwrap();
    let explained = broker.explain(&letters[0].conversation_handle.to_string()).await.unwrap();
    assert!(explained.reasons[0].advice.contains("`dialoq dead purge "), "{explained:?}");
    let done = broker.redrive_dead_letters(&DeadLetterFilter { before, ..all.clone() }).await.unwrap();
    assert_eq!((done.redriven, done.ended), (0, 1));
    let holder = broker.begin().await.unwrap();
    holder.purge_dead_letter(letters[2].dead_letter_id).await.unwrap();
    let done = broker.redrive_dead_letters(&all).await.unwrap();
    assert_eq!((done.redriven, done.ended, done.gone, done.held), (1, 1, 0, 1));
    assert_eq!(broker.purge_dead_letters(&all).await.unwrap(), 1, "another transaction has one");
    holder.rollback().await.unwrap();
    assert_eq!(broker.purge_dead_letters(&all).await.unwrap(), 1);
    assert_eq!(broker.receive("work").await.unwrap().unwrap().first().handle(), letters[1].conversation_handle);
    assert!(broker.dead_letters(&all, 10, 0).await.unwrap().is_empty());
}

/// A dead letter keeps the name that its queue had, which a queue of later may spell in other letters.
pub(crate) async fn dead_letters_are_counted_by_the_name_of_their_queue(store: Store) {
    let broker = broker(store).await;
    let script = "CREATE QUEUE first WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER);
        CREATE QUEUE other WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER);
        CREATE SERVICE [a] ON QUEUE first ([DEFAULT]); CREATE SERVICE [b] ON QUEUE other ([DEFAULT])";
    broker.execute(&script.replace("other", "[ｆirst]")).await.unwrap();
    for (service, queue, letters) in [("a", "first", 2), ("b", "ｆirst", 1)] {
        for _ in 0..letters {
            let dialog = broker.begin_dialog("a", service).await.unwrap();
            broker.send(dialog, "DEFAULT", "x").await.unwrap();
            let tx = broker.begin().await.unwrap();
            tx.receive(queue).await.unwrap().unwrap();
            tx.rollback().await.unwrap();
        }
    }
    let counted = async || {
        let queues = broker.status().await.unwrap().queues;
        let counted = queues.into_iter().filter(|queue| queue.dead_letters > 0);
        let mut counted: Vec<_> = counted.map(|queue| (queue.name, queue.dead_letters)).collect();
        counted.sort();
        counted
    };
    let found = broker.doctor().await.unwrap();
    let dead = found.iter().filter(|found| found.kind == FindingKind::DeadLetters);
    let mut dead: Vec<_> = dead.map(|found| (found.subject.clone(), found.amount)).collect();
    dead.sort();
    assert_eq!(counted().await, [("first".to_owned(), 2), ("ｆirst".to_owned(), 1)]);
    assert_eq!(dead, [("first".to_owned(), 2), ("ｆirst".to_owned(), 1)]);
    broker
        .execute("CREATE QUEUE idle; ALTER SERVICE [a] ON QUEUE idle; DROP QUEUE first; CREATE QUEUE First")
        .await
        .unwrap();
    assert_eq!(counted().await, [("First".to_owned(), 2), ("ｆirst".to_owned(), 1)]);
}
