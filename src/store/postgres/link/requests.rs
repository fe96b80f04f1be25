//! The requests of the seam to one connection.

use super::*;

impl Link for PgLink {
    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        Box::pin(async move {
            self.is_busy = true;
            let answer = self.call_now(call).await;
            self.is_busy = false;
            answer
        })
    }

    fn read<'a>(&'a mut self, text: &'static str) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        Box::pin(async move {
            self.is_busy = true;
            let answer = self.read_now(text).await;
            self.is_busy = false;
            answer
        })
    }

    fn query<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<SqlRows>> {
        Box::pin(async move {
            self.is_busy = true;
            let answer = self.query_now(sql).await;
            self.is_busy = false;
            answer
        })
    }

    fn execute<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<u64>> {
        Box::pin(async move {
            self.is_busy = true;
            let answer = self.execute_now(sql).await;
            self.is_busy = false;
            answer
        })
    }

    fn script<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, Linked<()>> {
        Box::pin(async move {
            self.is_busy = true;
            let answer = self.batch_now(text, Asked::Ours("a script of the installation"), self.stake()).await;
            self.is_busy = false;
            answer
        })
    }

    fn begin(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            self.ready(Stake::Nothing)?;
            self.transaction = Transaction::PutOff;
            self.put_off.push(Control::Begin);
            Ok(())
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            self.is_busy = true;
            let answer = self.commit_now().await;
            self.is_busy = false;
            answer
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            self.is_busy = true;
            let answer = self.rollback_now().await;
            self.is_busy = false;
            answer
        })
    }

    fn savepoint(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        self.put_off.push(Control::Savepoint(number));
        Box::pin(async { Ok(()) })
    }

    fn release(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        // A mark that nothing was done after is not sent at all.
        if self.put_off.last() == Some(&Control::Savepoint(number)) {
            self.put_off.pop();
        } else {
            self.put_off.push(Control::Release(number));
        }
        Box::pin(async { Ok(()) })
    }

    fn rollback_to(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            self.is_busy = true;
            let answer = self.rollback_to_now(number).await;
            self.is_busy = false;
            answer
        })
    }

    fn hold_locks(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            self.is_busy = true;
            self.holds_locks = true;
            let answer =
                self.batch_now(transaction::HOLD_LOCKS, Asked::Ours("holding locks"), Stake::Transaction).await;
            self.is_busy = false;
            answer
        })
    }
}
