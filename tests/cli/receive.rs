use crate::shop::{SEND_ORDER, Shop, body, lines, text};
use dialoq::Act as _;

#[test]
fn an_empty_receive_has_an_exit_code_of_its_own() {
    let _limit = crate::limit();
    let shop = Shop::open();
    assert!(shop.fails(3, &["receive", "orders"]).contains("'orders'"));
    assert_eq!(shop.fails(3, &["--json", "receive", "orders", "--wait", "10ms"]), "");
    assert!(shop.fails(1, &["receive", "nowhere"]).contains("'nowhere'"));
}

#[test]
fn top_and_where_choose() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let first = shop.order(&["a", "b", "c"]);
    shop.order(&["other"]);
    let message = &shop.json(&["--json", "receive", "orders", "--top", "1"])[0];
    assert_eq!(body(message), "a");
    let [handle, group] = ["conversation_handle", "conversation_group_id"].map(|name| message[name].as_str().unwrap());
    assert_ne!(handle, first, "each side has a handle of its own");
    assert_eq!(body(&shop.json(&["--json", "receive", "orders", "--conversation", handle, "--top", "1"])[0]), "b");
    assert_eq!(body(&shop.json(&["--json", "receive", "orders", "--group", group])[0]), "c");
    assert_eq!(shop.bodies("orders"), ["other"]);
}

#[test]
fn end_answers_the_end_of_dialogs() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok(&[SEND_ORDER, &["a", "--end"]].concat());
    assert_eq!(shop.json(&["--json", "receive", "orders", "--end"]).len(), 2);
    let status = &shop.json(&["--json", "status"])[0];
    let states: Vec<_> = status["conversations"].as_array().unwrap().iter().map(|row| row["state"].clone()).collect();
    assert!(states.iter().all(|state| state == "CD"), "{states:?}");
}

#[test]
fn what_stands_behind_an_error_is_printed_before_its_conversation_is_ended() {
    let _limit = crate::limit();
    for follows in [false, true] {
        let shop = Shop::open();
        let order = shop.order(&["a", "b", "c"]);
        shop.ok(&["end", &order, "--error", "5", "--description", "why"]);
        let mut arguments = vec!["--json", "receive", "orders", "--top", "1", "--end"];
        arguments.extend(["--follow", "--wait", "1ms"].iter().filter(|_| follows));
        let messages = shop.json(&arguments);
        assert!(messages[0]["message_type_name"].as_str().unwrap().ends_with("/Error"), "{messages:?}");
        assert_eq!(messages[1..].iter().map(body).collect::<Vec<_>>(), ["a", "b", "c"]);
        shop.fails(3, &["peek", "orders"]);
    }
}

#[test]
fn end_ends_a_conversation_once_that_has_both_an_error_and_an_end_of_dialog() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    let target = &shop.json(&["--json", "receive", "orders"])[0];
    shop.ok(&["end", target["conversation_handle"].as_str().unwrap()]);
    shop.ok_with(&["apply", "-"], b"ALTER DATABASE CURRENT SET ERROR_BROKER_CONVERSATIONS");
    let messages = shop.json(&["--json", "receive", "checkout", "--end"]);
    let types: Vec<_> = messages.iter().map(|message| message["message_type_name"].as_str().unwrap()).collect();
    assert!(types.len() == 2 && types[0].ends_with("/Error") && types[1].ends_with("/EndDialog"), "{types:?}");
    shop.fails(3, &["receive", "checkout"]);
}

#[test]
fn hostile_bodies_do_not_rule_the_terminal() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["\u{1b}]0;title\u{7}\u{1b}[2J"]);
    let printed = shop.ok(&["receive", "orders"]);
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    assert!(printed.contains("\\u{1b}]0;title\\u{7}"), "{printed}");
}

#[test]
fn receive_follow_ends_by_ctrl_c_and_printed_messages_are_removed() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    let mut running = shop.start(&["--json", "receive", "orders", "--follow"]);
    assert_eq!(body(&lines(&running.line())[0]), "a");
    // Another process sends through the one that owns the file.
    shop.order(&["beside it"]);
    assert_eq!(body(&lines(&running.line())[0]), "beside it");
    running.interrupt();
    let (code, error) = running.end();
    assert_eq!(code, Some(130), "{error}");
    assert!(error.contains("interrupted"), "{error}");
    // A message printed just before ctrl-C may be committed or not; it stays or is gone.
    let rest = shop.bodies("orders");
    assert!(rest.is_empty() || rest == ["beside it"], "{rest:?}");
    shop.order(&["b"]);
    assert!(shop.bodies("orders").ends_with(&["b".to_owned()]));
}

#[test]
fn receive_follow_with_a_wait_ends_by_itself() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    shop.order(&["b"]);
    let printed = shop.ok(&["--json", "receive", "orders", "--follow", "--wait", "50ms"]);
    assert_eq!(lines(&printed).iter().map(body).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_reader_that_leaves_is_no_error_and_loses_nothing_unread() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let long = "x".repeat(100_000);
    let bodies: Vec<&str> = (0..10).map(|_| long.as_str()).collect();
    shop.order(&bodies);
    let mut running = shop.start(&["--json", "receive", "orders", "--follow"]);
    running.line();
    drop(running.output.take());
    let (code, error) = running.end();
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert_eq!(shop.bodies("orders").len(), 10, "the transaction of what could not be printed was rolled back");
}

#[test]
fn what_is_followed_one_by_one_is_committed_one_by_one() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let long = "x".repeat(100_000);
    for _ in 0..4 {
        shop.order(&[&long]);
    }
    let mut running = shop.start(&["--json", "receive", "orders", "--follow", "--top", "1"]);
    running.line();
    drop(running.output.take());
    let (code, error) = running.end();
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert_eq!(shop.bodies("orders").len(), 3, "the first was printed and read");
}

#[test]
fn a_reader_that_leaves_is_no_failed_attempt_of_the_message() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"ALTER QUEUE orders WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER)");
    shop.order(&["a"]);
    for arguments in
        [&["receive", "orders"][..], &["receive", "orders", "--follow"], &["receive", "orders", "--wait", "9s"]]
    {
        let mut running = shop.start(arguments);
        drop(running.output.take());
        let (code, error) = running.end();
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}");
        shop.fails(3, &["dead", "list"]);
    }
    assert_eq!(shop.bodies("orders"), ["a"]);
}

/// The message that came next was received, could not be printed, and had a failed attempt.
#[cfg(unix)]
#[test]
fn a_receive_that_waits_ends_with_the_reader_of_its_output() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let handle = shop.order(&["a"]);
    let sides = shop.json(&["--json", "status", "--conversations"]).remove(0)["sides"].take();
    let sides = sides.as_array().unwrap();
    let side = sides.iter().find(|side| side["conversation_handle"] != *handle).unwrap();
    let (conversation, group) = (&side["conversation_handle"], &side["conversation_group_id"]);
    let [conversation, group] = [conversation, group].map(|id| id.as_str().unwrap());
    assert_eq!(shop.bodies("orders"), ["a"]);
    for only in [&["--conversation", conversation][..], &["--group", group], &["--follow"], &[]] {
        let mut running = shop.start(&[&["receive", "orders", "--wait", "1h"][..], only].concat());
        drop(running.output.take());
        let (code, error) = running.end();
        assert_eq!((code, error.as_str()), (Some(0), ""), "{only:?}");
    }
}

#[test]
fn a_conversation_is_followed_to_its_end() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok(&[SEND_ORDER, &["--end", "a"]].concat());
    let first = shop.json(&["--json", "receive", "orders", "--top", "1"]);
    let handle = first[0]["conversation_handle"].as_str().unwrap();
    let follow = ["--json", "receive", "orders", "--conversation", handle, "--follow", "--end"];
    assert_eq!(shop.json(&follow).len(), 1, "the EndDialog");
    assert!(shop.fails(1, &follow).contains("8426"), "one that has ended before is an error");
}

/// An opening waits ten seconds for an owner that does not answer.
#[test]
fn an_opening_that_waits_is_given_up_by_ctrl_c() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let mut owner = shop.start(&["receive", "checkout", "--follow"]);
    owner.until_exists(&shop.path("shop.db.socket"));
    owner.signal("STOP");
    let send: Vec<&str> = SEND_ORDER.iter().copied().chain(["{}"]).collect();
    for command in [
        &["receive", "orders"][..],
        &send,
        &["activate", "orders", "--exec", "true"],
        &["work", "run", "jobs", "--exec", "true"],
        &["work", "push", "jobs", "{}"],
    ] {
        // A system that stops a service has nothing to complain of.
        let is_service = command.contains(&"--exec");
        for (signal, exit_code) in [("INT", 130), ("TERM", if is_service { 0 } else { 130 })] {
            let mut running = shop.start(command);
            running.until_it_listens();
            running.signal(signal);
            let (code, error) = running.end();
            let is_right = code == Some(exit_code) && error.starts_with("interrupted");
            assert!(is_right, "{command:?}, {signal}: {code:?}, {error}");
        }
    }
}

/// The first ctrl-C did nothing, and the second left the transaction open, which counted as a failed attempt; five turn a queue off.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_receive_whose_output_is_not_read_without_a_failed_attempt() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let long = "x".repeat(300_000);
    std::fs::write(shop.path("long"), &long).unwrap();
    shop.ok(&[SEND_ORDER, &["--file", "long"]].concat());
    for options in [&[][..], &["--follow"], &["--wait", "1h"], &["--follow"], &["--top", "1"]] {
        let mut running = shop.start(&[&["--json", "receive", "orders"], options].concat());
        // Its first byte: the rest is more than the pipe holds.
        std::io::Read::read_exact(running.output.as_mut().unwrap().get_mut(), &mut [0]).unwrap();
        running.interrupt();
        let (code, error) = running.end();
        let why = "interrupted; messages received: 0; standard output is not read";
        assert!(code == Some(130) && error.contains(why), "{options:?}: {code:?}, {error}");
    }
    assert_eq!(shop.bodies("orders"), [long]);
}

/// A full queue gave nothing, and nothing said why.
#[tokio::test(flavor = "multi_thread")]
async fn receives_that_a_definition_holds_back_are_said_to_be_so() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], b"CREATE QUEUE q; CREATE QUEUE q2; CREATE SERVICE s ON QUEUE q ([DEFAULT])");
    for body in ["a", "b", "c"] {
        shop.ok(&["send", "--from", "s", "--to", "s", body]);
    }
    let broker = dialoq::Broker::open(&shop.url()).await.unwrap();
    let mut holder = broker.begin().await.unwrap();
    assert!(holder.get_conversation_group("q").await.unwrap().is_some());
    let definer = broker.clone();
    let definition = tokio::spawn(async move { definer.execute("ALTER SERVICE s ON QUEUE q2").await });
    let mut left = vec![(3, vec!["receive", "q"]), (0, vec!["explain", "q"]), (0, vec!["status"])];
    while let Some((code, arguments)) = left.last() {
        // The definition tries again when the conversation that it waits for is free, and after a second it holds receives back.
        let next = broker.begin().await.unwrap();
        if next.get_conversation_group("q").await.unwrap().is_some() {
            std::mem::replace(&mut holder, next).rollback().await.unwrap();
            continue;
        }
        next.rollback().await.unwrap();
        let run = tokio::task::block_in_place(|| shop.run_with(arguments, b""));
        let said = [text(&run.stdout), text(&run.stderr)].concat();
        // A command that took longer than the hold says nothing; the next hold is twice as long.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        if said.contains("a definition waits for open transactions, and holds receives back from queue 'q' until ") {
            assert_eq!(run.status.code(), Some(*code), "{said}");
            left.pop();
        }
    }
    holder.rollback().await.unwrap();
    definition.await.unwrap().unwrap();
    broker.close().await.unwrap();
}
