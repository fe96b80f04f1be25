//! `sqlite:path`.

use super::{COMMON_NAMES, CommonParameters, bad, decode, parameters, refuse_twice, shown};
use crate::error::Result;
use std::fmt;
use std::path::PathBuf;

/// Where an embedded store keeps its tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// In the memory of this process, gone when it is closed.
    Memory,
    /// In this file.
    File(PathBuf),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str(":memory:"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// `sqlite:path` or `sqlite::memory:` with the parameters that every store takes. `%xx` in a path stands for that byte,
/// so that a path may hold a question mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteUrl {
    /// Where the tables are.
    pub location: Location,
    /// Whether other processes of the same user may use the file at the same time, through the one that owns it. Default
    /// yes.
    pub is_shared: bool,
    /// The parameters that every store takes.
    pub common: CommonParameters,
}

impl SqliteUrl {
    pub(super) fn parse(url: &str, rest: &str) -> Result<Self> {
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let location = if path == ":memory:" {
            Location::Memory
        } else {
            // A path alone may not begin with two slashes, so this is only the authority of other people's habits.
            let path = decode(path.strip_prefix("//").unwrap_or(path)).ok_or_else(|| {
                bad(url, "its path has a '%' without two hexadecimal digits, or bytes that are not UTF-8")
            })?;
            if path.is_empty() {
                return Err(bad(url, "it names no file; write 'sqlite:shop.db', or 'sqlite::memory:' for none"));
            }
            if path.contains('\0') {
                return Err(bad(url, "its path holds a NUL"));
            }
            if path.starts_with(':') {
                return Err(bad(
                    url,
                    "its path begins with a colon; write 'sqlite::memory:' for none, or './' before the colon",
                ));
            }
            // SQLite made a file of another name, or failed after its folder was touched.
            if path.ends_with(std::path::is_separator) {
                return Err(bad(
                    url,
                    "its path ends in a slash, as that of a folder does; name the file in the folder",
                ));
            }
            // A drive has one letter.
            if path.split_once("://").is_some_and(|(scheme, _)| scheme.len() > 1 && !scheme.contains(['/', '\\'])) {
                return Err(bad(url, "its path is a URL; name one store, or write './' before the path"));
            }
            Location::File(PathBuf::from(path))
        };
        refuse_twice(url, query)?;
        let mut common = CommonParameters::default();
        let mut is_shared = true;
        for (name, value) in parameters(query) {
            if name == "share" {
                is_shared = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(bad(url, format!("its share is '{}'; write on or off", shown(url, value)))),
                };
            } else if !common.set(url, name, value)? {
                return Err(bad(
                    url,
                    format!(
                        "'{}' is not a parameter; the parameters are share, {COMMON_NAMES}; in a path write '?' as %3F",
                        shown(url, name)
                    ),
                ));
            }
        }
        Ok(Self { location, is_shared, common })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::store::url::{Durability, StoreUrl};
    use std::time::Duration;

    fn parsed(url: &str) -> SqliteUrl {
        match StoreUrl::parse(url).unwrap() {
            StoreUrl::Sqlite(url) => url,
            other => panic!("{url} is {other:?}"),
        }
    }

    fn file(url: &str) -> PathBuf {
        match parsed(url).location {
            Location::File(path) => path,
            Location::Memory => panic!("{url} is in memory"),
        }
    }

    #[test]
    fn paths_are_taken_as_they_are_written() {
        assert_eq!(file("sqlite:shop.db"), PathBuf::from("shop.db"));
        assert_eq!(file("sqlite:/var/lib/shop.db"), PathBuf::from("/var/lib/shop.db"));
        assert_eq!(file("sqlite:///var/lib/shop.db"), PathBuf::from("/var/lib/shop.db"));
        assert_eq!(file("sqlite:a b/ü%3F.db"), PathBuf::from("a b/ü?.db"));
        assert_eq!(parsed("sqlite::memory:").location, Location::Memory);
    }

    #[test]
    fn parameters_are_read() {
        let url = parsed("sqlite:x?durability=normal&max_body_bytes=10&closed_retention_s=0&sql_timeout_ms=250").common;
        assert_eq!(url.durability, Durability::Normal);
        assert_eq!(url.max_body_bytes, Some(10));
        assert_eq!(url.closed_retention, Some(Duration::ZERO));
        assert_eq!(url.sql_timeout, Some(Duration::from_millis(250)));
    }

    #[test]
    fn a_colon_may_be_in_a_path() {
        assert_eq!(file("sqlite:./:memory"), PathBuf::from("./:memory"));
        assert_eq!(file("sqlite:./file://x"), PathBuf::from("./file://x"));
        assert_eq!(file("sqlite:C://x"), PathBuf::from("C://x"));
    }

    #[test]
    fn the_password_of_a_second_store_is_not_shown() {
        for url in
            ["sqlite:postgres://u:secret@h/db", "sqlite://mssql://u:secret@h/db", "sqlite:postgres%3a//u:secret@h"]
        {
            let error = StoreUrl::parse(url).unwrap_err();
            assert!(error.message().contains("is a URL") && !error.message().contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name() {
        for (url, part) in [
            ("sqlite:", "no file"),
            ("sqlite:?durability=full", "no file"),
            ("sqlite:x?durability=some", "'some'"),
            ("sqlite:x?share=on&share=off", "'share' is there twice"),
            ("sqlite:x?max_body_bytes=0", "max_body_bytes"),
            ("sqlite:x?max_body_bytes=many", "'many'"),
            ("sqlite:x?sql_timeout_ms=0", "sql_timeout_ms"),
            ("sqlite:x?mode=ro", "'mode'"),
            ("sqlite:x%2", "hexadecimal"),
            ("sqlite:x%ff", "UTF-8"),
            ("sqlite::memory", "'sqlite::memory:'"),
            ("sqlite:file://x", "is a URL"),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.code(), Code::BAD_URL, "{url}");
            assert!(error.message().contains(part), "{url}: {error}");
        }
    }
}
