//! Services.

use crate::rig::{Pair, Rig, Session, Text, code};
use dialoq::protocol::ReceiveFrom;
use dialoq::status::{Finding, FindingKind, MessageFilter, ReasonKind};
use dialoq::{Error, Result};
use std::time::Duration;
use tokio::task::JoinHandle;

case!(services_without_contracts_may_begin, [17], async |t| {
    t.define("CREATE SERVICE [Bare] ON QUEUE [QI]").await?;
    for contract in ["C", "DEFAULT"] {
        t.begin_dialog(t.to_target().from("Bare").on(contract)).await?;
    }
    let dialog = t.begin_dialog(t.to_target().from("Bare")).await?.handle;
    t.send(dialog, "Text", "hello").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["hello"]);
});

case!(unlisted_contracts_come_back_as_errors, [18, 19], async |t| {
    t.define("CREATE SERVICE [Bare] ON QUEUE [QT]").await?;
    let dialog = t.begin_dialog(t.to("Bare").on("C")).await?.handle;
    t.send(dialog, "Text", "refused").await?;
    assert_eq!(t.state(dialog).await?, "ER");
    assert!(t.receive("QT").await?.is_empty());

    let waiting = t.transmission().await?;
    assert_eq!(waiting.len(), 1, "the message is held");
    assert_eq!(waiting[0].text("conversation_handle"), dialog.to_string());
    assert_eq!(t.receive("QI").await?.error_codes(), [-8408]);
    assert_eq!(t.transmission().await?.len(), 1, "still held after the Error was read");
    t.end(dialog).await?;
    assert!(t.transmission().await?.is_empty());
    assert!(t.endpoints().await?.is_empty());
});

case!(service_lists_a_contract_once, [20], async |t| {
    assert_eq!(code(t.define("CREATE SERVICE [Twice] ON QUEUE [QT] ([C], [C])").await), 8404);
    assert!(!t.view("services").await?.iter().any(|row| row.text("name") == "Twice"));
});

case!(alter_service_must_change_something, [21], async |t| {
    assert_eq!(code(t.define("ALTER SERVICE [T]").await), 8493);
});

case!(moving_a_service_moves_its_messages, [22], async |t| {
    t.define("CREATE QUEUE [Q2]; CREATE SERVICE [Other] ON QUEUE [QT] ([C])").await?;
    let dialog = t.dialog().await?;
    let other = t.begin_dialog(t.to("Other")).await?.handle;
    for text in ["1", "2"] {
        t.send(dialog, "Text", text).await?;
        t.send(other, "Text", &format!("other {text}")).await?;
    }
    t.define("ALTER SERVICE [T] ON QUEUE [Q2]").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["other 1", "other 2"]);
    assert!(t.receive("QT").await?.is_empty());
    t.send(dialog, "Text", "3").await?;
    assert_eq!(t.receive("Q2").await?.texts(), ["1", "2", "3"]);
});

case!(a_script_may_take_back_what_it_did, [22, 27], async |t| {
    t.define("CREATE QUEUE [Q2]; CREATE QUEUE [Q3]; CREATE SERVICE [Other] ON QUEUE [QT] ([C])").await?;
    let dialog = t.dialog().await?;
    let other = t.begin_dialog(t.to("Other")).await?.handle;
    t.send(dialog, "Text", "1").await?;
    t.send(other, "Text", "1").await?;
    t.define("ALTER SERVICE [T] ON QUEUE [Q2]; ALTER SERVICE [T] ON QUEUE [Q3]").await?;
    assert_eq!(t.receive("Q3").await?.texts(), ["1"]);
    t.send(dialog, "Text", "2").await?;
    t.define("ALTER SERVICE [T] ON QUEUE [QT]; ALTER SERVICE [T] ON QUEUE [Q3]; ALTER SERVICE [T] (DROP CONTRACT [C])")
        .await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-8469]);
    t.define("ALTER SERVICE [Other] ON QUEUE [Q2]; DROP SERVICE [Other]; DROP QUEUE [Q2]").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-8470]);
    assert!(t.receive("QT").await?.is_empty());
    for script in [
        "ALTER QUEUE [QT] WITH STATUS = OFF; ALTER QUEUE [QT] WITH STATUS = ON",
        "ALTER QUEUE [QT] WITH STATUS = OFF; DROP QUEUE [QT]; CREATE QUEUE [QT]",
        "CREATE SERVICE [S] ON QUEUE [QT]; ALTER SERVICE [S] ON QUEUE [Q3]; ALTER SERVICE [S] (ADD CONTRACT [C]); DROP SERVICE [S]",
        "CREATE CONTRACT [K] ([Text] SENT BY ANY); DROP CONTRACT [K]; CREATE CONTRACT [K] ([Text] SENT BY ANY); DROP CONTRACT [K]",
        "CREATE SERVICE [E] ON QUEUE [QT]; CREATE EVENT NOTIFICATION [N] ON QUEUE [Q3] FOR QUEUE_ACTIVATION TO SERVICE 'E', 'current database'; \
         DROP EVENT NOTIFICATION [N] ON QUEUE [Q3]; DROP SERVICE [E]",
        "CREATE WORK QUEUE [W]; CREATE WORK SCHEDULE [Z] ON WORK QUEUE [W] WITH CRON = '0 3 * * *'; \
         ALTER WORK SCHEDULE [Z] WITH STATUS = OFF; DROP WORK SCHEDULE [Z]; ALTER WORK QUEUE [W] WITH STATUS = OFF; DROP WORK QUEUE [W]",
        "CREATE WORK QUEUE [W]; CREATE WORK SCHEDULE [Z] ON WORK QUEUE [W] WITH CRON = '0 3 * * *'; DROP WORK SCHEDULE [Z]; \
         DROP WORK QUEUE [W]; CREATE WORK QUEUE [W]; DROP WORK QUEUE [W]",
    ] {
        t.define(script).await?;
    }
});

case!(a_definition_comes_while_transactions_take_turns, [22], async |t| {
    t.define("CREATE QUEUE [Q2]").await?;
    let pairs = [t.pair().await?, t.pair().await?];
    let next = async |turn: usize| {
        let pair = pairs[turn % 2];
        t.send(pair.initiator, "Text", "next").await?;
        let tx = t.begin().await?;
        let received = tx.receive_where("QT", ReceiveFrom::Conversation(pair.target)).await;
        Ok::<_, Error>((tx, received))
    };
    let (mut holder, received) = next(0).await?;
    assert_eq!(received?.len(), 1);
    let definer = t.broker.clone();
    let mut definition = tokio::spawn(async move { definer.execute("ALTER SERVICE [T] ON QUEUE [Q2]").await });
    t.still_waits(&mut definition).await;
    // At each moment one of them holds a conversation of the service, until the definition has waited for long enough.
    for turn in 1.. {
        let (tx, received) = next(turn).await?;
        if !received.is_ok_and(|received| received.len() == 1) {
            break;
        }
        holder.commit().await?;
        holder = tx;
        t.advance_ms(100).await?;
    }
    holder.commit().await?;
    definition.await.unwrap()?;
    assert_eq!(t.wait_receive("Q2", Some(60)).await?.len(), 1);
});

/// Transactions hold one of two conversations with `QT`, and a definition that needs both waits, until it holds receives back. Gives the
/// transaction that is open then, and the conversation that it does not hold; a message of that one waits.
async fn held_back(t: &Rig) -> Result<(Session, Pair, JoinHandle<Result<Vec<String>>>)> {
    t.define("CREATE QUEUE [Q2]").await?;
    let (mut busy, mut free) = (t.pair().await?, t.pair().await?);
    let take = async |pair: Pair| {
        t.send(pair.initiator, "Text", "of a transaction").await?;
        let tx = t.begin().await?;
        let received = tx.receive_from("QT", pair.target).await?;
        Ok::<_, Error>((tx, received.len() == 1))
    };
    let (mut holder, _) = take(busy).await?;
    let definer = t.broker.clone();
    let mut definition = tokio::spawn(async move { definer.execute("ALTER SERVICE [T] ON QUEUE [Q2]").await });
    t.still_waits(&mut definition).await;
    loop {
        t.advance_ms(300).await?;
        t.send(free.initiator, "Text", "held back").await?;
        if t.receive_from("QT", free.target).await?.is_empty() {
            return Ok((holder, free, definition));
        }
        // A server's definition tries again by itself, the embedded one when the conversation that it waits for is free.
        if !t.store().is_server()
            && let (next, true) = take(free).await?
        {
            std::mem::replace(&mut holder, next).commit().await?;
            std::mem::swap(&mut busy, &mut free);
        }
    }
}

case!(a_definition_that_waits_holds_receives_back, [22], async |t| {
    let (holder, free, definition) = held_back(&t).await?;
    let group = t.endpoint(free.target).await?.expect("it is open").group;
    for from in
        [ReceiveFrom::Any, ReceiveFrom::Oldest, ReceiveFrom::Group(group), ReceiveFrom::Conversation(free.target)]
    {
        assert!(t.receive_where("QT", from).await?.is_empty(), "{from:?}");
    }
    let other = t.begin().await?;
    assert!(other.receive("QT").await?.is_empty());
    assert_eq!(other.get_group("QT").await?, None);
    other.rollback().await?;
    held_back_is_said(&t).await?;
    // The one that holds a conversation finishes its work.
    assert_eq!(holder.receive_from("QT", free.target).await?.texts()[0], "held back");
    holder.rollback().await?;
    definition.await.unwrap()?;
    assert!(t.receive("QT").await?.is_empty());
    // A server looks through the conversations of a service that moved, and holds each for a moment.
    assert!(!t.wait_receive("Q2", Some(60)).await?.is_empty(), "nothing is held back any more");
    assert_eq!(t.broker.status().await?.queues.iter().find_map(|queue| queue.receives_held_until), None);
});

/// A full queue gave nothing, and neither `status`, `explain` nor `doctor` said why.
async fn held_back_is_said(t: &Rig) -> Result<()> {
    let status = t.broker.status().await?;
    let until = |name| status.queues.iter().find(|queue| queue.name == name).and_then(|it| it.receives_held_until);
    let (until, of_other) = (until("QT").expect("receives are held back"), until("QI"));
    assert!(until > status.at && of_other.is_none(), "{until} {} {of_other:?}", status.at);
    let said = format!(
        "a definition waits for open transactions, and holds receives back from queue 'QT' until {until} at most"
    );
    let mut explained = t.broker.explain("QT").await?.reasons.into_iter();
    let reason = explained.find(|reason| reason.kind == ReasonKind::ReceivesHeld).expect("a reason of its own");
    assert_eq!((reason.what.as_str(), reason.is_blocking), (said.as_str(), true));
    let message = t.broker.peek("QT", &MessageFilter::default(), 1, 0).await?.messages.remove(0).message_id;
    let explained = t.broker.explain(&message.to_string()).await?.reasons;
    assert!(explained.iter().any(|reason| reason.what == said), "{explained:?}");
    let findings = t.broker.doctor_after(Duration::ZERO).await?;
    let waiting = |finding: &&Finding| finding.kind == FindingKind::WaitingMessages && finding.subject == "QT";
    let waiting = findings.iter().find(waiting).expect("messages wait");
    assert!(waiting.what.ends_with(&said) && waiting.advice == reason.advice, "{waiting}");
    Ok(())
}

case!(receives_are_held_back_for_a_while_only, [22], async |t| {
    let (holder, free, definition) = held_back(&t).await?;
    // A receiver that waits is woken at the end of the time, though nothing arrives then.
    let receiver = t.clone();
    let mut waiting = Box::pin(async move { receiver.wait_for_conversation("QT", free.target, 3600).await });
    t.still_waits(&mut waiting).await;
    t.advance_ms(1001).await?;
    assert_eq!(waiting.await?.texts()[0], "held back");
    holder.commit().await?;
    definition.await.unwrap()?;
});

case!(waiting_for_a_conversation_fails_when_its_service_moves, [23], async |t| {
    t.define("CREATE QUEUE [Q2]").await?;
    let pair = t.pair().await?;
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.wait_for_conversation("QT", pair.target, 3600).await });
    t.still_waits(&mut waiting).await;
    t.define("ALTER SERVICE [T] ON QUEUE [Q2]").await?;
    assert!(waiting.await.is_err());
});

case!(contracts_can_be_added, [24], async |t| {
    t.define("CREATE CONTRACT [Later] ([Text] SENT BY ANY); CREATE SERVICE [Bare] ON QUEUE [QT]").await?;
    t.define("ALTER SERVICE [Bare] (ADD CONTRACT [Later])").await?;
    let dialog = t.begin_dialog(t.to("Bare").on("Later")).await?.handle;
    t.send(dialog, "Text", "accepted").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["accepted"]);
});

case!(contracts_can_be_dropped, [25, 26], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER SERVICE [T] (DROP CONTRACT [C])").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-8469]);
    assert_eq!(t.state(pair.initiator).await?, "ER");
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "refused").await?;
    assert_eq!(t.receive_from("QI", dialog).await?.error_codes(), [-8408]);
});

case!(dropping_a_service_sends_errors_to_the_peers, [27], async |t| {
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "never read").await?;
    t.define("DROP SERVICE [T]").await?;
    assert!(t.rows_of("QT").await?.is_empty());
    assert_eq!(t.receive("QI").await?.error_codes(), [-8470]);
    assert!(t.endpoint(pair.target).await?.is_none());
    assert_eq!(t.state(pair.initiator).await?, "ER");

    t.define("CREATE SERVICE [T] ON QUEUE [QT] ([C])").await?;
    let pair = t.pair().await?;
    t.send(pair.target, "Text", "never read either").await?;
    t.define("DROP SERVICE [I]").await?;
    assert!(t.rows_of("QI").await?.is_empty());
    assert_eq!(t.receive("QT").await?.error_codes(), [-8470]);
});

case!(services_named_by_priorities_stay, [28], async |t| {
    t.define("CREATE BROKER PRIORITY [P] FOR CONVERSATION SET (LOCAL_SERVICE_NAME = [T])").await?;
    assert_eq!(code(t.define("DROP SERVICE [T]").await), 3716);
    t.define("DROP BROKER PRIORITY [P]; DROP SERVICE [T]").await?;
});

case!(services_share_a_queue, [29], async |t| {
    t.define("CREATE SERVICE [T2] ON QUEUE [QT] ([C])").await?;
    let one = t.dialog().await?;
    let two = t.begin_dialog(t.to("T2").related_to(one)).await?.handle;
    t.send(one, "Text", "for T").await?;
    t.send(two, "Text", "for T2").await?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let received = t.receive("QT").await?;
        assert_eq!(received.len(), 1, "no group holds conversations of two services");
        seen.push((received[0].service_name.to_string(), received.texts()[0].clone()));
    }
    seen.sort();
    assert_eq!(seen, [("T".into(), "for T".into()), ("T2".into(), "for T2".into())]);
});
