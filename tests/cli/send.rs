use crate::shop::{SEND_ORDER, Shop, body, lines};
#[cfg(unix)]
use dialoq::Act;
use std::io::Write;

fn order_lines(shop: &Shop, more: &[&str], input: &[u8]) -> String {
    shop.ok_with(&[SEND_ORDER, more].concat(), input)
}

#[test]
fn bodies_arrive_as_they_were_given() {
    let _limit = crate::limit();
    let shop = Shop::open();
    std::fs::write(shop.path("binary"), b"\xff\x00\x01").unwrap();
    let utf16: Vec<u8> = "grün".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(shop.path("utf16"), utf16).unwrap();
    shop.ok(&[SEND_ORDER, &["{\"sku\": \"A-1\"}", "🚚", "--file", "binary", "--file", "utf16"]].concat());
    let messages = shop.json(&["--json", "receive", "orders"]);
    assert_eq!(messages.len(), 4);
    assert_eq!(body(&messages[0]), "{\"sku\": \"A-1\"}");
    assert_eq!(body(&messages[1]), "🚚");
    assert_eq!(messages[2]["body_base64"], "/wAB");
    assert_eq!(body(&messages[3]), "grün");
    let numbers: Vec<_> = messages.iter().map(|message| message["message_sequence_number"].as_u64()).collect();
    assert_eq!(numbers, [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn a_message_can_be_without_a_body() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok(&[SEND_ORDER, &["--no-body"]].concat());
    assert!(shop.json(&["--json", "receive", "orders"])[0]["body"].is_null());
}

#[test]
fn lines_are_sent_in_order_on_one_dialog() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let input: String = (0..2_500).map(|number| format!("{{\"body\":{{\"n\":{number}}}}}\n")).collect();
    let printed = order_lines(&shop, &[], input.as_bytes());
    assert!(printed.contains("2500 messages sent"), "{printed}");
    let messages = shop.json(&["--json", "receive", "orders"]);
    assert_eq!(messages.len(), 2_500);
    for (number, message) in messages.iter().enumerate() {
        assert_eq!(body(message), format!("{{\"n\":{number}}}"));
    }
}

#[test]
fn a_dialog_per_message_gives_a_handle_per_message() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let input = "{\"body\":\"a\"}\n{\"body\":\"b\"}\n{\"body\":\"c\"}\n";
    let printed = order_lines(&shop, &["--json", "--dialog-per-message", "--end"], input.as_bytes());
    let begun = lines(&printed);
    assert_eq!(begun.len(), 3);
    assert!(begun.iter().all(|line| line["sent"] == 1 && line["ended"] == true), "{printed}");
    let messages = shop.json(&["--json", "receive", "orders"]);
    assert_eq!(messages.len(), 2, "the message and the EndDialog of one group: {messages:?}");
    assert_eq!(body(&messages[0]), "a");
}

#[test]
fn an_open_conversation_goes_on_and_is_ended() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let handle = shop.order(&["first"]);
    let line =
        format!("{{\"type\":\"//shop/PlaceOrder\",\"body\":\"third\",\"conversation\":\"{handle}\",\"end\":true}}");
    shop.ok(&["send", "--conversation", &handle, "--type", "//shop/PlaceOrder", "second"]);
    shop.ok_with(&["send"], line.as_bytes());
    let messages = shop.json(&["--json", "receive", "orders"]);
    assert_eq!(messages.iter().take(3).map(body).collect::<Vec<_>>(), ["first", "second", "third"]);
    assert!(messages[3]["message_type_name"].as_str().unwrap().ends_with("/EndDialog"));
    let error = shop.fails(1, &["send", "--conversation", &handle, "--type", "//shop/PlaceOrder", "late"]);
    assert!(error.contains("error[8426]") && error.contains("body 1"), "{error}");
}

/// It was sent as it stands, and standard input was not read.
#[test]
fn a_dash_is_no_body_and_the_error_says_how_standard_input_is_read() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE jobs");
    let error = shop.fails_with(2, &[SEND_ORDER, &["a", "-"]].concat(), b"content");
    assert!(error.contains("--lines -") && error.contains(r#"{"body":"-"}"#), "{error}");
    let error = shop.fails_with(2, &["work", "push", "jobs", "-"], b"content");
    assert!(error.contains("without BODY each line of standard input is a body"), "{error}");
    // What they say works.
    shop.ok_with(&[SEND_ORDER, &["--lines", "-"]].concat(), br#"{"body":"-"}"#);
    assert_eq!(shop.bodies("orders"), ["-"]);
    shop.ok_with(&["work", "push", "jobs"], b"-");
    assert_eq!(shop.json(&["--json", "work", "take", "jobs"])[0]["body"], "-");
}

#[test]
fn a_bad_line_is_named_and_earlier_lines_are_sent() {
    let _limit = crate::limit();
    for (bad, part) in [
        ("{oops}", "key"),
        ("{\"body\":\"x\",\"to\":\"y\"}", "unknown field"),
        ("{\"type\":\"//no/such\",\"body\":\"x\"}", "//no/such"),
        ("{\"conversation\":\"nonsense\"}", "nonsense"),
        ("{\"conversation\":\"00000000-0000-0000-0000-000000000001\"}", "00000000-0000-0000-0000-000000000001"),
    ] {
        let shop = Shop::open();
        let input = format!("{{\"body\":\"a\"}}\n\n{{\"body\":\"b\"}}\n{bad}\n{{\"body\":\"c\"}}\n");
        let error = shop.fails_with(1, SEND_ORDER, input.as_bytes());
        assert!(error.contains("line 4") && error.contains(part), "{bad}: {error}");
        assert_eq!(shop.bodies("orders"), ["a", "b"], "{bad}");
    }
}

#[test]
fn bad_lines_can_be_stepped_over() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let input = "{\"body\":\"a\"}\n{oops}\n{\"type\":\"//no/such\"}\n{\"body\":\"b\"}\n";
    let error = shop.fails_with(1, &[SEND_ORDER, &["--keep-going"]].concat(), input.as_bytes());
    for part in ["line 2", "line 3", "2 of 4 messages were refused"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(shop.bodies("orders"), ["a", "b"]);
}

#[test]
fn with_json_lines_that_are_stepped_over_are_lines_of_json() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let arguments = [&["--json"], SEND_ORDER, &["--keep-going"]].concat();
    let error = shop.fails_with(1, &arguments, b"{\"body\":\"a\"}\n{oops\n{\"type\":\"//none\"}\n");
    let errors = lines(&error);
    let said = |place: usize| errors[place]["error"]["message"].as_str().unwrap_or_default().to_owned();
    let codes: Vec<_> = errors.iter().map(|error| error["error"]["code"].clone()).collect();
    assert_eq!(codes, [60028, 8428, 60028], "{error}");
    assert!(said(0).starts_with("line 2: ") && said(1).starts_with("line 3: "), "{error}");
}

/// Each of them owns the file for a moment, or works through one that does.
#[test]
fn commands_that_run_at_once_on_one_file_all_succeed() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for round in 0..4 {
        let bodies: Vec<String> = (0..8).map(|number| format!("{round}-{number}")).collect();
        let sending: Vec<_> = bodies.iter().map(|body| shop.start(&[SEND_ORDER, &[body.as_str()]].concat())).collect();
        for sent in sending {
            let (code, error) = sent.end();
            assert_eq!((code, error.as_str()), (Some(0), ""));
        }
        let mut received = shop.bodies("orders");
        received.sort_unstable();
        assert_eq!(received, bodies);
    }
}

#[test]
fn a_dialog_for_a_refused_message_is_not_begun() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let arguments = ["send", "--from", "//shop/Checkout", "--to", "//shop/OrderService", "--contract", "//shop/Orders"];
    shop.fails(1, &[&arguments[..], &["--type", "//shop/OrderPlaced", "<a/>"]].concat());
    let status = &shop.json(&["--json", "status"])[0];
    assert_eq!(status["conversations"].as_array().map(Vec::len), Some(0), "{status}");
}

#[test]
fn the_command_line_is_checked_first() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for arguments in [
        &["send", "--from", "//a", "body"][..],
        &["send", "--conversation", "nonsense", "body"],
        &["send", "--conversation", "01890a5d-ac96-774b-bcce-b302099a8057", "--from", "a", "--to", "b", "body"],
        &["send", "--from", "a", "--to", "b", "--lifetime", "soon", "body"],
        &["end", "nonsense"],
        &["end", "01890a5d-ac96-774b-bcce-b302099a8057", "--error", "1"],
        &["receive"],
        &["receive", "orders", "--top", "0"],
        &["receive", "orders", "--wait", "5 apples"],
        &["frobnicate"],
    ] {
        let error = shop.fails(2, arguments);
        assert!(error.contains("error:") && error.contains("--help"), "{arguments:?}: {error}");
    }
    let error = shop.fails(1, &["send", "body"]);
    assert!(error.contains("--from and --to"), "{error}");
    shop.fails(1, &["send", "--from", "//shop/Checkout", "--to", "//shop/OrderService", "--file", "missing"]);
}

#[test]
fn conversations_end_in_three_ways() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let [plain, error, cleanup] = ["1", "2", "3"].map(|body| shop.order(&[body]));
    assert!(shop.ok(&["end", &plain]).contains("CONVERSING"));
    shop.ok(&["end", &error, "--error", "42", "--description", "it's \"out\" & <gone> 🚚"]);
    assert_eq!(shop.json(&["--json", "end", &cleanup, "--cleanup"])[0]["state_before"], "CO");
    let messages: Vec<_> = (0..3).flat_map(|_| shop.json(&["--json", "receive", "orders"])).collect();
    let bodies: Vec<_> = messages.iter().map(body).collect();
    assert!(bodies.iter().any(|body| body.contains("<Code>42</Code>")), "{bodies:?}");
    assert!(shop.fails(1, &["end", &cleanup]).contains("error[8426]"));
    assert!(shop.fails(1, &["end", &error, "--error", "-1", "--description", "x"]).contains("error["));
}

#[test]
fn lines_are_sent_as_they_come_and_ctrl_c_stops_between_them() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let mut running = shop.start(&[SEND_ORDER, &["--json", "--dialog-per-message"]].concat());
    let mut input = running.input.take().unwrap();
    input.write_all(b"{\"body\":\"a\"}\n").unwrap();
    assert_eq!(lines(&running.line())[0]["sent"], 1, "committed while the input is still open");
    running.interrupt();
    let (code, error) = running.end();
    assert_eq!(code, Some(130), "{error}");
    assert!(error.contains("messages sent: 1"), "{error}");
    assert_eq!(shop.bodies("orders"), ["a"]);
}

/// This process owns the file, and a transaction of it holds a group that the command waits for.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_what_waits_for_a_group_and_says_what_was_done() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], b"CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])");
    let send = ["send", "--from", "s", "--to", "s"];
    shop.ok(&[&send[..], &["held"]].concat());
    let broker = dialoq::Broker::open(&shop.url()).await.unwrap();
    let holder = broker.begin().await.unwrap();
    let held = holder.receive("q").await.unwrap().unwrap().first().handle().to_string();
    std::fs::write(shop.path("two"), format!("{{\"body\":\"1\"}}\n{{\"conversation\":\"{held}\"}}\n")).unwrap();
    let folder = shop.folder.path().display().to_string();
    let waits = |verb: &str| {
        let of_shop = dialoq::testing::describe_waits().into_iter().filter(|store| store.contains(&folder));
        of_shop.into_iter().any(|store| store.lines().any(|line| line.contains("parked for") && line.contains(verb)))
    };
    let under_way = "what was under way may have been done";
    for (verb, arguments, said) in [
        ("Send", vec!["send", "--conversation", &held, "x"], "interrupted; messages sent: 0".to_owned()),
        ("Send", [&send[..], &["--lines", "two"]].concat(), "interrupted; messages sent: 0".to_owned()),
        ("Timer", vec!["timer", &held, "1h"], format!("interrupted; {under_way}")),
        // The side of the initiator is free.
        (
            "End",
            vec!["end", "--all", "--state", "CO", "--yes"],
            format!("interrupted; 1 conversation ended; {under_way}"),
        ),
    ] {
        while waits(verb) {
            tokio::task::yield_now().await;
        }
        let running = shop.start(&arguments);
        while !waits(verb) {
            tokio::task::yield_now().await;
        }
        running.interrupt();
        let (code, error) = tokio::task::spawn_blocking(move || running.end()).await.unwrap();
        // After two seconds a note about the session that holds the group stands before it.
        let mut lines = error.lines().rev();
        let last = lines.next();
        assert_eq!((code, last), (Some(130), Some(&*said)), "{arguments:?}: {error}");
        assert!(lines.all(|line| line.starts_with("waits for conversation group ")), "{arguments:?}: {error}");
    }
    holder.rollback().await.unwrap();
    broker.close().await.unwrap();
    // The message, and the EndDialog of the side that was not held.
    assert_eq!(shop.json(&["--json", "peek", "q"]).len(), 2);
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let url = format!("{}?max_body_bytes=10", shop.url());
    let error = shop.fails(1, &[&["--db", &url], SEND_ORDER, &["1234567890", "12345678901"]].concat());
    assert!(error.contains("error[8459]") && error.contains("body 2"), "{error}");
    assert_eq!(shop.bodies("orders"), ["1234567890"]);
}

#[test]
fn an_error_of_the_other_side_is_readable() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"ALTER MESSAGE TYPE [//shop/PlaceOrder] VALIDATION = JSON");
    shop.fails(4, &[SEND_ORDER, &["no json"]].concat());
    let printed = shop.ok(&["receive", "checkout"]);
    assert!(printed.contains(" Error ") && printed.contains("-8430: ") && printed.contains("not JSON"), "{printed}");
}

#[test]
fn the_end_is_in_the_commit_of_the_last_message() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for _ in 0..5 {
        shop.ok(&[SEND_ORDER, &["--end", "first", "last"]].concat());
        let messages = shop.json(&["--json", "receive", "orders"]);
        assert!(messages[2]["message_type_name"].as_str().unwrap().ends_with("/EndDialog"), "{messages:?}");
        assert_eq!(messages[2]["message_enqueue_time"], messages[0]["message_enqueue_time"]);
    }
}

#[test]
fn messages_are_sent_and_refused_alike_if_no_process_reads_the_output() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for arguments in [&["--type", "//nowhere", "a"][..], &["--json", "--type", "//nowhere", "a"]] {
        let mut refused = shop.start(&[&SEND_ORDER[..7], arguments].concat());
        drop(refused.output.take());
        let (code, error) = refused.end();
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("8428"), "{error}");
    }
    let mut sent = shop.start(&[&["--json"], SEND_ORDER, &["--dialog-per-message"]].concat());
    drop(sent.output.take());
    let mut input = sent.input.take().unwrap();
    for _ in 0..3000 {
        writeln!(input, r#"{{"body":"a"}}"#).unwrap();
    }
    drop(input);
    let (code, error) = sent.end();
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert_eq!(shop.json(&["--json", "receive", "orders", "--follow", "--wait", "0"]).len(), 3000);
}

/// It looked like a command that hangs.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_waits_for_a_group_names_the_session_that_holds_it() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], b"CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])");
    shop.ok(&["send", "--from", "s", "--to", "s", "held"]);
    let other = shop.json(&["--json", "send", "--from", "s", "--to", "s", "other"]);
    let other_group = other[0]["conversation_group_id"].as_str().unwrap();
    let broker = dialoq::Broker::open(&shop.url()).await.unwrap();
    let holder = broker.begin().await.unwrap();
    let batch = holder.receive("q").await.unwrap().unwrap();
    let (handle, group) = (batch.first().handle().to_string(), batch.first().conversation_group_id);
    let note = format!("waits for conversation group {group}, held by session ");
    let commands = [
        vec!["send", "--conversation", &handle, "x"],
        vec!["timer", &handle, "1h"],
        vec!["reprioritise", "3", &handle],
        vec!["move", &handle, other_group],
        vec!["end", &handle],
    ];
    // All wait at the same time.
    let mut running: Vec<_> = commands.iter().map(|arguments| shop.start(arguments)).collect();
    for running in &mut running {
        let line = tokio::task::block_in_place(|| running.error_line());
        assert!(line.starts_with(&note) && line.trim_end().ends_with("ctrl-C ends the wait"), "{line}");
    }
    running.iter().for_each(|running| running.interrupt());
    for (running, arguments) in running.into_iter().zip(commands) {
        let (code, error) = tokio::task::spawn_blocking(move || running.end()).await.unwrap();
        assert_eq!(code, Some(130), "{arguments:?}: {error}");
    }
    holder.rollback().await.unwrap();
    broker.close().await.unwrap();
}
