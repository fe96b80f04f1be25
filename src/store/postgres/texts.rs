//! The texts of sessions and transactions.

use std::sync::LazyLock;
use std::time::Duration;

/// `sql/postgres/session/*.sql` and `sql/postgres/transaction/*.sql` without their headers, which would travel with every
/// transaction.
pub(super) struct Texts {
    pub(super) connect: &'static str,
    pub(super) reset: &'static str,
    pub(super) durability_full: &'static str,
    pub(super) durability_normal: &'static str,
    pub(super) notice_lost_clients: &'static str,
    pub(super) listen: &'static str,
    pub(super) begin: &'static str,
    pub(super) begin_read_only: &'static str,
    pub(super) own_names: &'static str,
    pub(super) commit: &'static str,
    pub(super) rollback: &'static str,
    pub(super) hold_locks: &'static str,
    pub(super) abandon: &'static str,
    no_limit: &'static str,
    limit: &'static str,
    call: &'static str,
    savepoint: &'static str,
    release: &'static str,
    rollback_to: &'static str,
}

pub(super) static TEXTS: LazyLock<Texts> = LazyLock::new(|| Texts {
    connect: bare(include_str!("../../../sql/postgres/session/connect.sql")),
    reset: bare(include_str!("../../../sql/postgres/session/reset.sql")),
    durability_full: bare(include_str!("../../../sql/postgres/session/durability_full.sql")),
    durability_normal: bare(include_str!("../../../sql/postgres/session/durability_normal.sql")),
    notice_lost_clients: bare(include_str!("../../../sql/postgres/session/notice_lost_clients.sql")),
    listen: bare(include_str!("../../../sql/postgres/session/listen.sql")),
    call: bare(include_str!("../../../sql/postgres/session/call.sql")),
    begin: bare(include_str!("../../../sql/postgres/transaction/begin.sql")),
    begin_read_only: bare(include_str!("../../../sql/postgres/transaction/begin_read_only.sql")),
    own_names: bare(include_str!("../../../sql/postgres/transaction/own_names.sql")),
    limit: bare(include_str!("../../../sql/postgres/transaction/limit.sql")),
    no_limit: bare(include_str!("../../../sql/postgres/transaction/no_limit.sql")),
    commit: bare(include_str!("../../../sql/postgres/transaction/commit.sql")),
    rollback: bare(include_str!("../../../sql/postgres/transaction/rollback.sql")),
    hold_locks: bare(include_str!("../../../sql/postgres/transaction/hold_locks.sql")),
    abandon: bare(include_str!("../../../sql/postgres/transaction/abandon.sql")),
    savepoint: bare(include_str!("../../../sql/postgres/transaction/savepoint.sql")),
    release: bare(include_str!("../../../sql/postgres/transaction/release.sql")),
    rollback_to: bare(include_str!("../../../sql/postgres/transaction/rollback_to.sql")),
});

impl Texts {
    pub(super) fn call(&self, name: &str, arguments: usize) -> String {
        let places: Vec<String> = (1..=arguments).map(|place| format!("${place}")).collect();
        self.call.replace("{name}", name).replace("{arguments}", &places.join(", "))
    }

    /// The longest that one statement after it may take; for the session if no transaction is open.
    pub(super) fn limit(&self, limit: Duration, is_in_transaction: bool) -> String {
        let text = self.limit.replace("{is_local}", if is_in_transaction { "true" } else { "false" });
        text.replace("{milliseconds}", &milliseconds(limit))
    }

    /// The end of that limit, in its transaction.
    pub(super) fn no_limit(&self, limit: Duration) -> String {
        self.no_limit.replace("{milliseconds}", &milliseconds(limit))
    }

    pub(super) fn savepoint(&self, number: u32) -> String {
        numbered(self.savepoint, number)
    }

    pub(super) fn release(&self, number: u32) -> String {
        numbered(self.release, number)
    }

    pub(super) fn rollback_to(&self, number: u32) -> String {
        numbered(self.rollback_to, number)
    }
}

fn milliseconds(limit: Duration) -> String {
    limit.as_millis().clamp(1, i32::MAX as u128).to_string()
}

fn numbered(text: &str, number: u32) -> String {
    text.replace("{number}", &number.to_string())
}

fn bare(text: &'static str) -> &'static str {
    let mut rest = text;
    while rest.starts_with("--") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    rest.trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_off_and_places_are_filled() {
        assert!(TEXTS.begin.starts_with("BEGIN"), "{}", TEXTS.begin);
        assert!(TEXTS.call("send", 3).ends_with("dialoq.send($1, $2, $3)"), "{}", TEXTS.call("send", 3));
        assert!(TEXTS.savepoint(7).ends_with("dialoq_7"));
        assert!(TEXTS.rollback_to(7).ends_with("dialoq_7"));
    }
}
