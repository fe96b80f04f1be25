//! The parameters that the URLs of all database servers share.

use super::{CommonParameters, bad, number, shown};
use crate::error::Result;
use std::time::Duration;

/// The parameters of every database server: those of every store, and `pool_size=n`, `pool_wait_s=n`,
/// `install=no|yes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// The URL as it may be shown: without its password.
    pub shown: String,
    /// The parameters that every store takes.
    pub common: CommonParameters,
    /// The most connections that this process opens for its callers. Default 32. Up to seven more are its own, and six if requests
    /// hang or the pool is in use (`docs/servers.md`, "Connections of a process").
    pub pool_size: usize,
    /// The longest wait of a caller for a free connection; then 60032. Default 30 s.
    pub pool_wait: Duration,
    /// Whether schema `dialoq` is made or brought up to date, if the URL says so; otherwise the options do.
    pub install: Option<bool>,
}

/// The names of the parameters, for messages.
pub(super) const NAMES: &str =
    "durability, max_body_bytes, closed_retention_s, sql_timeout_ms, pool_size, pool_wait_s, install";

impl ServerUrl {
    pub(super) fn new(url: &str) -> Self {
        Self {
            shown: super::redacted(url),
            common: CommonParameters::default(),
            pool_size: 32,
            pool_wait: Duration::from_secs(30),
            install: None,
        }
    }

    /// Takes a parameter that every server has; false if it is not one of them.
    pub(super) fn set(&mut self, url: &str, name: &str, value: &str) -> Result<bool> {
        match name {
            "pool_size" => self.pool_size = usize::try_from(number(url, name, value, 1, 10_000)?).unwrap_or(usize::MAX),
            "pool_wait_s" => self.pool_wait = Duration::from_secs(number(url, name, value, 1, 86_400)?),
            "install" => {
                self.install = Some(match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(bad(url, format!("install is '{}'; it must be 'yes' or 'no'", shown(url, value)))),
                });
            }
            _ => return self.common.set(url, name, value),
        }
        Ok(true)
    }
}
