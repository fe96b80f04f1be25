//! URLs: which store, where, and how.

use crate::error::{Code, Error, ErrorKind, Result};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

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

/// What an answered commit has survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A loss of power: every commit is synced before it is answered.
    #[default]
    Full,
    /// A crash of the process, not of the machine: the last commits may be lost together, never half of one.
    Normal,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Normal => "normal",
        })
    }
}

/// A URL taken apart: `sqlite:path`, `sqlite::memory:`, with `?durability=full|normal`, `max_body_bytes=n` and
/// `closed_retention_s=n`. `%xx` in a path stands for that byte, so that a path may hold a question mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// Where the tables are.
    pub location: Location,
    /// What an answered commit has survived.
    pub durability: Durability,
    /// The largest body that is taken, in bytes, if not the default.
    pub max_body_bytes: Option<usize>,
    /// How long a closed target endpoint is kept against replay, if not the default.
    pub closed_retention: Option<Duration>,
}

/// SQLite holds no value above this.
const LARGEST_BODY_BYTES: u64 = 999_000_000;

impl StoreUrl {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// 60019, naming the part that is not understood and what would be.
    pub fn parse(url: &str) -> Result<Self> {
        let Some(rest) = url.strip_prefix("sqlite:") else {
            return Err(bad(url, "it must begin with 'sqlite:', as in 'sqlite:shop.db' or 'sqlite::memory:'"));
        };
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
            Location::File(PathBuf::from(path))
        };
        let mut parsed = Self { location, durability: Durability::Full, max_body_bytes: None, closed_retention: None };
        for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parsed.set(url, name, value)?;
        }
        Ok(parsed)
    }

    fn set(&mut self, url: &str, name: &str, value: &str) -> Result<()> {
        let number = |lowest: u64, highest: u64| {
            value.parse::<u64>().ok().filter(|number| (lowest..=highest).contains(number)).ok_or_else(|| {
                bad(url, format!("{name} is '{value}'; it must be a whole number from {lowest} to {highest}"))
            })
        };
        match name {
            "durability" => {
                self.durability = match value {
                    "full" => Durability::Full,
                    "normal" => Durability::Normal,
                    _ => return Err(bad(url, format!("durability is '{value}'; it must be 'full' or 'normal'"))),
                }
            }
            "max_body_bytes" => self.max_body_bytes = usize::try_from(number(1, LARGEST_BODY_BYTES)?).ok(),
            "closed_retention_s" => self.closed_retention = Some(Duration::from_secs(number(0, i32::MAX as u64)?)),
            _ => {
                return Err(bad(
                    url,
                    format!("'{name}' is not a parameter; there are durability, max_body_bytes and closed_retention_s"),
                ));
            }
        }
        Ok(())
    }
}

fn bad(url: &str, why: impl fmt::Display) -> Error {
    Error::new(Code::BAD_URL, ErrorKind::Input, format!("the URL '{url}' is not understood: {why}"))
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(url: &str) -> PathBuf {
        match StoreUrl::parse(url).unwrap().location {
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
        assert_eq!(StoreUrl::parse("sqlite::memory:").unwrap().location, Location::Memory);
    }

    #[test]
    fn parameters_are_read() {
        let url = StoreUrl::parse("sqlite:x?durability=normal&max_body_bytes=10&closed_retention_s=0").unwrap();
        assert_eq!(url.durability, Durability::Normal);
        assert_eq!(url.max_body_bytes, Some(10));
        assert_eq!(url.closed_retention, Some(Duration::ZERO));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (url, part) in [
            ("postgres://x", "sqlite:"),
            ("shop.db", "sqlite:"),
            ("sqlite:", "no file"),
            ("sqlite:?durability=full", "no file"),
            ("sqlite:x?durability=some", "'some'"),
            ("sqlite:x?max_body_bytes=0", "max_body_bytes"),
            ("sqlite:x?max_body_bytes=many", "'many'"),
            ("sqlite:x?mode=ro", "'mode'"),
            ("sqlite:x%2", "hexadecimal"),
            ("sqlite:x%ff", "UTF-8"),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.code(), Code::BAD_URL, "{url}");
            assert!(error.message().contains(part), "{url}: {error}");
        }
    }
}
