//! Features that Service Broker does not have: levels that change, RECEIVE by level and by age, definitions apart.

use crate::rig::{Text, code};
use crate::servers::Store;
use dialoq::protocol::definition::Definition;
use dialoq::protocol::work::{Hold, Take, TakeFrom, WorkVerb};
use dialoq::protocol::{EndForm, Outcome, ReceiveFrom, Verb, system};
use dialoq::receive::dual_queue_loop;
use dialoq::{Act, ConversationHandle};
use std::sync::Arc;
use tokio_stream::StreamExt;
use uuid::Uuid;

case!(levels_can_be_changed, [53], async |t| {
    // DIFFERENCE(reprioritise): ours; an application may change the level of an endpoint that exists.
    let (low, high) = (t.pair().await?, t.pair().await?);
    t.send(low.initiator, "Text", "low").await?;
    t.send(high.initiator, "Text", "high").await?;
    t.perform(Verb::Reprioritise { handle: high.target, level: 9 }).await?;
    assert_eq!(t.levels_of(high).await?, (5, 9), "one endpoint only");
    let received = t.receive("QT").await?;
    assert_eq!((received.texts(), received[0].priority), (vec!["high".to_owned()], 9));
    let t = t.restart().await?;
    assert_eq!(t.levels_of(high).await?, (5, 9));
    for level in [0, 11] {
        assert!(t.perform(Verb::Reprioritise { handle: high.target, level }).await.is_err(), "{level}");
    }
});

case!(a_raised_level_sends_no_message_before_an_earlier_one, [53, 60], async |t| {
    // DIFFERENCE(reprioritise): later messages of the conversation wait at the new level, earlier ones at the old.
    t.define("ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY ON; ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    let dialog = t.begin_at_level(3).await?;
    t.send(dialog, "Text", "first").await?;
    t.perform(Verb::Reprioritise { handle: dialog, level: 9 }).await?;
    t.send(dialog, "Text", "second").await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert!(t.transmission().await?.is_empty(), "the queue takes both");
    assert_eq!(t.receive("QT").await?.texts(), ["first", "second"]);
});

case!(receive_by_level, [55], async |t| {
    // DIFFERENCE(receive-by-level): ours; what the strategies ask for.
    for level in [2, 5, 8] {
        t.send_at_level(level, &level.to_string()).await?;
    }
    let levels = |lowest, highest| ReceiveFrom::Levels { lowest, highest };
    assert!(t.receive_where("QT", levels(9, 10)).await?.is_empty());
    assert_eq!(t.receive_where("QT", levels(1, 7)).await?.texts(), ["5"]);
    assert_eq!(t.receive_where("QT", levels(1, 4)).await?.texts(), ["2"]);
    assert_eq!(t.receive_where("QT", levels(1, 10)).await?.texts(), ["8"]);
});

case!(receive_the_oldest, [55, 165], async |t| {
    // DIFFERENCE(receive-by-level): by age, whatever the level.
    for level in [2, 8, 5] {
        t.send_at_level(level, &level.to_string()).await?;
    }
    for right in ["2", "8", "5"] {
        assert_eq!(t.receive_where("QT", ReceiveFrom::Oldest).await?.texts(), [right]);
    }
});

case!(a_queue_that_poison_turned_off_is_left_out_of_a_strategy, [163], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "bad").await?;
    t.define("CREATE QUEUE [QLow]; CREATE SERVICE [Low] ON QUEUE [QLow] ([C])").await?;
    let low = t.begin_dialog(t.to("Low")).await?.handle;
    for text in ["one", "two"] {
        t.send(low, "Text", text).await?;
    }
    let mut turns = t.broker.receive_by(dual_queue_loop("QT", "QLow"))?;
    let mut next = async || turns.next().await.expect("a stream of turns does not end without an error");
    for _ in 0..5 {
        let turn = next().await?;
        assert_eq!(&*turn.class, "high");
        turn.rollback().await?;
    }
    for text in ["one", "two"] {
        let turn = next().await?;
        assert_eq!((&*turn.class, turn.batch.first().text()?.as_ref()), ("low", text));
        turn.commit().await?;
    }
    t.define("ALTER QUEUE [QLow] WITH STATUS = OFF").await?;
    assert_eq!(code(next().await.map(drop)), 9617, "none is on");
});

case!(definitions_stand_alone, [174], async |t| {
    // DIFFERENCE(definitions-apart): definitions and other verbs do not mix in one transaction.
    let pair = t.pair().await?;
    let tx = t.begin().await?;
    tx.send(pair.initiator, "Text", "sent").await?;
    let create = Definition::DropQueue { name: "QPlain".into() };
    assert_eq!(code(tx.perform(Verb::Define(vec![create])).await), 60008);
    tx.commit().await?;
    assert_eq!(t.receive("QT").await?.texts(), ["sent"]);
    assert!(t.receive("QPlain").await?.is_empty());
});

case!(definitions_wait_for_the_holder_of_a_group_that_they_change, [14, 27], async |t| {
    let pair = t.pair().await?;
    let tx = t.begin().await?;
    tx.send(pair.target, "Text", "before the end").await?;
    let other = t.clone();
    let mut dropping = Box::pin(async move { other.define("DROP SERVICE [T]").await });
    t.still_waits(&mut dropping).await;
    let other = t.clone();
    let unrelated = async move { other.define("CREATE MESSAGE TYPE [Unrelated]").await };
    // DIFFERENCE(definitions-queue): on a server definitions are made one after the other, so that this one waits for that
    // until it gives way for a moment.
    tokio::select! {
        dropped = &mut dropping => panic!("its conversation is held, but it is done: {dropped:?}"),
        created = unrelated => created?,
    };
    tx.commit().await?;
    dropping.await?;
    let received = t.receive("QI").await?;
    assert_eq!((received.error_codes(), received.len()), (vec![-8470], 2));
    assert!(t.endpoint(pair.target).await?.is_none());
});

case!(a_timer_is_taken_back, [132], async |t| {
    // DIFFERENCE(cancel-timer): ours; Service Broker can only set another timer.
    let pair = t.pair().await?;
    let cancel = |handle| Verb::CancelConversationTimer { handle };
    t.perform(cancel(pair.initiator)).await?;
    t.timer(pair.initiator, 1).await?;
    t.timer(pair.target, 1).await?;
    t.perform(cancel(pair.initiator)).await?;
    t.advance(5).await?;
    assert!(t.receive("QI").await?.is_empty(), "the timer was taken back");
    assert_eq!(t.receive("QT").await?.types(), [system::DIALOG_TIMER], "the other side's was not");

    // What has arrived stays, and the conversation can have another timer.
    t.timer(pair.initiator, 1).await?;
    t.advance(1).await?;
    t.perform(cancel(pair.initiator)).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);
    t.timer(pair.initiator, 1).await?;
    t.advance(1).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);
});

case!(a_cancelled_timer_comes_back_with_a_rollback, [139], async |t| {
    let pair = t.pair().await?;
    t.timer(pair.initiator, 5).await?;
    let tx = t.begin().await?;
    tx.perform(Verb::CancelConversationTimer { handle: pair.initiator }).await?;
    tx.rollback().await?;
    t.advance(5).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);

    t.end(pair.target).await?;
    assert_eq!(code(t.perform(Verb::CancelConversationTimer { handle: pair.target }).await), 8458);
});

case!(a_unit_of_an_id_happens_once, [267], async |t| {
    // DIFFERENCE(unit-ids): ours; a caller that lost the answer tries again.
    let pair = t.pair().await?;
    let (id, other) = (Uuid::from_u128(7), Uuid::from_u128(8));
    let unit = |body: &str| {
        let body = Some(Arc::new(body.as_bytes().to_vec()));
        vec![Verb::Send { handles: vec![pair.initiator], message_type: Some("Text".into()), body, trace: None }]
    };
    assert_eq!(t.broker.submit_once(id, unit("first")).await?, Some(vec![Outcome::Done]));
    assert_eq!(t.broker.submit_once(id, unit("again")).await?, None);
    assert!(t.broker.unit_happened(id).await?);
    assert!(!t.broker.unit_happened(other).await?);
    // A unit that is refused has not happened.
    let unknown = vec![Verb::EndConversation { handle: ConversationHandle(Uuid::nil()), form: EndForm::Plain }];
    assert_eq!(code(t.broker.submit_once(other, unknown).await), 8426);
    assert!(!t.broker.unit_happened(other).await?);
    // The same for a transaction, whose rollback gives the id back.
    let tx = t.broker.begin().await?;
    assert!(tx.claim(other).await?);
    tx.send(pair.initiator, "Text", "rolled back").await?;
    tx.rollback().await?;
    let tx = t.broker.begin().await?;
    assert!(tx.claim(other).await?);
    tx.send(pair.initiator, "Text", "second").await?;
    tx.commit().await?;
    let tx = t.broker.begin().await?;
    assert!(!tx.claim(other).await?);
    tx.rollback().await?;
    assert_eq!(t.receive("QT").await?.texts(), ["first", "second"]);
    let t = t.restart().await?;
    assert!(t.broker.unit_happened(id).await? && t.broker.unit_happened(other).await?);
    assert_eq!(t.broker.submit_once(id, unit("after a restart")).await?, None);
    assert!(t.receive("QT").await?.is_empty());
});

case!(whether_a_unit_has_happened_is_said_when_its_transaction_ends, [267], async |t| {
    for (number, commits) in [(11, true), (12, false)] {
        let id = Uuid::from_u128(number);
        let tx = t.broker.begin().await?;
        assert!(tx.claim(id).await?);
        let mut asked = Box::pin(t.broker.unit_happened(id));
        t.still_waits(&mut asked).await;
        if commits {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        assert_eq!(asked.await?, commits);
    }
    let id = Uuid::from_u128(13);
    let tx = t.begin().await?;
    tx.savepoint("before").await?;
    assert!(tx.0.claim(id).await?);
    let mut asked = Box::pin(t.broker.unit_happened(id));
    t.still_waits(&mut asked).await;
    tx.rollback_to("before").await?;
    if t.store() == Store::Mssql {
        // A savepoint keeps the locks of what it undoes.
        tx.rollback().await?;
        assert!(!asked.await?);
    } else {
        assert!(!asked.await?, "its transaction has given the id back");
        tx.rollback().await?;
    }
});

case!(definitions_of_an_id_are_made_once, [267], async |t| {
    let id = Uuid::from_u128(9);
    let create = || vec![Verb::Define(vec![Definition::CreateWorkQueue { name: "once".into(), options: vec![] }])];
    if !t.store().is_server() {
        // DIFFERENCE(definitions-apart): the embedded store makes no definitions under an id.
        assert_eq!(code(t.broker.submit_once(id, create()).await), 60008);
        return Ok(());
    }
    assert!(t.broker.submit_once(id, create()).await?.is_some());
    assert_eq!(t.broker.submit_once(id, create()).await?, None);
    let other = Uuid::from_u128(10);
    assert_eq!(code(t.broker.submit_once(other, create()).await), 60001);
    assert!(!t.broker.unit_happened(other).await?);
});

case!(a_refused_unit_of_an_id_counts_no_rollback_and_no_attempt, [267], async |t| {
    // On SQLite such a unit was a transaction that is rolled back: five turned the queue off, and the job was dead.
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "a").await?;
    t.define("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await?;
    t.broker.push_job("w", "a").await?;
    let take = WorkVerb::Take(Box::new(Take {
        queue: "w".into(),
        count: 1,
        job_type: None,
        from: TakeFrom::Any,
        hold: Hold::Lease(None),
        taken_by: "reader".into(),
    }));
    let unit = || {
        let receive = Verb::Receive { queue: "QT".into(), top: None, from: ReceiveFrom::Any };
        let refused = Verb::EndConversation { handle: ConversationHandle(Uuid::nil()), form: EndForm::Plain };
        vec![receive, Verb::Work(take.clone()), refused]
    };
    for number in 1..=5 {
        assert_eq!(code(t.broker.submit_once(Uuid::from_u128(number), unit()).await), 8426);
    }
    assert_eq!(t.receive("QT").await?.texts(), ["a"]);
    assert_eq!(t.broker.take_jobs("w").await?[0].attempt, 1);
});
