//! A refusal that no lock holder can change comes at once: see `docs/locks.md`.
//!
//! One transaction holds every group. Each verb of the table is then refused by the same number on every store, alone, in a
//! transaction, and in a batch with others, without waiting for the holder; each verb that may happen waits.

use crate::servers::{Database, Store, limit};
use dialoq::act::Perform;
use dialoq::protocol::{Addressee, BeginDialog, EndForm, ReceiveFrom, Relation, Verb};
use dialoq::testing::START;
use dialoq::{Act, Broker, Clock, ConversationHandle, DeadLetterId, Error, GroupId, OpenOptions};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use uuid::Uuid;

/// After so long the server is asked whether the refusal waits for a lock. A session of SQL Server's relative takes seconds of
/// processor time for its first verbs, so on a busy machine a refusal that waits for nothing may take longer.
const AT_ONCE: Duration = Duration::from_secs(10);

const DEFINITIONS: &str = "
    CREATE MESSAGE TYPE [Text]; CREATE MESSAGE TYPE [Ask]; CREATE MESSAGE TYPE [Answer]; CREATE MESSAGE TYPE [Unlisted];
    CREATE CONTRACT [C] ([Text] SENT BY ANY, [Ask] SENT BY INITIATOR, [Answer] SENT BY TARGET);
    CREATE QUEUE [QI]; CREATE QUEUE [QT]; CREATE QUEUE [QO]; CREATE QUEUE [QR] WITH RETENTION = ON; CREATE QUEUE [QOff];
    CREATE SERVICE [I] ON QUEUE [QI]; CREATE SERVICE [T] ON QUEUE [QT] ([C]);
    CREATE SERVICE [O] ON QUEUE [QO]; CREATE SERVICE [R] ON QUEUE [QR];
    ALTER QUEUE [QOff] WITH STATUS = OFF";

/// The conversations of the table, all in groups that one transaction holds.
struct Held {
    /// Open on both sides.
    open: ConversationHandle,
    target: ConversationHandle,
    /// In the group of `open`: ended here and not there, ended there and not here, and one that lives a minute.
    ended: ConversationHandle,
    ended_by_peer: ConversationHandle,
    short: ConversationHandle,
    /// Of another service.
    other: ConversationHandle,
    /// Of a service whose queue retains messages and is off.
    retained: ConversationHandle,
    /// Begun by the holder and not committed.
    begun: ConversationHandle,
    group: GroupId,
    group_of_other: GroupId,
    group_of_begun: GroupId,
    /// In an unlocked group.
    free: ConversationHandle,
}

const UNKNOWN: ConversationHandle = ConversationHandle(Uuid::from_u128(u128::MAX));
const NO_GROUP: GroupId = GroupId(Uuid::from_u128(u128::MAX));

fn send(handles: &[ConversationHandle], message_type: &str) -> Verb {
    let body = Some(Arc::new(b"x".to_vec()));
    Verb::Send { handles: handles.to_vec(), message_type: Some(message_type.into()), body, trace: None }
}

fn end(handle: ConversationHandle, form: EndForm) -> Verb {
    Verb::EndConversation { handle, form }
}

fn with_error(code: i32, length: usize) -> EndForm {
    EndForm::WithError { code, description: "x".repeat(length) }
}

fn timer(handle: ConversationHandle, timeout_seconds: i64) -> Verb {
    Verb::BeginConversationTimer { handle, timeout_seconds }
}

fn shift(handle: ConversationHandle, group: GroupId) -> Verb {
    Verb::MoveConversation { handle, group }
}

fn begin(from_service: &str, related: Relation) -> BeginDialog {
    BeginDialog {
        from_service: from_service.into(),
        to_service: "T".into(),
        addressee: Addressee::Anywhere,
        contract: Some("C".into()),
        related,
        lifetime_seconds: None,
        encryption: false,
    }
}

fn receive(queue: &str, from: ReceiveFrom) -> Verb {
    Verb::Receive { queue: queue.into(), top: None, from }
}

/// The refused verb, with the number of its error.
fn refused(held: &Held) -> Vec<(u16, Verb)> {
    let related = Relation::Conversation(held.open);
    let dialog = |change: fn(&mut BeginDialog)| {
        let mut dialog = begin("I", related);
        change(&mut dialog);
        Verb::BeginDialog(dialog)
    };
    let level = |handle, level| Verb::Reprioritise { handle, level };
    let release = |group| Verb::ReleaseQuarantine { group };
    let cancel = |handle| Verb::CancelConversationTimer { handle };
    vec![
        (8426, send(&[UNKNOWN], "Text")),
        (8426, send(&[held.begun], "Text")),
        (8418, send(&[], "Text")),
        (8435, send(&[held.open, UNKNOWN], "Text")),
        (8435, send(&[held.open, held.begun], "Text")),
        (8451, send(&[held.open, held.open], "Text")),
        (8428, send(&[held.open], "Nowhere")),
        (8428, send(&[held.open, held.other], "Nowhere")),
        (8431, send(&[held.open], "Unlisted")),
        (8431, send(&[held.open, held.other], "Unlisted")),
        (8432, send(&[held.open], "Answer")),
        (8434, send(&[held.target], "Ask")),
        (8429, send(&[held.ended], "Text")),
        (8429, send(&[held.ended_by_peer], "Text")),
        (8429, send(&[held.open, held.ended], "Text")),
        (9618, send(&[held.retained], "Text")),
        (8426, end(UNKNOWN, EndForm::Plain)),
        (8426, end(held.begun, EndForm::Cleanup)),
        (8424, end(held.open, with_error(0, 1))),
        (60005, end(held.open, with_error(1, 3001))),
        (8427, end(held.ended, EndForm::Plain)),
        (8427, end(held.ended, with_error(1, 1))),
        (8426, timer(UNKNOWN, 1)),
        (8426, timer(held.begun, 1)),
        (8411, timer(held.open, 0)),
        (8411, timer(held.open, i64::from(i32::MAX) + 1)),
        (8410, timer(held.short, 61)),
        (8458, timer(held.ended, 1)),
        (8426, cancel(UNKNOWN)),
        (8426, cancel(held.begun)),
        (8458, cancel(held.ended)),
        (8426, shift(UNKNOWN, held.group)),
        (8426, shift(held.begun, held.group)),
        (8436, shift(held.open, NO_GROUP)),
        (8436, shift(held.open, held.group_of_begun)),
        (8439, shift(held.open, held.group_of_other)),
        (8439, shift(held.other, held.group)),
        (8438, shift(held.ended, held.group)),
        (8426, level(UNKNOWN, 1)),
        (60005, level(held.open, 0)),
        (60005, level(held.open, 11)),
        (8438, level(held.ended, 1)),
        (8436, release(NO_GROUP)),
        (60048, Verb::RedriveDeadLetter { letter: DeadLetterId(1 << 40) }),
        (60048, Verb::PurgeDeadLetter { letter: DeadLetterId(1 << 40) }),
        (8436, release(held.group_of_begun)),
        (8423, dialog(|dialog| dialog.from_service = "Nowhere".into())),
        (8425, dialog(|dialog| dialog.contract = Some("Nowhere".into()))),
        (8412, dialog(|dialog| dialog.to_service = "".into())),
        (8413, dialog(|dialog| dialog.addressee = Addressee::Instance("none".into()))),
        (8411, dialog(|dialog| dialog.lifetime_seconds = Some(0))),
        (8414, dialog(|dialog| dialog.related = Relation::Group(GroupId(Uuid::nil())))),
        (8426, Verb::BeginDialog(begin("I", Relation::Conversation(UNKNOWN)))),
        (8426, Verb::BeginDialog(begin("I", Relation::Conversation(held.begun)))),
        (9601, Verb::BeginDialog(begin("I", Relation::Conversation(held.ended)))),
        (9610, Verb::BeginDialog(begin("O", Relation::Conversation(held.open)))),
        (9610, Verb::BeginDialog(begin("O", Relation::Group(held.group)))),
        (60002, receive("Nowhere", ReceiveFrom::Any)),
        (9617, receive("QOff", ReceiveFrom::Any)),
        (60005, receive("QI", ReceiveFrom::Levels { lowest: 0, highest: 5 })),
        (60005, receive("QI", ReceiveFrom::Levels { lowest: 6, highest: 5 })),
        (8426, receive("QI", ReceiveFrom::Conversation(UNKNOWN))),
        (8426, receive("QI", ReceiveFrom::Conversation(held.begun))),
        (8426, receive("QI", ReceiveFrom::Conversation(held.ended))),
        (8426, receive("QI", ReceiveFrom::Conversation(held.target))),
        (8436, receive("QI", ReceiveFrom::Group(NO_GROUP))),
        (8436, receive("QI", ReceiveFrom::Group(held.group_of_begun))),
        (8436, receive("QI", ReceiveFrom::Group(held.group_of_other))),
        (60002, Verb::GetConversationGroup { queue: "Nowhere".into() }),
        (9617, Verb::GetConversationGroup { queue: "QOff".into() }),
        (60002, Verb::PostQueueActivation { queue: "Nowhere".into() }),
    ]
}

/// The outcome once the holder is gone; waits until then.
fn waiting(held: &Held) -> Vec<Verb> {
    vec![
        send(&[held.open], "Text"),
        send(&[held.free, held.target], "Text"),
        end(held.open, EndForm::Plain),
        end(held.open, with_error(1, 1)),
        end(held.ended, EndForm::Cleanup),
        timer(held.short, 59),
        Verb::CancelConversationTimer { handle: held.open },
        shift(held.open, held.group),
        Verb::Reprioritise { handle: held.open, level: 1 },
        Verb::ReleaseQuarantine { group: held.group },
        Verb::BeginDialog(begin("I", Relation::Conversation(held.open))),
        Verb::BeginDialog(begin("I", Relation::Group(held.group))),
        // The service of the group is not known yet.
        Verb::BeginDialog(begin("O", Relation::Group(held.group_of_begun))),
    ]
}

/// The result of the work; `None` if it waits for a lock. A slow machine does not count as a wait.
async fn at_once<T>(store: Store, broker: &Broker, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(AT_ONCE, &mut work).await {
            return Some(done);
        }
        if store.waits_for_a_lock(broker).await {
            return None;
        }
    }
}

pub(crate) fn a_refused_verb_waits_for_no_lock(store: Store) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(play(store)).expect("the stage is set");
}

async fn play(store: Store) -> Result<(), Error> {
    let database = Database::fresh(store);
    let options = OpenOptions::new().clock(Clock::manual(START));
    let broker = Broker::open_with(database.url(), options).await?;
    broker.execute(DEFINITIONS).await?;
    let pair = async |from: &str| {
        let initiator = broker.begin_dialog(from, "T").contract("C").with_ids().await?;
        broker.send(initiator.handle, "Text", "open").await?;
        let target = broker.receive("QT").await?.expect("it was sent").first().handle();
        Ok::<_, Error>((initiator, target))
    };
    let (open, target) = pair("I").await?;
    let (other, _) = pair("O").await?;
    let (retained, _) = pair("R").await?;
    let (free, _) = pair("I").await?;
    let ended = broker.begin_dialog("I", "Nowhere").contract("C").related_to(open.handle).await?;
    broker.send(ended, "Text", "waits").await?;
    broker.end(ended).await?;
    let ended_by_peer = broker.begin_dialog("I", "T").contract("C").related_to(open.handle).await?;
    broker.send(ended_by_peer, "Text", "open").await?;
    broker.end(broker.receive("QT").await?.expect("it was sent").first().handle()).await?;
    let minute = Duration::from_secs(60);
    let short = broker.begin_dialog("I", "T").contract("C").related_to(open.handle).lifetime(minute).await?;
    broker.execute("ALTER QUEUE [QR] WITH STATUS = OFF").await?;

    let holder = broker.begin().await?;
    for handle in [open.handle, target, other.handle, retained.handle] {
        holder.timer(handle, Duration::from_secs(3600)).await?;
    }
    let begun = holder.begin_dialog("I", "T").contract("C").with_ids().await?;
    let held = Held {
        open: open.handle,
        target,
        ended,
        ended_by_peer,
        short,
        other: other.handle,
        retained: retained.handle,
        begun: begun.handle,
        group: open.group,
        group_of_other: other.group,
        group_of_begun: begun.group,
        free: free.handle,
    };

    let mut wrong = Vec::new();
    for (number, verb) in refused(&held) {
        limit::doing(format!("{verb:?}"));
        let alone = at_once(store, &broker, broker.perform(verb.clone())).await;
        let in_transaction = async {
            let tx = broker.begin().await.expect("BEGIN");
            let done = tx.perform(verb.clone()).await;
            tx.rollback().await.expect("ROLLBACK");
            done
        };
        let in_transaction = at_once(store, &broker, in_transaction).await;
        let batched = async {
            // Whatever is on its way when this comes is a batch of one, and what comes meanwhile a batch of many.
            let (first, second, third) =
                (send(&[held.free], "Text"), send(&[held.free], "Text"), send(&[held.free], "Text"));
            let others =
                async { tokio::try_join!(broker.perform(first), broker.perform(second), broker.perform(third)) };
            let (others, done, again) =
                tokio::join!(others, broker.perform(verb.clone()), broker.perform(verb.clone()));
            others.expect("that group is unlocked");
            (done, again)
        };
        let (batched, batched_again) = at_once(store, &broker, batched).await.unzip();
        let ways = [
            ("alone", alone),
            ("in a transaction", in_transaction),
            ("batched", batched),
            ("batched again", batched_again),
        ];
        for (way, outcome) in ways {
            let found = match outcome {
                None => "it waits for the holder".to_owned(),
                Some(Err(error)) if error.code().0 == number => continue,
                Some(other) => format!("{other:?}"),
            };
            wrong.push(format!("{verb:?} {way} should be refused with {number}: {found}"));
        }
    }
    for verb in waiting(&held) {
        limit::doing(format!("{verb:?}"));
        let mut work = pin!(broker.perform(verb.clone()));
        for _ in 0..if store.is_server() { 8 } else { 3 } {
            let polled = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
            if let Poll::Ready(outcome) = polled {
                wrong.push(format!("{verb:?} should wait for the holder: {outcome:?}"));
                break;
            }
            store.barrier(&broker).await;
        }
    }
    assert!(wrong.is_empty(), "{} on {}:\n{}", wrong.len(), store.name(), wrong.join("\n"));
    holder.rollback().await
}
