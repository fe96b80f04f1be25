//! Message types and contracts.

use crate::rig::{Text, code};
use dialoq::protocol::system;

case!(builtins_exist, [1, 16], async |t| {
    let types = t.view("service_message_types").await?;
    let default = types.iter().find(|row| row.text("name") == "DEFAULT").expect("message type DEFAULT");
    assert_eq!(default.text("validation").trim(), "N");
    let contracts = t.view("service_contracts").await?;
    let default_contract = contracts.iter().find(|row| row.text("name") == "DEFAULT").expect("contract DEFAULT");
    let usages = t.view("service_contract_message_usages").await?;
    let usage: Vec<_> = usages
        .iter()
        .filter(|row| row.int("service_contract_id") == default_contract.int("service_contract_id"))
        .map(|row| (row.int("message_type_id"), row.int("is_sent_by_initiator"), row.int("is_sent_by_target")))
        .collect();
    assert_eq!(usage, [(default.int("message_type_id"), 1, 1)]);
    let routes = t.view("routes").await?;
    assert!(routes.iter().any(|row| row.text("name") == "AutoCreatedLocal" && row.text("address") == "LOCAL"));

    for statement in [
        "ALTER MESSAGE TYPE [DEFAULT] VALIDATION = EMPTY".to_owned(),
        "DROP MESSAGE TYPE [DEFAULT]".to_owned(),
        "DROP CONTRACT [DEFAULT]".to_owned(),
        format!("DROP MESSAGE TYPE [{}]", system::END_DIALOG),
        format!("ALTER MESSAGE TYPE [{}] VALIDATION = NONE", system::ERROR),
    ] {
        assert_eq!(code(t.define(&statement).await), 9663, "{statement}");
    }
});

case!(validation_in_the_view, [2, 3], async |t| {
    t.define(
        "CREATE XML SCHEMA COLLECTION [Schemas] AS '<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\"><xs:element name=\"a\" type=\"xs:string\"/></xs:schema>';
         CREATE MESSAGE TYPE [Plain];
         CREATE MESSAGE TYPE [WellFormed] VALIDATION = WELL_FORMED_XML;
         CREATE MESSAGE TYPE [Valid] VALIDATION = VALID_XML WITH SCHEMA COLLECTION [Schemas];",
    )
    .await?;
    let types = t.view("service_message_types").await?;
    let find = |name: &str| types.iter().find(|row| row.text("name") == name).expect("the type");
    assert_eq!(find("Plain").text("validation").trim(), "N");
    assert_eq!(find("Plain").text("validation_desc"), "NONE");
    assert_eq!(find("WellFormed").text("validation").trim(), "X");
    assert!(find("WellFormed").is_null("xml_collection_id"));
    assert_eq!(find("Valid").text("validation").trim(), "X");
    assert!(!find("Valid").is_null("xml_collection_id"));
});

case!(names_up_to_128_characters, [4], async |t| {
    let longest = "ü".repeat(128);
    t.define(&format!("CREATE MESSAGE TYPE [{longest}]")).await?;
    // DIFFERENCE(own-codes): 60003; the sources give no number for a name that is too long.
    assert_eq!(code(t.define(&format!("CREATE MESSAGE TYPE [{longest}x]")).await), 60003);
    let types = t.view("service_message_types").await?;
    assert!(types.iter().any(|row| row.text("name") == longest));
    assert!(!types.iter().any(|row| row.text("name").len() > longest.len()));
});

case!(hash_types_are_permanent, [5], async |t| {
    t.define("CREATE MESSAGE TYPE [#t]; CREATE CONTRACT [#c] ([#t] SENT BY ANY)").await?;
    let t = t.restart().await?;
    assert!(t.view("service_message_types").await?.iter().any(|row| row.text("name") == "#t"));
    assert!(t.view("service_contracts").await?.iter().any(|row| row.text("name") == "#c"));
});

case!(type_names_match_byte_by_byte, [6], async |t| {
    t.define(
        "CREATE MESSAGE TYPE [Abc]; CREATE MESSAGE TYPE [abc]; CREATE CONTRACT [Case] ([Abc] SENT BY ANY);
         ALTER SERVICE [T] (ADD CONTRACT [Case])",
    )
    .await?;
    let dialog = t.begin_dialog(t.to_target().on("Case")).await?.handle;
    assert_eq!(code(t.send(dialog, "abc", "x").await), 8431);
    t.send(dialog, "Abc", "x").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["x"]);
});

case!(types_in_use_stay, [7], async |t| {
    assert_eq!(code(t.define("DROP MESSAGE TYPE [Text]").await), 3716);
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "still here").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["still here"]);
    t.define("CREATE MESSAGE TYPE [Unused]; DROP MESSAGE TYPE [Unused]").await?;
    assert!(!t.view("service_message_types").await?.iter().any(|row| row.text("name") == "Unused"));
});

case!(validation_changes_spare_queued_messages, [8], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "not <xml").await?;
    t.define("ALTER MESSAGE TYPE [Text] VALIDATION = WELL_FORMED_XML").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["not <xml"]);
    t.send(dialog, "Text", "not <xml").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-9615], "the new validation holds for what arrives later");
});

case!(contract_without_initiator_types, [9], async |t| {
    assert_eq!(code(t.define("CREATE CONTRACT [Bad] ([Text] SENT BY TARGET, [Ask] SENT BY TARGET)").await), 8492);
    assert!(!t.view("service_contracts").await?.iter().any(|row| row.text("name") == "Bad"));
});

case!(contract_lists_a_type_once, [10], async |t| {
    assert_eq!(code(t.define("CREATE CONTRACT [Bad] ([Text] SENT BY ANY, [Text] SENT BY TARGET)").await), 8403);
    assert!(!t.view("service_contracts").await?.iter().any(|row| row.text("name") == "Bad"));
});

case!(sent_by_in_the_view, [11], async |t| {
    let contracts = t.view("service_contracts").await?;
    let contract = contracts.iter().find(|row| row.text("name") == "C").expect("contract C").int("service_contract_id");
    let types = t.view("service_message_types").await?;
    let usages = t.view("service_contract_message_usages").await?;
    let sent_by = |name: &str| {
        let id = types.iter().find(|row| row.text("name") == name).expect("the type").int("message_type_id");
        let found: Vec<_> = usages
            .iter()
            .filter(|row| row.int("service_contract_id") == contract && row.int("message_type_id") == id)
            .map(|row| (row.int("is_sent_by_initiator"), row.int("is_sent_by_target")))
            .collect();
        assert_eq!(found.len(), 1, "{name}");
        found[0]
    };
    assert_eq!(sent_by("Text"), (1, 1));
    assert_eq!(sent_by("Ask"), (1, 0));
    assert_eq!(sent_by("Answer"), (0, 1));
});

case!(contracts_cannot_be_altered, [12], async |t| {
    let before = t.view("service_contract_message_usages").await?.len();
    for statement in [
        "ALTER CONTRACT [C] ADD ([Nothing] SENT BY TARGET)",
        "ALTER CONTRACT [C] ([Text] SENT BY INITIATOR)",
        "CREATE CONTRACT [C] ([Text] SENT BY INITIATOR)",
    ] {
        assert!(t.define(statement).await.is_err(), "{statement}");
    }
    assert_eq!(t.view("service_contract_message_usages").await?.len(), before);
});

case!(contracts_in_use_stay, [13], async |t| {
    assert_eq!(code(t.define("DROP CONTRACT [C]").await), 3716);
    t.define(
        "CREATE CONTRACT [D] ([Text] SENT BY ANY);
         CREATE BROKER PRIORITY [P] FOR CONVERSATION SET (CONTRACT_NAME = [D])",
    )
    .await?;
    assert_eq!(code(t.define("DROP CONTRACT [D]").await), 3716);
    assert!(t.view("service_contracts").await?.iter().any(|row| row.text("name") == "D"));
    t.define("DROP BROKER PRIORITY [P]; DROP CONTRACT [D]").await?;
    assert!(!t.view("service_contracts").await?.iter().any(|row| row.text("name") == "D"));
});

case!(dropping_a_contract_errors_its_dialogs, [14], async |t| {
    t.define("CREATE CONTRACT [Lone] ([Text] SENT BY ANY)").await?;
    let silent = t.begin_dialog(t.to("Missing").on("Lone")).await?.handle;
    let waiting = t.begin_dialog(t.to("Missing").on("Lone")).await?.handle;
    t.send(waiting, "Text", "never arrives").await?;
    let other = t.pair().await?;
    t.define("DROP CONTRACT [Lone]").await?;
    for dialog in [silent, waiting] {
        assert_eq!(t.receive_from("QI", dialog).await?.error_codes(), [-8487]);
        assert_eq!(code(t.send(dialog, "Text", "late").await), 8429);
        t.end(dialog).await?;
    }
    assert!(t.transmission().await?.is_empty());
    assert_eq!(t.state(other.initiator).await?, "CO", "a dialog over another contract runs on");
    assert_eq!(code(t.begin_dialog(t.to("Missing").on("Lone")).await), 8425);
});

case!(dropped_contracts_are_remembered_by_their_messages, [14], async |t| {
    let pair = t.pair().await?;
    t.send(pair.target, "Text", "unread").await?;
    t.define("ALTER SERVICE [T] (DROP CONTRACT [C]); DROP CONTRACT [C]").await?;
    let received = t.receive("QI").await?;
    // The service gave the contract up first, so the peer gets that error.
    assert_eq!(received.error_codes(), [-8469]);
    assert_eq!((&*received[1].service_contract_name, received.len()), ("C", 2));
    let t = t.restart().await?;
    t.end(pair.initiator).await?;
    t.end(pair.target).await?;
});

case!(system_types_need_no_contract, [15], async |t| {
    let pair = t.pair().await?;
    t.timer(pair.initiator, 1).await?;
    t.advance(1).await?;
    t.end_with_error(pair.target, 7, "enough").await?;
    let received = t.receive("QI").await?;
    assert_eq!(received.types(), [system::DIALOG_TIMER, system::ERROR]);

    let pair = t.pair().await?;
    t.end(pair.target).await?;
    assert_eq!(t.receive_from("QI", pair.initiator).await?.types(), [system::END_DIALOG]);
});
