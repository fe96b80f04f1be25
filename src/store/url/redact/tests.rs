use super::*;
use crate::error::Code;
use crate::store::url::StoreUrl;

/// The secret that must stay hidden.
const SECRET: &str = "s3cr3t";

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn parts_without_secrets_are_shown() {
    for url in [
        "postgres://u@h/db",
        "postgres://h:5432/db",
        "postgres://h:5432,i:5433/db?sslmode=verify-full&pool_size=7",
        "postgres://[::1]:5432/db",
        "postgres://%2Fvar%2Frun%2Fpostgresql/shop",
        "postgres:///shop?host=/var/run/postgresql",
        "mssql://h\\LAB/master?authentication=entra_token",
        "mssql:Server=tcp:db.example,1434;Database=d;User Id=u",
        "sqlite:shop.db?durability=normal&share=off",
        "sqlite::memory:",
        "sqlite:a b/ü.db",
        "sqlite:C:\\shop.db",
        "shop.db",
        "",
    ] {
        assert_eq!(redacted(url), url);
    }
}

#[test]
fn a_password_in_its_place_hides_only_itself() {
    for (url, shown) in [
        ("postgres://u:s3cr3t@h/db", "postgres://u:***@h/db"),
        ("postgres://u:s3cr3t@h:5432/db?pool_size=7", "postgres://u:***@h:5432/db?pool_size=7"),
        ("postgres://u:s3/cr3t@h/db", "postgres://u:***@h/db"),
        ("postgres://u@h/db?password=s3cr3t&pool_size=7", "postgres://u@h/db?password=***"),
        ("postgres://u@h/db?PASSWORD=s3cr3t", "postgres://u@h/db?PASSWORD=***"),
        ("mssql:Server=h;Password=s3cr3t;Database=d", "mssql:Server=h;Password=***"),
        ("mssql://u:s3cr3t@h/d?colour=red", "mssql://u:***@h/d?colour=***"),
    ] {
        assert_eq!(redacted(url), shown);
    }
}

#[test]
fn an_ambiguous_url_shows_its_scheme_only() {
    for (url, shown) in [
        ("postgres://u:s3@cr3t@h/db", "postgres:***"),
        ("postgres://u:s3?cr3t@h/db", "postgres:***"),
        ("postgres:u:s3cr3t@h/db", "postgres:***"),
        ("POSTGRES://u:s3cr3t@h/db", "POSTGRES:***"),
        ("mssql:/u:s3cr3t@h/db", "mssql:***"),
        ("mssql://h;user=u;password=s3cr3t", "mssql:***"),
        ("u:s3cr3t@h/db", "***"),
        ("Server=h;Password=s3cr3t", "***"),
        ("host=h password=s3cr3t", "***"),
        ("sqlite://u:s3cr3t@h/db", "sqlite:***"),
    ] {
        assert_eq!(redacted(url), shown);
    }
}

/// Every way to write a password into a connection string, right or wrong, with each of many passwords.
fn generated() -> Vec<String> {
    let mut passwords: Vec<String> = vec![SECRET.to_owned()];
    for odd in [
        "@", "/", ":", "?", "&", ";", "=", "#", "%", "%40", " ", "'", "\"", "\\", ",", "://", "[", "sslmode=",
        "\u{202e}",
    ] {
        passwords.push(format!("a{odd}{SECRET}"));
        passwords.push(format!("a{odd}{SECRET}{odd}b"));
    }
    let mut urls = Vec::new();
    for password in passwords.iter().cloned().chain(passwords.iter().map(|password| encoded(password))) {
        for scheme in [
            "postgres://",
            "postgresql://",
            "mssql://",
            "POSTGRES://",
            "Mssql://",
            "postgres:",
            "postgres:/",
            "mssql:/",
            "mssql:",
            "jdbc:sqlserver://",
            "mysql://",
            "sqlite:",
            "sqlite://",
            "//",
            "",
        ] {
            for place in
                ["@h/db", "@h:1/db", "@[::1]:1/db", "@h/db?sslmode=disable", "@h", "@h/db?colour=red&sslmode=some"]
            {
                urls.push(format!("{scheme}u:{password}{place}"));
                urls.push(format!("{scheme}u%3A{password}{place}"));
                urls.push(format!("{scheme}u%3a{password}{place}"));
                urls.push(format!("{scheme}:{password}{place}"));
            }
            for name in [
                "password",
                "PASSWORD",
                "Password",
                "sslpassword",
                "pwd",
                "Pwd",
                "passwd",
                "pass",
                "pw",
                "p%61ssword",
                "secret",
                "access_token",
                "apikey",
            ] {
                urls.push(format!("{scheme}u@h/db?{name}={password}"));
                urls.push(format!("{scheme}u@h/db?sslmode=disable&{name}={password}&pool_size=7"));
                urls.push(format!("{scheme}h;user=u;{name}={password}"));
                urls.push(format!("{scheme}Server=h;Database=d;User Id=u;{name}={password};Encrypt=yes"));
                urls.push(format!("{scheme}Server=h;{name}=\"{password}\""));
                urls.push(format!("{scheme}host=h user=u {name}={password} dbname=d"));
                urls.push(format!("{scheme}host=h user=u {name} = '{password}'"));
            }
        }
    }
    urls
}

#[test]
fn no_written_password_is_shown_by_anything() {
    let hides = |shown: &str, url: &str| {
        let lower = shown.to_lowercase();
        assert!(!lower.contains(SECRET) && !lower.contains(&encoded(SECRET).to_lowercase()), "{shown}\nfor {url}");
    };
    for url in generated() {
        hides(&redacted(&url), &url);
        match StoreUrl::parse(&url) {
            Ok(read) => {
                if let Some(server) = read.server() {
                    hides(&server.shown, &url);
                }
            }
            Err(error) => {
                assert_eq!(error.code(), Code::BAD_URL);
                hides(&format!("{error:?} {error}"), &url);
            }
        }
        if url.starts_with("postgres") || url.starts_with("mssql") || url.to_lowercase().contains("password") {
            let text = format!("unrecognized subcommand '{url}'");
            hides(&redacted_in(&text, [url.clone()]), &url);
            hides(&redacted_in(&text, [format!("--database={url}")]), &url);
        }
    }
}

#[test]
fn other_words_of_the_command_line_are_repeated_as_they_are() {
    for word in ["orders", "//shop/OrderService", "a=b", "{\"sku\":\"A-1\"}", "shop.sql"] {
        let text = format!("unrecognized subcommand '{word}'");
        assert_eq!(redacted_in(&text, [word.to_owned()]), text);
    }
}

#[test]
fn any_character_may_stand_before_a_parameter() {
    for mark in ["–", "—", "“", "→", "\u{a0}", "\u{3000}", "🚚", "é", "\u{301}", "-", ";"] {
        for word in [format!("{mark}body=x"), format!("b{mark}=x"), format!("{{\"a\":\"1 {mark} y=2\"}}")] {
            let text = format!("unrecognized subcommand '{word}'");
            assert_eq!(redacted_in(&text, [word]), text);
        }
        let word = format!("a{mark}password={SECRET}");
        let text = format!("unrecognized subcommand '{word}'");
        assert!(!redacted_in(&text, [word.clone()]).contains(SECRET), "{word}");
    }
}
