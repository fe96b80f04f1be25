use crate::shop::Shop;
use serde_json::Value;

fn status(shop: &Shop) -> Value {
    shop.json(&["--json", "status"]).remove(0)
}

#[test]
fn a_new_shop_is_empty() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let printed = shop.ok(&["status"]);
    for part in ["orders", "checkout", "delivery on", "Transmission queue\nempty"] {
        assert!(printed.contains(part), "{printed}");
    }
    for line in printed.lines().take(2) {
        assert!(line.chars().count() <= 60, "it fits a narrow terminal: {line}");
    }
}

#[test]
fn queues_are_shown_per_level_also_while_another_process_owns_them() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(
        &["apply", "-"],
        b"CREATE CONTRACT [//shop/Express] ([//shop/PlaceOrder] SENT BY INITIATOR);
          ALTER SERVICE [//shop/OrderService] (ADD CONTRACT [//shop/Express]);
          CREATE BROKER PRIORITY express FOR CONVERSATION SET (CONTRACT_NAME = [//shop/Express], PRIORITY_LEVEL = 9);",
    );
    shop.order(&["z"]);
    let ended = shop.json(&["--json", "receive", "orders"])[0]["conversation_handle"].as_str().unwrap().to_owned();
    shop.ok(&["end", &ended]);
    shop.order(&["a", "b", "c"]);
    shop.order(&["d"]);
    let express = ["--from", "//shop/Checkout", "--to", "//shop/OrderService", "--contract", "//shop/Express"];
    shop.ok(&[&["send"], &express[..], &["--type", "//shop/PlaceOrder", "fast"]].concat());
    let mut owner = shop.start(&["--json", "receive", "checkout", "--follow"]);
    assert!(owner.line().contains("EndDialog"), "it has the database open");
    let status = status(&shop);
    let orders = status["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == "orders").unwrap();
    let levels: Vec<_> = orders["levels"].as_array().unwrap().iter().collect();
    assert_eq!(levels.len(), 2, "{orders}");
    let figures =
        |level: &Value| ["priority", "messages", "conversation_groups"].map(|name| level[name].as_u64().unwrap());
    assert_eq!(figures(levels[0]), [9, 1, 1]);
    assert_eq!(figures(levels[1]), [5, 4, 2]);
    let conversing: u64 = status["conversations"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["state"] == "CO")
        .map(|row| row["endpoints"].as_u64().unwrap())
        .sum();
    assert_eq!(conversing, 6, "{status}");
    owner.interrupt();
    assert_eq!(owner.end().0, Some(130));
}

#[test]
fn undelivered_messages_are_shown_with_the_reason() {
    let _limit = crate::limit();
    let shop = Shop::open();
    // 5: the message waits for a service that does not exist.
    shop.fails(
        5,
        &[
            "send",
            "--from",
            "//shop/Checkout",
            "--to",
            "//no/such",
            "--contract",
            "//shop/Orders",
            "--type",
            "//shop/PlaceOrder",
            "x",
        ],
    );
    let status = status(&shop);
    let row = &status["transmission_queue"][0];
    assert_eq!((row["to_service_name"].as_str(), row["messages"].as_u64()), (Some("//no/such"), Some(1)), "{status}");
    assert!(!row["transmission_status"].as_str().unwrap().is_empty(), "{status}");
    assert!(shop.ok(&["status"]).contains("//no/such"));
}

#[test]
fn status_shows_a_disabled_queue() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"ALTER QUEUE orders WITH STATUS = OFF, RETENTION = ON");
    let printed = shop.ok(&["status"]);
    assert!(printed.contains("OFF, retention"), "{printed}");
}

#[test]
fn work_queues_have_a_section_if_there_are_any() {
    let _limit = crate::limit();
    let shop = Shop::open();
    assert!(!shop.ok(&["status"]).contains("Work queues"));
    assert_eq!(status(&shop)["work_queues"], Value::Array(Vec::new()));
    let hostile = "\u{1b}[31mred\nTransmission queue";
    let script = format!("CREATE WORK QUEUE emails WITH MAX_ATTEMPTS = 1; CREATE WORK QUEUE [{hostile}]");
    shop.ok_with(&["apply", "-"], script.as_bytes());
    for body in ["a", "b"] {
        shop.ok(&["work", "push", "emails", body]);
    }
    let taken = shop.json(&["--json", "work", "take", "emails"]).remove(0);
    shop.ok(&["work", "fail", &taken["job"].to_string(), &taken["token"].to_string(), "no such address"]);
    shop.ok(&["work", "pause", hostile]);
    let printed = shop.ok(&["status"]);
    let (_, section) = printed.split_once("\n\nWork queues\n").expect(&printed);
    assert!(section.contains(r"\u{1b}[31mred\nTransmission queue (paused)"), "{section}");
    assert!(section.ends_with("emails has 1 dead job: dialoq work list emails --state dead\n"), "{section}");
    let found = status(&shop)["work_queues"].clone();
    let keys = |queue: &Value| queue.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&found[0]), keys(&shop.json(&["--json", "work", "list"])[0]), "one form of a work queue");
    let emails = found.as_array().unwrap().iter().find(|queue| queue["name"] == "emails").unwrap();
    let jobs = ["scheduled", "ready", "taken", "lost", "dead"].map(|state| emails[state].as_u64().unwrap());
    assert_eq!((jobs, &emails["readers_running"]), ([0, 1, 0, 0, 1], &Value::Null));
    let mut watching = shop.start(&["--json", "status", "--watch", "60ms"]);
    let seen: Value = serde_json::from_str(&watching.line()).unwrap();
    assert_eq!(seen["work_queues"].as_array().map(Vec::len), Some(2));
    watching.interrupt();
    drop(watching.output.take());
    watching.end();
}

#[test]
fn watch_refreshes_the_status() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let mut watching = shop.start(&["--json", "status", "--watch", "60ms"]);
    for _ in 0..3 {
        let seen: Value = serde_json::from_str(&watching.line()).unwrap();
        assert_eq!(seen["queues"][1]["name"], "orders");
    }
    watching.interrupt();
    drop(watching.output.take());
    let code = watching.end().0;
    assert_eq!(code, Some(0), "ctrl-C is the ordinary end of a watch");
}
