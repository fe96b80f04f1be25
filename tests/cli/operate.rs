//! Operators' verbs: look, explain, pause, purge, end many, apply again.

use crate::shop::{SEND_ORDER, SHOP, Shop, body, lines, text};

/// The exit code, standard output and standard error.
fn run(shop: &Shop, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = shop.run_with(arguments, b"");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_send_says_that_it_waits_for_a_name_that_does_not_exist() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let arguments = ["send", "--from", "//shop/Checkout", "--to", "//shop/OrdrService", "--contract", "//shop/Orders"];
    let arguments = [&arguments[..], &["--type", "//shop/PlaceOrder", "a", "b"]].concat();
    let (code, out, error) = run(&shop, &arguments);
    assert_eq!(code, Some(5), "{error}");
    assert!(out.contains("2 messages sent"), "{out}");
    let line = "warning: 2 messages: waits in the transmission queue: 9793: no service of that name exists here; \
                no service '//shop/OrdrService'; did you mean '//shop/OrderService'?";
    assert_eq!(error.trim_end(), line);
    let (code, out, _) = run(&shop, &[&["--json"], &arguments[..]].concat());
    let delivery = &lines(&out)[0]["delivery"];
    assert_eq!((code, &delivery["outcome"], &delivery["code"]), (Some(5), &"waits".into(), &9793.into()));
    assert_eq!((&delivery["is_mistake"], &delivery["messages"]), (&true.into(), &2.into()));
}

#[test]
fn a_send_whose_output_has_no_reader_any_more_ends_with_the_same_code() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for (to, expected) in [("//shop/OrdrService", 5), ("//shop/OrderService", 4)] {
        // --contract forgotten, which one of them does not accept.
        let arguments = ["send", "--from", "//shop/Checkout", "--to", to];
        let mut running = shop.start(&arguments);
        drop(running.output.take());
        std::io::Write::write_all(&mut running.input.take().unwrap(), b"{\"body\":\"hello\"}").unwrap();
        let (code, error) = running.end();
        assert_eq!(code, Some(expected), "{error}");
    }
}

#[test]
fn a_send_says_that_it_was_refused() {
    let _limit = crate::limit();
    let shop = Shop::open();
    // --contract forgotten: the contract DEFAULT, which the service does not accept.
    let (code, out, error) = run(&shop, &["send", "--from", "//shop/Checkout", "--to", "//shop/OrderService", "hello"]);
    assert_eq!(code, Some(4), "{error}");
    assert!(out.contains("1 message sent"), "{out}");
    for part in ["refused: 1 conversation", "-8408", "accepts '//shop/Orders'", "--contract"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    shop.ok_with(&["apply", "-"], b"ALTER MESSAGE TYPE [//shop/PlaceOrder] VALIDATION = JSON");
    let (code, _, error) = run(&shop, &[SEND_ORDER, &["not json"]].concat());
    assert_eq!(code, Some(4), "{error}");
    assert!(error.contains("-8430") && error.contains("VALIDATION"), "{error}");
    // Ended in the same commit, the conversation is gone on this side.
    let (code, _, error) = run(&shop, &[SEND_ORDER, &["--end", "not json"]].concat());
    assert_eq!(code, Some(4), "{error}");
}

#[test]
fn many_sends_are_summed_up_by_reason() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"ALTER MESSAGE TYPE [//shop/PlaceOrder] VALIDATION = JSON");
    let input: String = (0..1_200)
        .map(|number| format!("{{\"body\":{}}}\n", if number % 3 == 0 { "\"bad\"" } else { "{\"n\":1}" }))
        .collect();
    let output = shop.run_with(&[SEND_ORDER, &["--dialog-per-message"]].concat(), input.as_bytes());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert_eq!(error.lines().count(), 1, "one line for each distinct outcome: {error}");
    assert!(error.starts_with("refused: 400 conversations: refused with Error -8430"), "{error}");
    let output = shop.run_with(&[&["--json"], SEND_ORDER, &["--dialog-per-message"]].concat(), input.as_bytes());
    let found = lines(&text(&output.stdout));
    let refused = found.iter().filter(|line| line["delivery"]["outcome"] == "refused").count();
    let delivered = found.iter().filter(|line| line["delivery"]["outcome"] == "delivered").count();
    assert_eq!((refused, delivered), (400, 800));
}

#[test]
fn a_queue_that_is_off_or_busy_is_no_failure_of_a_send() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok(&[SEND_ORDER, &["first"]].concat());
    let paused = shop.ok(&["pause", "orders", "--reason", "stock taking"]);
    assert_eq!(paused.trim_end(), "paused queue 'orders'");
    let again = ["--json", "pause", "orders", "--reason", "stock taking"];
    for arguments in [&again[..], &again[..3]] {
        assert_eq!(shop.json(arguments)[0]["has_changed"], false, "{arguments:?}");
    }
    let replaced = ["pause", "orders", "--reason", "the warehouse burns"];
    assert!(shop.ok(&replaced).contains("was off already; its reason is the new one"));
    assert_eq!(shop.json(&again)[0]["has_changed"], true, "the first reason again");
    assert!(shop.ok(&["pause", "orders"]).contains("was off already"));
    let status = shop.ok(&["status"]);
    assert!(status.contains("orders is OFF since 20") && status.contains(": stock taking"), "{status}");
    let (code, _, error) = run(&shop, &[SEND_ORDER, &["second"]].concat());
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("11219") && error.contains("stock taking"), "{error}");
    let seen = shop.ok(&["peek", "orders"]);
    assert!(seen.starts_with("queue 'orders' is off since 20") && seen.contains("Z: stock taking\n"), "{seen}");
    assert!(shop.fails(1, &["receive", "orders"]).contains("9617"));
    let findings = shop.run_with(&["doctor"], b"");
    assert_eq!(findings.status.code(), Some(3));
    assert!(text(&findings.stdout).contains("stock taking"), "{}", text(&findings.stdout));
    assert_eq!(shop.ok(&["resume", "orders"]).trim_end(), "resumed queue 'orders'");
    assert_eq!(shop.bodies("orders"), ["first", "second"]);
    let young = "no fault was found; what lasts for less than 5 min 0 s does not count, --after 0s counts all";
    assert_eq!(shop.ok(&["doctor"]).trim_end(), young);
    assert!(shop.fails(1, &["pause", "oders"]).contains("did you mean 'orders'?"));
}

#[test]
fn missing_names_come_with_the_nearest_one() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for (arguments, near) in [
        (vec!["receive", "oders"], "'orders'"),
        (vec!["peek", "order"], "'orders'"),
        (vec!["explain", "Orders2"], "'orders'"),
        (vec!["send", "--from", "//shop/Chekout", "--to", "//shop/OrderService", "x"], "'//shop/Checkout'"),
        (
            vec!["send", "--from", "//shop/Checkout", "--to", "//shop/OrderService", "--contract", "//shop/Order", "x"],
            "'//shop/Orders'",
        ),
    ] {
        let error = shop.fails(1, &arguments);
        assert!(error.contains(&format!("did you mean {near}?")), "{arguments:?}: {error}");
    }
    let error = shop.fails(1, &["receive", "something_else"]);
    assert!(!error.contains("did you mean"), "{error}");
}

#[test]
fn a_queue_is_looked_at_without_receiving() {
    let _limit = crate::limit();
    let shop = Shop::open();
    assert!(shop.fails(3, &["peek", "orders"]).contains("queue 'orders' is empty"));
    assert!(
        shop.fails(3, &["peek", "orders", "--type", "//shop/OrderPlaced"])
            .contains("queue 'orders' has no such message")
    );
    let handle = shop.order(&["{\"sku\":\"A-1\"}", "\u{1b}[31mred"]);
    let shown = shop.ok(&["peek", "orders"]);
    assert!(shown.contains("{\"sku\":\"A-1\"}") && shown.contains("\\u{1b}[31mred"), "{shown}");
    let seen = shop.json(&["--json", "peek", "orders", "--top", "1"]);
    assert_eq!((seen.len(), body(&seen[0])), (1, "{\"sku\":\"A-1\"}".to_owned()));
    assert_eq!(seen[0]["state"], "waiting");
    let hex = shop.ok(&["peek", "orders", "--top", "1", "--body", "--as", "hex"]);
    assert!(hex.contains("7b22736b75223a22412d31227d"), "{hex}");
    let pretty = shop.ok(&["peek", "orders", "--top", "1", "--body", "--as", "json"]);
    assert!(pretty.contains("  \"sku\": \"A-1\""), "{pretty}");

    let shown = shop.ok(&["show", &handle]);
    assert!(shown.contains("CONVERSING") && shown.contains("//shop/Checkout") && shown.contains("A-1"), "{shown}");
    let found = &shop.json(&["--json", "show", &handle])[0];
    assert_eq!(found["sides"][1]["messages"].as_array().map(Vec::len), Some(2));
    assert!(shop.ok(&["timer", &handle, "2h"]).contains("7200 s"));
    assert!(shop.ok(&["show", &handle]).contains("timer fires"));
    assert!(shop.ok(&["timer", &handle, "--cancel"]).contains("taken back"));
    let target = found["sides"][1]["conversation_handle"].as_str().unwrap();
    assert!(shop.ok(&["reprioritise", "9", target]).contains("has level 9"));
    assert_eq!(shop.json(&["--json", "peek", "orders"])[0]["priority"], 9);
    shop.fails(1, &["show", "00000000-0000-0000-0000-000000000001"]);
    assert!(shop.fails(1, &["move", &handle, "00000000-0000-0000-0000-000000000001"]).contains("8436"));

    assert!(shop.ok(&["explain", "checkout"]).contains("- the queue is empty"));
    let explained = shop.ok(&["explain", "orders"]);
    assert!(explained.contains("holds 2 messages") && explained.contains("dialoq activate orders"), "{explained}");
    assert_eq!(shop.json(&["--json", "explain", target])[0]["kind"], "conversation");
    assert_eq!(shop.bodies("orders").len(), 2, "nothing was received");
}

#[cfg(unix)]
#[test]
fn a_quarantined_group_is_released() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"ALTER QUEUE orders WITH POISON_MESSAGE_HANDLING (QUARANTINE = ON)");
    shop.order(&["poison"]);
    fail(&shop, 5);
    let seen = &shop.json(&["--json", "peek", "orders"])[0];
    assert_eq!(seen["state"], "quarantined", "{seen}");
    let explained = shop.ok(&["explain", seen["message_id"].as_str().unwrap()]);
    assert!(explained.contains("! poison handling has quarantined its conversation group"), "{explained}");
    assert!(shop.ok(&["peek", "orders"]).contains("quarantined"));
    let handle = seen["conversation_handle"].as_str().unwrap();
    let first = &shop.json(&["--json", "release", handle])[0];
    assert_eq!((&first["group"], &first["was_quarantined"]), (&seen["conversation_group_id"], &true.into()));
    assert!(shop.ok(&["release", handle]).contains("was not quarantined; nothing has changed"));
    assert_eq!(shop.json(&["--json", "peek", "orders"])[0]["state"], "waiting");
}

#[test]
fn changes_of_many_are_previewed_and_confirmed() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let handle = shop.order(&["a", "b"]);
    let (code, out, error) = run(&shop, &["purge", "orders"]);
    assert_eq!(code, Some(6), "{error}");
    assert!(
        out.contains("would purge") && out.contains("//shop/PlaceOrder") && error.contains("--yes"),
        "{out}{error}"
    );
    assert_eq!(shop.json(&["--json", "peek", "orders"]).len(), 2, "nothing has changed");
    assert!(shop.ok(&["purge", "orders", "--yes"]).contains("removed 2 messages"));
    assert!(shop.fails(3, &["purge", "orders", "--yes"]).contains("no message"));
    shop.ok(&["send", "--conversation", &handle, "--type", "//shop/PlaceOrder", "goes on"]);

    shop.order(&["c"]);
    assert!(shop.fails(2, &["end", "--all"]).contains("without a filter"));
    assert_eq!(lines(&shop.fails(2, &["--json", "end", "--all"]))[0]["error"]["kind"], "CommandLine");
    assert!(
        shop.fails(1, &["end", "--all", "--service", "//shop/Chekout"]).contains("did you mean '//shop/Checkout'?")
    );
    let ending = ["end", "--all", "--service", "//shop/Checkout", "--state", "CONVERSING"];
    let (code, out, _) = run(&shop, &ending);
    assert_eq!(code, Some(6));
    assert!(out.contains(&handle), "{out}");
    let (code, out, _) = run(&shop, &[&["--json"], &ending[..]].concat());
    assert_eq!((code, &lines(&out)[0]["conversations"]), (Some(6), &2.into()));
    let found = shop.json(&[&["--json"], &ending[..], &["--yes"]].concat());
    assert_eq!((found.len(), &found[0]["changed"]), (1, &2.into()), "one object: {found:?}");
    shop.fails(3, &[&ending[..], &["--yes"]].concat());
    assert!(shop.ok(&["reprioritise", "2", "--queue", "orders", "--yes"]).contains("2 changed"));
    shop.fails(2, &["reprioritise", "2"]);
    // A target that has ended stays closed for a while.
    let of_orders = ["end", "--all", "--queue", "orders", "--yes"];
    assert!(shop.ok(&of_orders).contains("2 ended, 0 gone"));
    assert!(shop.fails(3, &of_orders).contains("no conversation to end"));
    shop.order(&["x"]);
    assert!(shop.ok(&of_orders).contains("1 ended, 0 gone"));
    assert!(shop.fails(3, &["reprioritise", "2", "--queue", "orders", "--yes"]).contains("no conversation"));
    shop.order(&["d"]);
    shop.ok(&["pause", "orders"]);
    for options in [&["purge", "orders"][..], &["purge", "orders", "--yes"]] {
        let error = shop.fails(1, options);
        assert!(
            error.contains("9617") && error.contains("dialoq resume orders"),
            "no preview of what cannot be: {error}"
        );
    }
    shop.ok(&["resume", "orders"]);
    let purged = shop.json(&["--json", "purge", "orders", "--yes"]);
    assert!(purged.len() == 1 && purged[0]["messages"].as_u64() > Some(0), "one object: {purged:?}");
}

/// An older conversation that came to match ended with them, and messages went whose preview had said that they stay.
#[cfg(target_os = "linux")]
#[test]
fn a_change_takes_what_its_preview_has_shown() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let orders = ["older", "newer"].map(|body| shop.order(&[body]));
    let breaks = |order: &str| shop.ok(&["end", order, "--error", "5", "--description", "why"]);
    breaks(&orders[1]);
    // The newer one has an Error before its message.
    let purging = ["purge", "orders", "--type", "//shop/PlaceOrder"];
    let done = shop.asked(&purging, || {
        let all = shop.json(&["--json", "peek", "orders"]);
        let error = all.iter().find(|message| message["message_type_name"].as_str().unwrap().ends_with("/Error"));
        let handle = error.unwrap()["conversation_handle"].as_str().unwrap();
        shop.ok(&["receive", "orders", "--conversation", handle, "--top", "1"]);
    });
    assert!(done.contains("removed 1 message; ended 0 conversations; left 1 message"), "{done}");
    assert_eq!(shop.bodies("orders"), ["newer"]);
    let ending = ["end", "--all", "--queue", "orders", "--state", "ER"];
    let done = shop.asked(&ending, || drop(breaks(&orders[0])));
    assert!(done.contains("1 ended, 0 gone"), "{done}");
    let left = shop.json(&[&["--json"], &ending[..], &["--yes"]].concat());
    assert_eq!(left[0]["changed"], 1, "the older one is there: {left:?}");
}

#[test]
fn definitions_are_applied_twice_and_previewed() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let first = shop.ok_with(&["apply", "-", "--ensure", "--dry-run"], SHOP.as_bytes());
    assert!(first.contains("+ CREATE QUEUE [orders]") && !shop.path("shop.db").exists(), "{first}");
    let first = shop.ok_with(&["apply", "-", "--ensure"], SHOP.as_bytes());
    assert!(first.contains("created queue 'orders'") && first.contains("created service '//shop/Checkout'"), "{first}");
    let dump = shop.ok(&["dump"]);
    let second = shop.ok_with(&["apply", "-", "--ensure"], SHOP.as_bytes());
    assert_eq!(second.trim_end(), "applied standard input; nothing has changed");
    assert_eq!(shop.ok(&["dump"]), dump);
    assert!(shop.fails_with(1, &["apply", "-"], SHOP.as_bytes()).contains("60001"));

    let more = b"CREATE QUEUE orders; CREATE QUEUE extra";
    let diff = shop.ok_with(&["apply", "-", "--ensure", "--dry-run"], more);
    assert_eq!(diff.trim_end(), "+ CREATE QUEUE [extra];");
    let diff = shop.ok_with(&["apply", "-", "--dry-run"], b"ALTER QUEUE orders WITH RETENTION = ON");
    assert_eq!(diff.trim_end(), "- CREATE QUEUE [orders];\n+ CREATE QUEUE [orders] WITH RETENTION = ON;");
    assert_eq!(shop.ok(&["dump"]), dump, "a dry run changes nothing");
    let error = shop.fails_with(1, &["apply", "-", "--dry-run"], b"CREATE QUEUE a;\nDROP QUEUE nothing");
    assert!(error.contains("-:2:1") || error.contains("standard input:2:1"), "{error}");
    let printed = shop.ok_with(&["--json", "apply", "-"], b"ALTER QUEUE orders WITH RETENTION = ON");
    assert_eq!(lines(&printed)[0]["changes"][0]["kind"], "altered", "{printed}");
}

/// Lets so many attempts at orders fail.
#[cfg(unix)]
fn fail(shop: &Shop, attempts: usize) {
    let mut running = shop.start(&["--json", "activate", "orders", "--exec", "false"]);
    let mut failures = 0;
    while failures < attempts {
        let line = running.line();
        assert!(!line.is_empty(), "the events ended after {failures} failures");
        failures += usize::from(lines(&line)[0]["event"] == "failed");
    }
    running.interrupt();
    drop(running.output.take());
    running.end();
}

/// A letter that came after the preview was redriven or removed with those that it had shown, and a conversation got the new level.
#[cfg(target_os = "linux")]
#[test]
fn what_comes_after_a_preview_stays_as_it_is() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(
        &["apply", "-"],
        b"ALTER QUEUE orders WITH RETRY (MAX_ATTEMPTS = 1, DELAY_MS = 0, THEN = DEAD_LETTER)",
    );
    shop.order(&["first"]);
    fail(&shop, 1);
    let later = |body: &str| {
        shop.order(&[body]);
        fail(&shop, 1);
    };
    let done = shop.asked(&["dead", "redrive", "--queue", "orders"], || later("second"));
    assert!(done.contains("redrove 1 dead letter"), "{done}");
    let letters = || shop.json(&["--json", "dead", "list"]).iter().map(body).collect::<Vec<_>>();
    let waiting = shop.json(&["--json", "peek", "orders"]);
    assert_eq!(
        (waiting.iter().map(body).collect::<Vec<_>>(), letters()),
        (vec!["first".into()], vec!["second".into()])
    );
    fail(&shop, 1);
    let done = shop.asked(&["dead", "purge", "--all"], || later("third"));
    assert!(done.contains("2 dead letters"), "{done}");
    assert_eq!(letters(), ["third"]);
    let done = shop.asked(&["reprioritise", "9", "--queue", "orders"], || drop(shop.order(&["fourth"])));
    assert!(done.contains("3 changed"), "{done}");
    assert_eq!(shop.json(&["--json", "peek", "orders"])[0]["priority"], 5);
}

#[cfg(unix)]
#[test]
fn dead_letters_are_listed_shown_redriven_and_purged() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(
        &["apply", "-"],
        b"ALTER QUEUE orders WITH RETRY (MAX_ATTEMPTS = 2, DELAY_MS = 0, THEN = DEAD_LETTER)",
    );
    assert!(shop.fails(3, &["dead", "list"]).contains("no such dead letter"));
    shop.order(&["\u{1b}[31mpoison"]);
    let handle = shop.order(&["bad", "worse"]);
    fail(&shop, 6);

    let listed = shop.ok(&["dead", "list"]);
    assert!(listed.contains("\\u{1b}[31mpoison") && listed.contains("orders"), "{listed}");
    let found = shop.json(&["--json", "dead", "list", "--queue", "orders", "--type", "//shop/PlaceOrder"]);
    assert_eq!(found.iter().map(body).collect::<Vec<_>>(), ["\u{1b}[31mpoison", "bad", "worse"]);
    assert_eq!((&found[0]["attempts"], &found[0]["is_conversation_open"]), (&2.into(), &true.into()));
    let ids: Vec<String> = found.iter().map(|letter| letter["dead_letter_id"].to_string()).collect();
    let shown = shop.ok(&["dead", "show", &ids[1]]);
    assert!(shown.contains("after 2 attempts") && shown.contains("can be redriven"), "{shown}");
    assert!(shown.trim_end().ends_with("bad"), "{shown}");
    assert!(shop.fails(3, &["dead", "show", "999999"]).contains("no dead letter 999999"));
    let status = shop.ok(&["status"]);
    assert!(status.contains("orders has 3 dead letters: dialoq dead list --queue orders"), "{status}");
    assert!(shop.ok(&["show", &handle]).contains("dead letters"));
    let explained = shop.ok(&["explain", "orders"]);
    assert!(explained.contains("3 dead letters") && explained.contains("`dialoq dead redrive --queue orders`"));
    let found_faults = text(&shop.run_with(&["doctor"], b"").stdout);
    assert!(found_faults.contains("queue 'orders' has 3 dead letters"), "{found_faults}");
    assert!(found_faults.contains("`dialoq dead redrive --queue orders` or `dialoq dead purge --queue orders`"));
    // It was said that such a message was received, and that nothing holds the conversation up.
    let explained = shop.ok(&["explain", found[1]["message_id"].as_str().unwrap()]);
    assert!(explained.contains("is a dead letter of queue 'orders'"), "{explained}");
    assert!(explained.contains("after 2 attempts") && explained.contains(&format!("`dialoq dead redrive {}`", ids[1])));
    for id in ["conversation_handle", "conversation_id"] {
        let explained = shop.ok(&["explain", found[1][id].as_str().unwrap()]);
        assert!(explained.contains(&format!("`dialoq dead show {}`", ids[1])), "{explained}");
        assert!(explained.contains("it is not the only one: `dialoq dead list --conversation "), "{explained}");
    }

    assert!(shop.fails(2, &["dead", "redrive"]).contains("--all"));
    shop.fails(2, &["dead", "redrive", &ids[0], "--queue", "orders"]);
    assert_eq!(shop.ok(&["dead", "redrive", &ids[2]]).trim_end(), format!("redrove dead letter {}", ids[2]));
    assert!(shop.fails(1, &["dead", "redrive", &ids[2]]).contains("60048"));
    let (code, out, error) = run(&shop, &["dead", "redrive", "--queue", "orders"]);
    assert_eq!(code, Some(6), "{error}");
    assert!(
        out.contains("would redrive") && out.contains("//shop/PlaceOrder") && error.contains("--yes"),
        "{out}{error}"
    );
    let (code, out, _) = run(&shop, &["--json", "dead", "redrive", "--all"]);
    assert_eq!((code, &lines(&out)[0]["dead_letters"]), (Some(6), &2.into()));
    shop.ok(&["end", found[0]["conversation_handle"].as_str().unwrap()]);
    let out = shop.ok(&["dead", "redrive", "--all", "--yes"]);
    assert!(out.contains("redrove 1 dead letter; left 1 whose conversation has ended"), "{out}");
    assert!(shop.fails(1, &["dead", "redrive", &ids[0]]).contains("60050"));
    let explained = shop.ok(&["explain", found[0]["message_id"].as_str().unwrap()]);
    assert!(explained.contains(&format!("it can only be removed: `dialoq dead purge {}`", ids[0])), "{explained}");
    assert_eq!(shop.bodies("orders"), ["bad", "worse"], "each has its old place");

    let (code, out, _) = run(&shop, &["dead", "purge", &ids[0]]);
    assert_eq!(code, Some(6), "{out}");
    let purged = shop.json(&["--json", "dead", "purge", "--all", "--yes"]);
    assert_eq!((purged.len(), &purged[0]["purged"]), (1, &1.into()), "one object: {purged:?}");
    assert!(shop.fails(3, &["dead", "purge", "--all", "--yes"]).contains("no dead letter"));
}

/// A list is one object a line, and an empty one is no line; times have one form.
#[test]
fn lists_as_json_have_one_object_a_line_and_times_one_form() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE emails");
    for (list, code) in [
        (&["peek", "orders"][..], 3),
        (&["dead", "list"], 3),
        (&["receive", "orders"], 3),
        (&["work", "take", "emails"], 3),
        (&["doctor"], 0),
        (&["work", "list", "emails"], 0),
        (&["work", "list", "--finished"], 0),
        (&["work", "stats"], 0),
        (&["work", "schedule", "list"], 0),
    ] {
        let (found, out, error) = run(&shop, &[&["--json"], list].concat());
        assert_eq!((found, &*out, &*error), (Some(code), "", ""), "{list:?}");
    }
    // For people it is a sentence, not a table without rows.
    for list in [
        &["work", "list", "emails"][..],
        &["work", "list", "--finished"],
        &["work", "stats"],
        &["work", "schedule", "list"],
    ] {
        let text = shop.ok(list);
        assert!(text.lines().count() == 1 && text.contains("no "), "{list:?}: {text}");
    }
    let handle = shop.order(&["a"]);
    shop.ok(&["timer", &handle, "2h"]);
    shop.ok(&["work", "push", "emails", "a"]);
    shop.ok(&["work", "push", "emails", "b"]);
    let taken = shop.json(&["--json", "work", "take", "emails"]).remove(0);
    shop.ok(&["work", "complete", &taken["job"].to_string(), &taken["token"].to_string()]);
    shop.json(&["--json", "work", "take", "emails"]);
    shop.ok(&["work", "schedule", "add", "nightly", "emails", "0 3 * * *"]);
    shop.ok(&["pause", "checkout"]);
    let doctor = lines(&run(&shop, &["--json", "doctor", "--after", "0s"]).1);
    assert!(doctor.len() > 1, "{doctor:?}");
    let mut seen: Vec<serde_json::Value> = [
        &["--json", "status", "--conversations"][..],
        &["--json", "peek", "orders"],
        &["--json", "show", &handle],
        &["--json", "work", "list", "emails"],
        &["--json", "work", "list", "--finished"],
        &["--json", "work", "show", "1"],
        &["--json", "work", "schedule", "list"],
        &["--json", "work", "schedule", "next", "nightly"],
    ]
    .iter()
    .flat_map(|list| shop.json(list))
    .collect();
    seen.extend(doctor);
    seen.push(taken);
    let mut times = 0;
    while let Some(value) = seen.pop() {
        match value {
            serde_json::Value::Array(values) => seen.extend(values),
            serde_json::Value::Object(columns) => {
                for (name, value) in columns {
                    let is_time = name.ends_with("_at")
                        || ["at", "since", "lifetime", "dialog_timer", "lease_until", "message_enqueue_time"]
                            .contains(&&*name);
                    if is_time && !value.is_null() {
                        times += 1;
                        let text = value.as_str().unwrap_or_default();
                        assert!(text.len() == 24 && text.ends_with('Z') && text.contains('T'), "{name}: {value}");
                    }
                    seen.push(value);
                }
            }
            _ => {}
        }
    }
    assert!(times >= 20, "{times}");
}

#[test]
fn what_is_no_id_is_answered_in_words() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for command in ["show", "release"] {
        let error = shop.fails(2, &[command, "nonsense"]);
        assert!(error.contains("an id is a UUID") && error.contains("dialoq status --conversations"), "{error}");
    }
    let error = shop.fails(1, &["explain", "nonsense"]);
    assert!(error.contains("no queue, work queue or service is named 'nonsense'"), "{error}");
}

/// A reader that takes the first line only, as `head -1`, must not turn a finding into a success.
#[test]
fn findings_and_previews_keep_their_exit_code_without_a_reader_of_the_output() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE emails");
    shop.ok(&["work", "push", "emails", "a"]);
    shop.order(&["one", "two"]);
    let code = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("dialoq"));
        command.args(arguments).env("DIALOQ_URL", shop.url()).current_dir(shop.folder.path());
        let output = command.stdin(std::process::Stdio::null()).stdout(writer).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for json in [&[][..], &["--json"]] {
        for (expected, arguments) in [
            (3, &["doctor", "--after", "0s"][..]),
            (6, &["end", "--all", "--queue", "orders"]),
            (6, &["purge", "orders"]),
            (6, &["work", "cancel", "emails"]),
        ] {
            let (found, error) = code(&[json, arguments].concat());
            assert_eq!(found, Some(expected), "{json:?} {arguments:?}: {error}");
        }
    }
    assert_eq!(code(&["purge", "orders", "--yes"]).0, Some(0));
    assert!(shop.bodies("orders").is_empty(), "what was confirmed is done without a reader too");
}

/// Each was dropped without a word: the option that it requires is waived if another one excludes that.
#[test]
fn options_of_another_form_are_refused() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let handle = shop.order(&["one"]);
    for option in [
        &["--contract", "nope"][..],
        &["--lifetime", "1s"],
        &["--group", "01890a5d-ac96-774b-bcce-b302099a8057"],
        &["--dialog-per-message"],
    ] {
        let error = shop.fails(2, &[&["send", "--conversation", &handle], option, &["{}"]].concat());
        assert!(error.contains(option[0]), "{error}");
    }
    let error = shop.fails(2, &["end", &handle, "--cleanup", "--description", "why"]);
    assert!(error.contains("--description"), "{error}");
    let error = shop.fails(2, &["work", "schedule", "next", "nightly", "--time-zone", "Europe/Berlin"]);
    assert!(error.contains("--time-zone"), "{error}");
}

#[test]
fn a_filter_with_a_name_that_does_not_exist_is_refused() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["one"]);
    for arguments in [
        &["purge", "orders", "--service", "//shop/OrdrService"][..],
        &["purge", "orders", "--type", "//shop/PlaceOrdr"],
        &["peek", "orders", "--type", "//shop/PlaceOrdr"],
    ] {
        let error = shop.fails(1, arguments);
        assert!(error.starts_with("error[60002]") && error.contains("did you mean"), "{arguments:?}: {error}");
    }
    // One that is built in is there, and has no message.
    let end = "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog";
    shop.fails(3, &["peek", "orders", "--type", end]);
    shop.fails(3, &["purge", "orders", "--type", end]);
}

#[test]
fn numbers_that_are_none_are_answered_in_words() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let handle = shop.order(&["one"]);
    for (arguments, words) in [
        (&["timer", &handle, "--", "-5"][..], "a time span is not negative"),
        (&["dead", "show", "x"], "the id of a dead letter is a number"),
        (&["dead", "redrive", "x"], "the id of a dead letter is a number"),
        (&["send", "--from", "//a", "--to", "//b", "--lifetime", "0.5s", "{}"], "whole seconds"),
        (&["activate", "orders", "--exec", "true", "--mode", "stream", "--raw-body"], "--mode message"),
        (&["lab", "--length", "0"], "--length is 0 ms"),
        (&["lab", "--service", "11s"], "--service is 11 s"),
        (&["bench", "--workload", "old-snapshot"], "--workload old-snapshot is for a server"),
    ] {
        let error = shop.fails(2, arguments);
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn a_resumed_queue_gets_all_that_waits_for_it() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let send = ["send", "--from", "//shop/Checkout", "--to", "//shop/OrderService", "--contract", "//shop/Orders"];
    let send = [&send[..], &["--type", "//shop/PlaceOrder", "--dialog-per-message"]].concat();
    let lines: String = (0..200).map(|number| format!("{{\"body\":\"{number}\"}}\n")).collect();
    let waiting = |shop: &Shop| shop.json(&["--json", "status"])[0]["transmission_queue"].as_array().unwrap().len();
    let (off, on) = ("ALTER DATABASE CURRENT SET DISABLE_BROKER", "ALTER DATABASE CURRENT SET ENABLE_BROKER");
    let by_script = |script: &str| drop(shop.ok_with(&["apply", "-"], script.as_bytes()));
    for is_paused in [true, false] {
        if is_paused {
            drop(shop.ok(&["pause", "orders"]))
        } else {
            by_script(off)
        };
        let sent = shop.run_with(&send, lines.as_bytes());
        assert!(waiting(&shop) > 0, "{}", text(&sent.stderr));
        if is_paused {
            drop(shop.ok(&["resume", "orders"]))
        } else {
            by_script(on)
        };
        assert_eq!(waiting(&shop), 0, "{is_paused}");
    }
}

/// It said that nothing was left, and the next purge of the rest was a surprise.
#[test]
fn a_purge_says_that_there_is_more_than_it_takes_at_once() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let input = "{\"body\":\"x\"}\n".repeat(10_001);
    shop.ok_with(SEND_ORDER, input.as_bytes());
    let (code, out, _) = run(&shop, &["--json", "purge", "orders"]);
    let preview = &lines(&out)[0];
    assert_eq!((code, &preview["messages"], &preview["has_more"]), (Some(6), &10_000.into(), &true.into()), "{out}");
    assert!(run(&shop, &["purge", "orders"]).1.contains("there are more than those, for the next purge"));
    let purged = shop.ok(&["purge", "orders", "--yes"]);
    let first =
        "removed 10000 messages; ended 0 conversations; left 0 messages; there are more than those: run it again";
    assert_eq!(purged.lines().last(), Some(first));
    let purged = shop.ok(&["purge", "orders", "--yes"]);
    assert_eq!(purged.lines().last(), Some("removed 1 message; ended 0 conversations; left 0 messages"));
    let ended = &shop.json(&["--json", "end", "--all", "--queue", "orders", "--yes"])[0];
    assert_eq!((&ended["changed"], &ended["has_more"]), (&1.into(), &false.into()));
}

/// The advice was an END WITH ERROR, which is refused (8427).
#[test]
fn a_message_that_cannot_be_delivered_after_the_end_of_its_sender_can_be_given_up_as_advised() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let send = ["--json", "send", "--from", "//shop/Checkout", "--to", "nowhere", "--end", "x"];
    let (_, sent, _) = run(&shop, &send);
    let handle = lines(&sent)[0]["conversation_handle"].as_str().unwrap().to_owned();
    let advice = format!("dialoq end {handle} --cleanup");
    let explained = shop.ok(&["explain", &handle]);
    assert!(explained.contains(&format!("`{advice}`")), "{explained}");
    let (code, found, _) = run(&shop, &["doctor", "--after", "0s"]);
    assert!(code == Some(3) && found.contains("`dialoq end --all --state DO --cleanup`"), "{found}");
    let words: Vec<&str> = advice.split(' ').skip(1).collect();
    shop.ok(&words);
    run(&shop, &send);
    shop.ok(&["end", "--all", "--state", "DO", "--cleanup", "--yes"]);
    assert!(!shop.ok(&["doctor", "--after", "0s"]).contains("nowhere"));
}

#[test]
fn an_end_without_a_handle_says_what_it_may_be_given() {
    let _limit = crate::limit();
    let shop = Shop::open();
    assert!(shop.fails(2, &["end"]).contains("--all with a filter such as --queue"));
    assert!(shop.fails(2, &["end", "--queue", "orders"]).contains("give --all with it"));
}

#[test]
fn advice_about_a_name_that_begins_with_a_dash_can_be_run() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], b"CREATE QUEUE [-x] WITH STATUS = OFF; CREATE WORK QUEUE [-w]");
    let explained = shop.ok(&["explain", "--", "-x"]);
    assert!(explained.contains("`dialoq resume -- -x`"), "{explained}");
    shop.ok(&["resume", "--", "-x"]);
    shop.ok(&["work", "pause", "--", "-w"]);
    let explained = shop.ok(&["explain", "--", "-w"]);
    assert!(explained.contains("`dialoq work resume -- -w`"), "{explained}");
    shop.ok(&["work", "resume", "--", "-w"]);
}

#[test]
fn explain_says_that_a_name_is_that_of_a_work_schedule() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let definitions = "CREATE WORK QUEUE w; CREATE WORK SCHEDULE [every hour] ON WORK QUEUE w WITH CRON = '0 * * * *'";
    shop.ok_with(&["apply", "-"], definitions.as_bytes());
    let refused = shop.fails(1, &["explain", "every hour"]);
    assert!(
        refused.contains("it is the name of a work schedule") && refused.contains("next 'every hour'"),
        "{refused}"
    );
}
