//! Delivery, the transmission queue and the broker's options.

use crate::rig::Text;
use dialoq::ConversationHandle;
use dialoq::protocol::Addressee;
use uuid::Uuid;

case!(local_delivery_is_direct, [205], async |t| {
    let pair = t.pair().await?;
    let tx = t.begin().await?;
    tx.send(pair.initiator, "Text", "there").await?;
    tx.send(pair.target, "Text", "and back").await?;
    tx.commit().await?;
    assert!(t.transmission().await?.is_empty());
    assert_eq!(
        (t.receive("QT").await?.texts(), t.receive("QI").await?.texts()),
        (vec!["there".into()], vec!["and back".into()])
    );
});

case!(waiting_messages_arrive_by_themselves, [206, 207], async |t| {
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    let dialogs = [t.dialog().await?, t.dialog().await?];
    for number in 0..3 {
        for (place, dialog) in dialogs.iter().enumerate() {
            t.send(*dialog, "Text", &format!("{place}.{number}")).await?;
        }
    }
    assert_eq!(t.transmission().await?.len(), 6);
    let t = t.restart().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert!(t.transmission().await?.is_empty());
    // Between the two no order may be assumed, so both are checked together.
    let mut received = [t.receive("QT").await?, t.receive("QT").await?];
    received.sort_by_key(|messages| messages.texts());
    for (place, messages) in received.iter().enumerate() {
        let right: Vec<String> = (0..3).map(|number| format!("{place}.{number}")).collect();
        assert_eq!(messages.texts(), right);
        assert_eq!(messages.iter().map(|m| m.message_sequence_number).collect::<Vec<_>>(), [0, 1, 2]);
    }
});

case!(order_holds_across_a_queue_turned_off_and_on, [206], async |t| {
    let dialog = t.dialog().await?;
    for number in 0..6 {
        let status = if number % 2 == 0 { "ON" } else { "OFF" };
        t.define(&format!("ALTER QUEUE [QT] WITH STATUS = {status}")).await?;
        t.send(dialog, "Text", &number.to_string()).await?;
    }
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["0", "1", "2", "3", "4", "5"]);
});

case!(what_waits_is_delivered_although_a_transaction_holds_its_group, [206], async |t| {
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "waits").await?;
    let holder = t.begin().await?;
    holder.timer(dialog, 3600).await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    // DIFFERENCE(events-after-holders): a server delivers it some seconds after the end of the transaction.
    let is_late = t.store().is_server();
    let at_once = t.receive("QT").await?;
    assert_eq!((at_once.is_empty(), t.transmission().await?.len()), (is_late, usize::from(is_late)));
    holder.rollback().await?;
    t.advance(60).await?;
    if is_late {
        assert_eq!(t.soon(async || t.receive("QT").await, |taken| !taken.is_empty()).await?.texts(), ["waits"]);
    } else {
        assert_eq!(at_once.texts(), ["waits"]);
    }
});

case!(unknown_services_are_waited_for, [208, 209, 224], async |t| {
    let dialog = t.begin_dialog(t.to("Later")).await?.handle;
    t.send(dialog, "Text", "patient").await?;
    t.advance(86400).await?;
    assert!(t.receive("QI").await?.is_empty());
    let waiting = t.transmission().await?;
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].text("to_service_name"), "Later");
    let status = t.transmission_status(dialog).await?;
    assert_ne!(status, "");
    assert_eq!(waiting[0].text("transmission_status"), status);
    t.define("CREATE SERVICE [Later] ON QUEUE [QT] ([C])").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["patient"]);
    assert_eq!(t.transmission_status(dialog).await?, "");
});

case!(status_of_nothing_is_empty, [224], async |t| {
    assert_eq!(t.transmission_status(ConversationHandle(Uuid::from_u128(1))).await?, "");
    let pair = t.pair().await?;
    assert_eq!(t.transmission_status(pair.initiator).await?, "");
});

case!(named_brokers_answer_for_their_services, [210], async |t| {
    for addressee in
        [Addressee::CurrentDatabase, Addressee::Instance(t.database().await?.text("service_broker_guid").into())]
    {
        let mut begin = t.to("Missing");
        begin.addressee = addressee.clone();
        let dialog = t.begin_dialog(begin).await?.handle;
        t.send(dialog, "Text", "x").await?;
        assert_eq!(t.receive_from("QI", dialog).await?.error_codes(), [-8490], "{addressee:?}");
    }
});

case!(other_brokers_are_waited_for, [208], async |t| {
    let mut begin = t.to_target();
    begin.addressee = Addressee::Instance(Uuid::from_u128(42).to_string().into());
    let dialog = t.begin_dialog(begin).await?.handle;
    t.send(dialog, "Text", "x").await?;
    assert!(t.receive("QT").await?.is_empty() && t.receive("QI").await?.is_empty());
    assert_ne!(t.transmission_status(dialog).await?, "");
});

case!(disabled_brokers_deliver_nothing, [220], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER DATABASE CURRENT SET DISABLE_BROKER").await?;
    assert_eq!(t.database().await?.int("is_broker_enabled"), 0);
    t.send(pair.initiator, "Text", "waits").await?;
    assert!(t.rows_of("QT").await?.is_empty());
    assert_eq!(t.transmission().await?.len(), 1);
    t.define("ALTER DATABASE CURRENT SET ENABLE_BROKER").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["waits"]);
    assert!(t.transmission().await?.is_empty());
});

case!(a_new_broker_forgets, [221], async |t| {
    let before = t.database().await?.uuid("service_broker_guid");
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "forgotten").await?;
    t.define("ALTER DATABASE CURRENT SET NEW_BROKER").await?;
    assert_ne!(t.database().await?.uuid("service_broker_guid"), before);
    assert!(t.endpoints().await?.is_empty() && t.groups().await?.is_empty() && t.transmission().await?.is_empty());
    assert!(t.rows_of("QT").await?.is_empty());
    assert!(t.send(pair.initiator, "Text", "x").await.is_err());
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "a new life").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["a new life"]);
});

case!(a_new_broker_forgets_a_conversation_whose_first_message_it_waited_for, [221], async |t| {
    let dialog = t.dialog().await?;
    let tx = t.begin().await?;
    tx.send(dialog, "Text", "first").await?;
    let mut define = Box::pin(t.define("ALTER DATABASE CURRENT SET NEW_BROKER"));
    t.still_waits(&mut define).await;
    tx.commit().await?;
    define.await?;
    t.settle().await;
    assert!(t.endpoints().await?.is_empty() && t.groups().await?.is_empty() && t.transmission().await?.is_empty());
    assert!(t.receive("QT").await?.is_empty());
});

case!(a_new_broker_keeps_its_notifications, [182, 221], async |t| {
    t.define(
        "CREATE QUEUE [Events];
         CREATE SERVICE [Listener] ON QUEUE [Events] ([http://schemas.microsoft.com/SQL/Notifications/PostEventNotification]);
         CREATE EVENT NOTIFICATION [N] ON QUEUE [QT] FOR BROKER_QUEUE_DISABLED TO SERVICE 'Listener', 'current database'",
    )
    .await?;
    t.define("ALTER DATABASE CURRENT SET NEW_BROKER").await?;
    assert_eq!(t.broker.catalog().event_notifications.len(), 1);
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "poison").await?;
    for _ in 0..5 {
        let tx = t.begin().await?;
        assert_eq!(tx.receive("QT").await?.len(), 1);
        tx.rollback().await?;
    }
    let events = t.receive("Events").await?;
    assert_eq!(events.types(), ["http://schemas.microsoft.com/SQL/Notifications/EventNotification"]);
});

case!(conversations_can_be_errored, [222], async |t| {
    let before = t.database().await?.uuid("service_broker_guid");
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "unread").await?;
    t.define("ALTER DATABASE CURRENT SET ERROR_BROKER_CONVERSATIONS").await?;
    assert_eq!(t.database().await?.uuid("service_broker_guid"), before);
    assert_eq!((t.state(pair.initiator).await?, t.state(pair.target).await?), ("ER".into(), "ER".into()));
    assert_eq!(t.receive("QI").await?.error_codes(), [-9719]);
    let at_target = t.receive("QT").await?;
    assert_eq!((at_target.error_codes(), at_target.len()), (vec![-9719], 2));
});

case!(held_messages_keep_their_reason_over_a_restart, [125, 224], async |t| {
    let (ended, broken) = (t.pair().await?, t.pair().await?);
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.send(ended.initiator, "Text", "held").await?;
    t.send(broken.initiator, "Text", "held").await?;
    t.end(ended.target).await?;
    t.end_with_error(broken.target, 1, "broken").await?;
    let before = [t.transmission_status(ended.initiator).await?, t.transmission_status(broken.initiator).await?];
    assert!(before.iter().all(|status| !status.is_empty()) && before[0] != before[1], "{before:?}");
    let t = t.restart().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let after = [t.transmission_status(ended.initiator).await?, t.transmission_status(broken.initiator).await?];
    assert_eq!(before, after);
    assert_eq!(t.transmission().await?.len(), 2);
});

case!(conversations_not_committed_yet_are_not_errored, [222, 75], async |t| {
    let (kept, undone) = (t.begin().await?, t.begin().await?);
    let kept_dialog = kept.begin_dialog(t.to_target()).await?.handle;
    undone.begin_dialog(t.to_target()).await?;
    t.define("ALTER DATABASE CURRENT SET ERROR_BROKER_CONVERSATIONS").await?;
    undone.rollback().await?;
    kept.commit().await?;
    let t = t.restart().await?;
    assert_eq!(t.endpoints().await?.len(), 1);
    assert_eq!(t.state(kept_dialog).await?, "SO");
    assert!(t.receive("QI").await?.is_empty());
});
