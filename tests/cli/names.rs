use crate::shop::Shop;

/// Everything that has a meaning in SQL, in the language of definitions, in a shell or on a terminal.
const NAMES: &[&str] =
    &["it's", "a\"b", "a]b[c", "a;DROP TABLE dialoq_broker;--", "🚚 ü 中", "%_\\/*", " spaces ", "$(x)`y`", "-dash"];

#[test]
fn names_are_never_taken_for_anything_else() {
    let _limit = crate::limit();
    for (index, name) in NAMES.iter().enumerate() {
        let shop = Shop::empty();
        let quoted = format!("[{}]", name.replace(']', "]]"));
        let script = format!(
            "CREATE MESSAGE TYPE {quoted} VALIDATION = NONE;\nCREATE CONTRACT {quoted} ({quoted} SENT BY ANY);\n\
             CREATE QUEUE {quoted};\nCREATE SERVICE {quoted} ON QUEUE {quoted} ({quoted});\n\
             CREATE BROKER PRIORITY {quoted} FOR CONVERSATION SET (CONTRACT_NAME = {quoted}, PRIORITY_LEVEL = {});",
            index + 1
        );
        shop.ok_with(&["apply", "-"], script.as_bytes());
        let dump = shop.ok(&["dump"]);
        let copy = format!("sqlite:{}", shop.path("copy.db").display());
        shop.ok_with(&["--db", &copy, "apply", "-"], dump.as_bytes());
        assert_eq!(shop.ok(&["--db", &copy, "dump"]), dump, "{name}");

        let equals = |option: &str| format!("--{option}={name}");
        let arguments = ["from", "to", "contract", "type"].map(equals);
        let mut send: Vec<&str> = vec!["send"];
        send.extend(arguments.iter().map(String::as_str));
        send.extend(["--", name]);
        shop.ok(&send);
        assert!(shop.ok(&["status"]).contains(name.trim()), "{name}");
        let messages = shop.json(&["--json", "receive", "--", name]);
        assert_eq!(messages[0]["body"], *name);
        assert_eq!(messages[0]["service_name"], *name);
        assert_eq!(messages[0]["priority"], index + 1);
    }
}
