use crate::shop::Shop;

const COMMANDS: &[&str] = &[
    "apply",
    "dump",
    "send",
    "receive",
    "end",
    "activate",
    "status",
    "peek",
    "show",
    "explain",
    "doctor",
    "pause",
    "resume",
    "release",
    "reprioritise",
    "timer",
    "move",
    "purge",
    "dead",
    "work",
    "install",
    "uninstall",
    "lab",
    "bench",
    "completions",
];

#[test]
fn help_is_documentation() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let help = shop.ok(&["--help"]);
    for part in COMMANDS.iter().chain(&["Exit codes", "DIALOQ_URL", "Examples"]) {
        assert!(help.contains(part), "{part}");
    }
    for command in COMMANDS {
        let help = shop.ok(&[command, "--help"]);
        for part in ["Examples:", "Usage: dialoq", "--db", "--json"] {
            assert!(help.contains(part), "{command}: {part}\n{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{command}: a line is too long\n{help}");
    }
    assert!(shop.ok(&["--version"]).starts_with("dialoq "));
}

#[test]
fn completions_know_the_commands() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = shop.ok(&["completions", shell]);
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
    shop.fails(2, &["completions", "abacus"]);
}
