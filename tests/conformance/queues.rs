//! Queues.

use crate::rig::code;

case!(defaults_of_a_queue, [30], async |t| {
    t.define("CREATE QUEUE [Q]").await?;
    let q = t.queue("Q").await?;
    let flags = [
        "is_receive_enabled",
        "is_enqueue_enabled",
        "is_retention_enabled",
        "is_activation_enabled",
        "is_poison_message_handling_enabled",
    ]
    .map(|column| q.int(column));
    assert_eq!(flags, [1, 1, 0, 0, 1]);
});

case!(activation_clause_turns_activation_on, [31], async |t| {
    t.define("CREATE QUEUE [Q] WITH ACTIVATION (PROCEDURE_NAME = p, MAX_QUEUE_READERS = 3, EXECUTE AS SELF)").await?;
    let q = t.queue("Q").await?;
    assert_eq!((q.int("is_activation_enabled"), q.int("max_readers")), (1, 3));
    assert!(q.text("activation_procedure").contains('p'));
});

case!(limits_of_max_queue_readers, [32], async |t| {
    for (limit, accepted) in [(-1, false), (32768, false), (0, true), (32767, true)] {
        let name = format!("Q{limit}");
        let made = t
            .define(&format!(
                "CREATE QUEUE [{name}] WITH ACTIVATION (PROCEDURE_NAME = p, MAX_QUEUE_READERS = {limit}, EXECUTE AS SELF)"
            ))
            .await;
        assert_eq!(made.is_ok(), accepted, "{limit}");
        if accepted {
            assert_eq!(t.queue(&name).await?.int("max_readers"), limit);
        }
    }
});

case!(limit_zero_warns, [33], async |t| {
    let warnings = t
        .define("CREATE QUEUE [Q] WITH ACTIVATION (PROCEDURE_NAME = p, MAX_QUEUE_READERS = 0, EXECUTE AS SELF)")
        .await?;
    assert!(warnings.iter().any(|warning| warning.contains("9648")), "{warnings:?}");
    assert_eq!(t.queue("Q").await?.int("is_activation_enabled"), 1);
    let warnings = t
        .define("CREATE QUEUE [Q1] WITH ACTIVATION (PROCEDURE_NAME = p, MAX_QUEUE_READERS = 1, EXECUTE AS SELF)")
        .await?;
    assert!(warnings.is_empty(), "{warnings:?}");
});

case!(temporary_procedures, [34], async |t| {
    // DIFFERENCE(no-procedures): a procedure here is the name of a handler, so only its name can be judged.
    let temporary = "CREATE QUEUE [Q] WITH ACTIVATION (PROCEDURE_NAME = [#p], MAX_QUEUE_READERS = 1, EXECUTE AS SELF)";
    assert_eq!(code(t.define(temporary).await), 9742);
    let missing = "CREATE QUEUE [Q] WITH ACTIVATION (STATUS = ON, MAX_QUEUE_READERS = 1, EXECUTE AS SELF)";
    assert_eq!(code(t.define(missing).await), 9614);
});

case!(queue_names, [35], async |t| {
    assert_eq!(code(t.define("CREATE QUEUE [#q]").await), 60003);
    t.define("CREATE QUEUE [Mixed Case]").await?;
    assert_eq!(code(t.define("CREATE QUEUE [MIXED case]").await), 60001, "queues follow the collation, not the bytes");
    assert!(t.receive("mixed CASE").await?.is_empty());
});

case!(alter_leaves_the_rest_alone, [36], async |t| {
    t.define(
        "CREATE QUEUE [Q] WITH STATUS = OFF, POISON_MESSAGE_HANDLING (STATUS = OFF),
            ACTIVATION (STATUS = OFF, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 7, EXECUTE AS OWNER)",
    )
    .await?;
    let before = t.queue("Q").await?;
    t.define("ALTER QUEUE [Q] WITH RETENTION = ON").await?;
    let after = t.queue("Q").await?;
    assert_eq!(after.int("is_retention_enabled"), 1);
    for column in [
        "is_receive_enabled",
        "is_enqueue_enabled",
        "is_poison_message_handling_enabled",
        "is_activation_enabled",
        "max_readers",
    ] {
        assert_eq!(before.int(column), after.int(column), "{column}");
    }
    assert_eq!(after.int("max_readers"), 7);
    assert_eq!(before.text("activation_procedure"), after.text("activation_procedure"));
});

case!(naming_a_procedure_does_not_turn_activation_on, [37], async |t| {
    t.define(
        "CREATE QUEUE [Q] WITH ACTIVATION (STATUS = OFF, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 1, EXECUTE AS SELF);
         ALTER QUEUE [Q] WITH ACTIVATION (PROCEDURE_NAME = p2)",
    )
    .await?;
    let q = t.queue("Q").await?;
    assert_eq!(q.int("is_activation_enabled"), 0);
    assert!(q.text("activation_procedure").contains("p2"));
});

case!(activation_drop, [38], async |t| {
    t.define(
        "CREATE QUEUE [Q] WITH ACTIVATION (PROCEDURE_NAME = p, MAX_QUEUE_READERS = 1, EXECUTE AS SELF);
         ALTER QUEUE [Q] WITH ACTIVATION (DROP)",
    )
    .await?;
    let q = t.queue("Q").await?;
    assert_eq!(q.int("is_activation_enabled"), 0);
    for column in ["activation_procedure", "max_readers", "execute_as_principal_id"] {
        assert!(q.is_null(column) || q.try_int(column) == Some(0), "{column} is gone");
    }
});

case!(status_rules_both_directions, [39], async |t| {
    for (status, flag) in [("OFF", 0), ("ON", 1)] {
        t.define(&format!("ALTER QUEUE [QT] WITH STATUS = {status}")).await?;
        let q = t.queue("QT").await?;
        assert_eq!((q.int("is_receive_enabled"), q.int("is_enqueue_enabled")), (flag, flag));
    }
});

case!(queues_are_read_only_to_sql, [40], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "untouched").await?;
    assert_eq!(t.rows_of("QT").await?.len(), 1, "SELECT works");
    let view = t.queue_view();
    for statement in [
        format!("DELETE FROM {view}"),
        format!("UPDATE {view} SET priority = 10"),
        format!("INSERT INTO {view} DEFAULT VALUES"),
        format!("CREATE INDEX tampering ON {view} (priority)"),
    ] {
        assert!(t.sql(&statement).await.is_err(), "{statement}");
    }
    assert_eq!(t.rows_of("QT").await?.len(), 1);
});

case!(queues_in_use_stay, [41], async |t| {
    assert_eq!(code(t.define("DROP QUEUE [QT]").await), 3716);
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "x").await?;
    assert_eq!(t.receive("QT").await?.len(), 1);
    t.define("CREATE QUEUE [Q]; DROP QUEUE [Q]").await?;
    assert!(t.receive("Q").await.is_err());
});

case!(activation_and_notifications_exclude_each_other, [42], async |t| {
    t.define(
        "CREATE QUEUE [Events];
         CREATE SERVICE [Listener] ON QUEUE [Events] ([http://schemas.microsoft.com/SQL/Notifications/PostEventNotification]);
         CREATE QUEUE [Active] WITH ACTIVATION (PROCEDURE_NAME = p, MAX_QUEUE_READERS = 1, EXECUTE AS SELF);
         CREATE QUEUE [Watched];
         CREATE EVENT NOTIFICATION [N] ON QUEUE [Watched] FOR QUEUE_ACTIVATION TO SERVICE 'Listener', 'current database'",
    )
    .await?;
    let notify = "CREATE EVENT NOTIFICATION [N] ON QUEUE [Active] FOR QUEUE_ACTIVATION TO SERVICE 'Listener', 'current database'";
    assert_eq!(code(t.define(notify).await), 9718);
    let activate = "ALTER QUEUE [Watched] WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 1, EXECUTE AS SELF)";
    assert_eq!(code(t.define(activate).await), 9717);
});
