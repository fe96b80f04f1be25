//! Broker priorities.

use crate::rig::{Text, code};
use dialoq::{Act, Level};

case!(defaults_of_a_priority, [44], async |t| {
    t.define("CREATE BROKER PRIORITY [P] FOR CONVERSATION").await?;
    let all = t.view("conversation_priorities").await?;
    assert_eq!(all.len(), 1);
    for column in ["service_contract_id", "local_service_id", "remote_service_name"] {
        assert!(all[0].is_null(column), "{column}");
    }
    assert_eq!((all[0].text("name"), all[0].int("priority")), ("P".to_owned(), 5));
});

case!(range_of_levels, [45], async |t| {
    for (level, right) in [("0", None), ("11", None), ("1", Some(1)), ("10", Some(10)), ("DEFAULT", Some(5))] {
        let name = format!("P{level}");
        // Each has criteria of its own, which must not be the same twice.
        let made = t
            .define(&format!(
                "CREATE BROKER PRIORITY [{name}] FOR CONVERSATION SET (REMOTE_SERVICE_NAME = '{name}', PRIORITY_LEVEL = {level})"
            ))
            .await;
        assert_eq!(made.is_ok(), right.is_some(), "{level}");
        let all = t.view("conversation_priorities").await?;
        let found = all.iter().find(|row| row.text("name") == name).map(|row| row.int("priority"));
        assert_eq!(found, right, "{level}");
    }
});

case!(objects_of_a_priority, [46], async |t| {
    let set = |what: &str| format!("CREATE BROKER PRIORITY [P] FOR CONVERSATION SET ({what})");
    assert!(t.define(&set("CONTRACT_NAME = [Nowhere]")).await.is_err());
    assert!(t.define(&set("LOCAL_SERVICE_NAME = [Nowhere]")).await.is_err());
    t.define(&set("REMOTE_SERVICE_NAME = 'Nowhere'")).await?;
});

case!(eight_ranks, [47, 48, 49], async |t| {
    let patterns = [
        (1, "CONTRACT_NAME = [C], LOCAL_SERVICE_NAME = [I], REMOTE_SERVICE_NAME = 'T'"),
        (2, "CONTRACT_NAME = [C], LOCAL_SERVICE_NAME = [I], REMOTE_SERVICE_NAME = ANY"),
        (3, "CONTRACT_NAME = [C], LOCAL_SERVICE_NAME = ANY, REMOTE_SERVICE_NAME = 'T'"),
        (4, "CONTRACT_NAME = [C]"),
        // Level 5 is what no match gives, so the ranks below use other levels.
        (6, "LOCAL_SERVICE_NAME = [I], REMOTE_SERVICE_NAME = 'T'"),
        (7, "LOCAL_SERVICE_NAME = [I]"),
        (8, "REMOTE_SERVICE_NAME = 'T'"),
        (9, "CONTRACT_NAME = ANY, LOCAL_SERVICE_NAME = ANY, REMOTE_SERVICE_NAME = ANY"),
    ];
    // The worst comes first, so that neither the order of creation nor the level decides.
    for (level, criteria) in patterns.iter().rev() {
        t.define(&format!(
            "CREATE BROKER PRIORITY [P{level}] FOR CONVERSATION SET ({criteria}, PRIORITY_LEVEL = {level})"
        ))
        .await?;
    }
    for (level, _) in patterns {
        let dialog = t.dialog().await?;
        assert_eq!(t.endpoint(dialog).await?.expect("it was begun").priority, level);
        t.define(&format!("DROP BROKER PRIORITY [P{level}]")).await?;
    }
    let dialog = t.dialog().await?;
    assert_eq!(t.endpoint(dialog).await?.expect("it was begun").priority, 5);
});

case!(remote_names_match_byte_by_byte, [50], async |t| {
    t.define("CREATE BROKER PRIORITY [P] FOR CONVERSATION SET (REMOTE_SERVICE_NAME = 't', PRIORITY_LEVEL = 9)").await?;
    let dialog = t.dialog().await?;
    assert_eq!(t.endpoint(dialog).await?.expect("it was begun").priority, 5);
});

case!(each_side_decides_alone, [51], async |t| {
    t.define(
        "CREATE BROKER PRIORITY [P] FOR CONVERSATION
            SET (CONTRACT_NAME = [C], LOCAL_SERVICE_NAME = [I], REMOTE_SERVICE_NAME = 'T', PRIORITY_LEVEL = 7)",
    )
    .await?;
    let pair = t.pair().await?;
    assert_eq!(t.endpoint(pair.initiator).await?.expect("initiator").priority, 7);
    assert_eq!(t.endpoint(pair.target).await?.expect("target").priority, 5);
});

case!(a_contract_rules_both_sides, [52, 53], async |t| {
    let before = t.pair().await?;
    t.define("CREATE BROKER PRIORITY [P] FOR CONVERSATION SET (CONTRACT_NAME = [C], PRIORITY_LEVEL = 8)").await?;
    let pair = t.pair().await?;
    assert_eq!(t.levels_of(pair).await?, (8, 8));
    assert_eq!(t.levels_of(before).await?, (5, 5));
    t.define("ALTER BROKER PRIORITY [P] FOR CONVERSATION SET (PRIORITY_LEVEL = 2)").await?;
    assert_eq!(t.levels_of(pair).await?, (8, 8));
    t.define("DROP BROKER PRIORITY [P]").await?;
    assert_eq!(t.levels_of(pair).await?, (8, 8));
    t.send(pair.initiator, "Text", "x").await?;
    assert_eq!(t.receive("QT").await?[0].priority, 8);
});

case!(targets_get_their_level_on_arrival, [54], async |t| {
    let dialog = t.dialog().await?;
    t.define("CREATE BROKER PRIORITY [P] FOR CONVERSATION SET (CONTRACT_NAME = [C], PRIORITY_LEVEL = 8)").await?;
    t.send(dialog, "Text", "x").await?;
    assert_eq!(t.receive("QT").await?[0].priority, 8);
    assert_eq!(t.endpoint(dialog).await?.expect("initiator").priority, 5);
});

case!(highest_level_first, [55, 58], async |t| {
    for honor in ["OFF", "ON"] {
        t.define(&format!("ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY {honor}")).await?;
        for level in [1, 5, 10] {
            t.send_at_level(level, &level.to_string()).await?;
        }
        for right in ["10", "5", "1"] {
            assert_eq!(t.receive_top("QT", 1).await?.texts(), [right], "HONOR {honor}");
        }
    }
});

case!(silent_conversations_lend_no_level, [56], async |t| {
    // At the initiator, whose groups the application chooses: a silent one at 10 and a talking one at 1, against 5.
    t.levels_by_target(&[1, 5, 10]).await?;
    let silent = t.begin_dialog(t.to("To10")).await?;
    let low = t.begin_dialog(t.to("To1").in_group(silent.group)).await?.handle;
    let middle = t.begin_dialog(t.to("To5")).await?.handle;
    t.answer(low, "low").await?;
    t.answer(middle, "middle").await?;
    assert_eq!(t.receive("QI").await?.texts(), ["middle"]);
    assert_eq!(t.receive("QI").await?.texts(), ["low"]);
    // With a message of its own the level-10 conversation lifts its group.
    t.answer(low, "low").await?;
    t.answer(middle, "middle").await?;
    t.answer(silent.handle, "high").await?;
    assert_eq!(t.receive("QI").await?.texts(), ["high", "low"]);
});

case!(levels_rule_inside_a_group, [57], async |t| {
    t.levels_by_target(&[3, 9]).await?;
    let low = t.begin_dialog(t.to("To3")).await?;
    let high = t.begin_dialog(t.to("To9").in_group(low.group)).await?;
    for text in ["1", "2"] {
        t.answer(low.handle, &format!("low {text}")).await?;
        t.answer(high.handle, &format!("high {text}")).await?;
    }
    let received = t.receive("QI").await?;
    assert_eq!(received.texts(), ["high 1", "high 2", "low 1", "low 2"]);
});

case!(honor_off_ignores_levels_when_sending, [59, 61], async |t| {
    assert_eq!(t.database().await?.int("is_honor_broker_priority_on"), 0);
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    for level in [1, 10] {
        t.send_at_level(level, &level.to_string()).await?;
    }
    let waiting: Vec<i64> = t.transmission().await?.iter().map(|row| row.int("priority")).collect();
    assert_eq!(waiting, [1, 10], "the view shows the level of the sending endpoint");
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let arrived = t.rows_of("QT").await?;
    assert_eq!(t.bodies(&arrived), ["1", "10"], "they arrive in the order they were sent");
});

case!(honor_on_sends_by_level, [60], async |t| {
    t.define("ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY ON; ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    for level in [1, 10, 5] {
        let dialog = t.begin_at_level(level).await?;
        for number in 0..2 {
            t.send(dialog, "Text", &format!("{level}.{number}")).await?;
        }
    }
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let mut arrived = t.rows_of("QT").await?;
    arrived.sort_by_key(|row| row.int("queuing_order"));
    assert_eq!(t.bodies(&arrived), ["10.0", "10.1", "5.0", "5.1", "1.0", "1.1"]);
});

case!(a_message_that_waits_to_be_sent_keeps_its_level, [60], async |t| {
    t.define("ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY ON; ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    let (first, second, third) = (t.begin_at_level(5).await?, t.begin_at_level(5).await?, t.begin_at_level(4).await?);
    t.send(first, "Text", "first 0").await?;
    t.send(second, "Text", "second 0").await?;
    t.send(third, "Text", "third 0").await?;
    t.broker.reprioritise(first, Level::new(1)).await?;
    t.broker.reprioritise(third, Level::new(10)).await?;
    t.send(first, "Text", "first 1").await?;
    t.send(third, "Text", "third 1").await?;
    t.send(second, "Text", "second 1").await?;
    let t = t.restart().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let mut arrived = t.rows_of("QT").await?;
    arrived.sort_by_key(|row| row.int("queuing_order"));
    // A message never goes before an earlier one of its conversation, whose level may be lower.
    assert_eq!(t.bodies(&arrived), ["first 0", "second 0", "second 1", "third 0", "third 1", "first 1"]);
});

case!(high_levels_starve_low_ones, [62], async |t| {
    t.send_at_level(1, "starved").await?;
    for round in 0..30 {
        t.send_at_level(10, &round.to_string()).await?;
        assert_eq!(t.receive("QT").await?.texts(), [round.to_string()]);
    }
    assert_eq!(t.receive("QT").await?.texts(), ["starved"]);
});

case!(same_criteria_twice, [46], async |t| {
    // DIFFERENCE(duplicate-priority-criteria): the sources do not say; two of the same criteria are refused.
    t.define("CREATE BROKER PRIORITY [P] FOR CONVERSATION SET (CONTRACT_NAME = [C], PRIORITY_LEVEL = 3)").await?;
    let again =
        t.define("CREATE BROKER PRIORITY [P2] FOR CONVERSATION SET (CONTRACT_NAME = [C], PRIORITY_LEVEL = 4)").await;
    assert_eq!(code(again), 60007);
});
