//! The requests of the seam to one connection.

use super::*;

/// Runs a request; if its caller drops it, the link stays busy.
macro_rules! busy {
    ($link:ident, $request:expr) => {
        Box::pin(async move {
            $link.is_busy = true;
            let answer = $request.await;
            $link.is_busy = false;
            answer
        })
    };
}

impl Link for PgLink {
    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        busy!(self, self.call_now(call))
    }

    fn read<'a>(&'a mut self, text: &'static str) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        busy!(self, self.read_now(text))
    }

    fn query<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<SqlRows>> {
        busy!(self, self.query_now(sql))
    }

    fn execute<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<u64>> {
        busy!(self, self.execute_now(sql))
    }

    fn script<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, Linked<()>> {
        busy!(self, self.batch_now(text, Asked::Ours(INSTALLATION), self.at_risk()))
    }

    fn begin(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            self.ready(AtRisk::Nothing)?;
            self.transaction = Transaction::Pending;
            self.pending.push(Control::Begin);
            Ok(())
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Linked<()>> {
        busy!(self, self.commit_now())
    }

    fn finish<'a>(&'a mut self, calls: Vec<Call<'a>>, checks_first: bool) -> BoxFuture<'a, Linked<Vec<Vec<SqlRow>>>> {
        busy!(self, self.finish_now(calls, checks_first))
    }

    fn calls<'a>(&'a mut self, calls: Vec<Call<'a>>) -> BoxFuture<'a, Linked<Vec<Linked<Vec<SqlRow>>>>> {
        busy!(self, self.calls_now(calls))
    }

    fn is_closed(&self) -> bool {
        self.is_lost || self.client().is_closed()
    }

    fn hold_group(&mut self, group: Uuid) -> BoxFuture<'_, Linked<()>> {
        self.pending.push(Control::HoldGroup(group));
        Box::pin(async { Ok(()) })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Linked<()>> {
        busy!(self, self.rollback_now())
    }

    fn savepoint(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        self.pending.push(Control::Savepoint(number));
        Box::pin(async { Ok(()) })
    }

    fn release(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        // A savepoint without a request after it is not sent at all.
        if self.pending.last() == Some(&Control::Savepoint(number)) {
            self.pending.pop();
        } else {
            self.pending.push(Control::Release(number));
        }
        Box::pin(async { Ok(()) })
    }

    fn rollback_to(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        busy!(self, self.rollback_to_now(number))
    }

    fn hold_locks(&mut self) -> BoxFuture<'_, Linked<()>> {
        self.holds_locks = true;
        busy!(self, self.batch_now(transaction::HOLD_LOCKS, Asked::Ours("holding locks"), AtRisk::Transaction))
    }

    fn keep_locks(&mut self) -> BoxFuture<'_, Linked<()>> {
        self.holds_locks = true;
        busy!(self, self.batch_now(transaction::KEEP_LOCKS, Asked::Ours("keeping locks"), AtRisk::Transaction))
    }
}
