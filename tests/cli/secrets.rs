//! A password appears nowhere: not in the help, not in an error, not in the log.

use crate::shop::Shop;

/// The secret that no output may show.
const MARKER: &str = "s3cr3t";

const COMMANDS: &[&[&str]] = &[
    &["apply", "-"],
    &["dump"],
    &["send", "--from", "a", "--to", "b", "x"],
    &["receive", "orders"],
    &["end", "01890a5d-ac96-774b-bcce-b302099a8057"],
    &["activate", "orders", "--exec", "true"],
    &["status"],
    &["install"],
    &["uninstall"],
];

/// Nothing listens on port 1, and the rest is written wrong.
const URLS: &[&str] = &[
    "postgres://shop:s3cr3t@127.0.0.1:1/shop?connect_timeout=1",
    "postgres://shop@127.0.0.1:1/shop?password=s3cr3t&connect_timeout=1",
    "postgres://shop@127.0.0.1:1/shop?p%61ssword=s3cr3t",
    "postgres://shop:s3cr3t/shop",
    "postgres://shop:s3cr3t",
    "postgres:shop:s3cr3t@127.0.0.1/shop",
    "postgres:/shop:s3cr3t@127.0.0.1/shop",
    "postgres://shop:a?s3cr3t@127.0.0.1/shop",
    "postgres://shop:a/s3cr3t@127.0.0.1/shop",
    "postgres://shop:s3cr3t@127.0.0.1:1/shop?colour=red",
    "postgres://shop:s3cr3t@127.0.0.1:1/shop?sslmode=some",
    "shop:s3cr3t@127.0.0.1/shop",
    "mysql://shop:s3cr3t@127.0.0.1/shop",
    "POSTGRES://shop:s3cr3t@127.0.0.1/shop",
    "mssql://shop:s3cr3t@127.0.0.1:1/shop?connect_timeout_s=1",
    "mssql://shop:s3cr3t@127.0.0.1:1/shop?encrypt=maybe",
    "mssql:/shop:s3cr3t@127.0.0.1/shop",
    "mssql:Server=127.0.0.1,1;Database=d;User Id=u;Password=s3cr3t;Connect Timeout=1",
    "mssql:Server=127.0.0.1,1;Database=d;User Id=u;P%61ssword=s3cr3t",
    "mssql:Server=127.0.0.1,1;Database=d;User Id=u;Password=a;s3cr3t=b",
    "mssql:Server=127.0.0.1,1;Database=d;User Id=u;Pwd='s3cr3t",
    "Server=127.0.0.1;User Id=u;Password=s3cr3t",
    "host=127.0.0.1 user=u password=s3cr3t",
    "mssql://127.0.0.1;user=u;password=s3cr3t",
    "postgres://shop%3As3cr3t@127.0.0.1:1/shop?connect_timeout=1",
    "postgres://shop@127.0.0.1:1/shop?PASSWORD=s3cr3t",
    "postgres://shop@127.0.0.1:1/shop?sslpassword=s3cr3t",
    // Neither is repeated as it is: JSON escapes the quote, a terminal is shown no control character.
    "mssql:Server=127.0.0.1,1;Database=d;User Id=u;Password=\"s3cr3t",
    "mssql:Server=127.0.0.1,1;Database=d;User Id=u;Password=a\u{1b}s3cr3t",
    "mssql:Server=127.0.0.1,1;Database=d;User Id=u;Password=\"a\ts3cr3t\"",
];

#[test]
fn no_help_shows_the_password() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let names = COMMANDS.iter().map(|command| command[0]).chain(["lab", "bench", "completions", ""]);
    for name in names {
        for help in ["-h", "--help"] {
            let arguments: Vec<&str> = [name, help].into_iter().filter(|argument| !argument.is_empty()).collect();
            hides_it(&shop, &arguments, URLS[0]);
        }
    }
    hides_it(&shop, &["help", "send"], URLS[0]);
    hides_it(&shop, &["send", "--nonsense"], URLS[0]);
    hides_it(&shop, &[], URLS[0]);
    hides_it(&shop, &["completions", "bash"], URLS[0]);
}

#[test]
fn no_error_and_no_log_shows_the_password() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    for url in URLS {
        hides_it(&shop, &["dump"], url);
        hides_it(&shop, &["--json", "status"], url);
    }
    for command in COMMANDS {
        for url in [URLS[0], URLS[2], URLS[5], URLS[14], URLS[18]] {
            hides_it(&shop, command, url);
        }
    }
}

#[test]
fn no_word_of_the_command_line_is_repeated_with_its_password() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let handle = COMMANDS[4][1];
    for url in URLS {
        let option = format!("--database={url}");
        let words: [&[&str]; 12] = [
            &[url],
            &[&option],
            &["status", url],
            &["--json", "receive", url],
            &["receive", url],
            &["end", url],
            &["end", handle, "--error", url],
            &["receive", "orders", "--wait", url],
            &["activate", url, "--exec", "true"],
            &["activate", "orders", "--exec", url],
            &["apply", url],
            &["send", "--from", url, "--to", url, "x"],
        ];
        for arguments in words {
            let output = shop.command(arguments).output().unwrap();
            assert!(!output.status.success(), "{arguments:?}");
            for text in [&output.stdout, &output.stderr] {
                let text = String::from_utf8_lossy(text);
                assert!(!text.contains(MARKER), "{arguments:?} shows the password:\n{text}");
            }
        }
    }
}

fn hides_it(shop: &Shop, arguments: &[&str], url: &str) {
    let output = shop.command(arguments).env("DIALOQ_URL", url).env("DIALOQ_LOG", "trace").output().unwrap();
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text);
        assert!(!text.contains(MARKER), "{arguments:?} with {url} shows the password:\n{text}");
    }
}
