//! Services.

use crate::rig::{Text, code};

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
