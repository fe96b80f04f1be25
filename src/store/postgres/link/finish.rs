//! Several requests in one flight: the last calls of a transaction and its COMMIT, and calls that commit by themselves.

use super::*;
use std::future::poll_fn;
use std::pin::Pin;

type Sent<'f> = Pin<Box<dyn Future<Output = Result<Vec<Row>, tokio_postgres::Error>> + Send + 'f>>;

/// Polls requests in order, so that they are sent in order; gives their answers.
async fn in_one_flight(mut requests: Vec<Sent<'_>>) -> Vec<Result<Vec<Row>, tokio_postgres::Error>> {
    let mut answers: Vec<_> = requests.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (request, answer) in requests.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(done) = request.as_mut().poll(context)
            {
                *answer = Some(done);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

impl PgLink {
    pub(super) async fn calls_now(&mut self, calls: Vec<Call<'_>>) -> Linked<Vec<Linked<Vec<SqlRow>>>> {
        self.ready(AtRisk::Commit)?;
        let flat: Vec<_> = calls.iter().map(|call| arguments(&call.args)).collect();
        let mut prepared = Vec::with_capacity(calls.len());
        for (call, flat) in calls.iter().zip(&flat) {
            let statement = self.prepare(Kept::Call(call.name, flat.len())).await;
            let failed = |error| self.send_failed(error, Asked::Call(call.name), AtRisk::Nothing);
            prepared.push(statement.map_err(failed)?);
        }
        let params: Vec<Vec<&(dyn ToSql + Sync)>> =
            flat.iter().map(|flat| flat.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect()).collect();
        let client = self.client();
        let mut requests: Vec<Sent<'_>> = Vec::with_capacity(calls.len());
        for (statement, params) in prepared.iter().zip(&params) {
            requests.push(Box::pin(client.query(&statement.statement, params)));
        }
        let answers = in_one_flight(requests).await;
        let mut all = Vec::with_capacity(calls.len());
        for (((call, flat), prepared), answer) in calls.iter().zip(&flat).zip(&prepared).zip(answers) {
            let asked = Asked::Call(call.name);
            let answer = match answer {
                Ok(rows) => prepared.rows(&rows, RowsFor::Ours).map_err(|why| unread(asked, &why)),
                Err(error) => {
                    let error = SendError::Server(error);
                    if Self::is_stale(error.code()) {
                        // The server has done nothing.
                        self.forget(Kept::Call(call.name, flat.len()));
                        self.call_now(call.clone()).await
                    } else {
                        Err(self.send_failed(error, asked, AtRisk::Commit))
                    }
                }
            };
            all.push(answer);
        }
        Ok(all)
    }

    pub(super) async fn finish_now(&mut self, calls: Vec<Call<'_>>, checks_first: bool) -> Linked<Vec<Vec<SqlRow>>> {
        if calls.is_empty() || matches!(self.transaction, Transaction::None | Transaction::Failed) {
            self.commit_now().await?;
            return Ok(Vec::new());
        }
        self.ready(AtRisk::Commit)?;
        // Savepoints and locks end with the transaction.
        let ends =
            |control: &Control| matches!(control, Control::Savepoint(_) | Control::Release(_) | Control::HoldGroup(_));
        self.pending.retain(|control| !ends(control));
        let mut prepared = Vec::with_capacity(calls.len());
        let flat: Vec<_> = calls.iter().map(|call| arguments(&call.args)).collect();
        for (call, flat) in calls.iter().zip(&flat) {
            let statement = self.prepare(self.kept_call(call.name, flat.len())).await;
            let failed = |error| self.send_failed(error, Asked::Call(call.name), AtRisk::Transaction);
            prepared.push(statement.map_err(failed)?);
        }
        let kept: Vec<_> = calls.iter().zip(&flat).map(|(call, flat)| self.kept_call(call.name, flat.len())).collect();
        let pending = self.take_pending();
        let params: Vec<Vec<&(dyn ToSql + Sync)>> =
            flat.iter().map(|flat| flat.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect()).collect();
        let client = self.client();
        let text = |text| async move { client.batch_execute(text).await.map(|()| Vec::new()) };
        let mut requests: Vec<Sent<'_>> = Vec::with_capacity(calls.len() + 2);
        if let Some((controls, _)) = &pending {
            requests.push(Box::pin(text(controls)));
        }
        for (statement, params) in prepared.iter().zip(&params) {
            requests.push(Box::pin(client.query(&statement.statement, params)));
        }
        requests.push(Box::pin(text(if checks_first { transaction::CHECKED_COMMIT } else { transaction::COMMIT })));
        let mut answers = in_one_flight(requests).await.into_iter();
        let controls = pending.map(|(_, begins)| (begins, answers.next()));
        let committed = answers.next_back();
        // After a failed call COMMIT rolls back; but if its savepoint fails first, or it is cancelled, the transaction is open until a
        // rollback.
        let is_over = !checks_first && matches!(committed, Some(Ok(_)));
        let refused = if is_over { Transaction::None } else { Transaction::Failed };
        if let Some((begins, Some(Err(error)))) = controls {
            // The calls have failed with it, also without BEGIN.
            let error = if begins { SendError::Server(error) } else { SendError::Controls(error) };
            let mut failure = self.send_failed(error, Asked::Ours("COMMIT"), AtRisk::Transaction);
            self.transaction = refused;
            if failure.is_link_usable {
                failure.fate = Fate::TransactionUndone;
            }
            return Err(failure);
        }
        let mut rows = Vec::with_capacity(calls.len());
        for ((call, kept), answer) in calls.iter().zip(kept).zip(answers) {
            match answer {
                Ok(answer) => rows.push(answer),
                Err(error) => {
                    // The server's refusal comes before COMMIT; a lost connection may have lost COMMIT's answer.
                    let is_refusal = error.as_db_error().is_some();
                    let error = SendError::Server(error);
                    if Self::is_stale(error.code()) {
                        self.forget(kept);
                    }
                    let at_risk = if is_refusal { AtRisk::Transaction } else { AtRisk::Commit };
                    let mut failure = self.send_failed(error, Asked::Call(call.name), at_risk);
                    self.transaction = refused;
                    if is_refusal {
                        failure.fate = Fate::TransactionUndone;
                    }
                    return Err(failure);
                }
            }
        }
        if let Some(Err(error)) = committed {
            let is_refusal = error.as_db_error().is_some();
            let failure = self.commit_failed(error);
            if checks_first && is_refusal {
                self.undo_checks().await;
            }
            return Err(failure);
        }
        self.transaction = Transaction::None;
        let mut answers = Vec::with_capacity(calls.len());
        for ((call, prepared), rows) in calls.iter().zip(&prepared).zip(&rows) {
            let read = prepared.rows(rows, RowsFor::Ours);
            answers.push(read.map_err(|why| unread(Asked::Call(call.name), &why))?);
        }
        Ok(answers)
    }

    /// After a deferred constraint was refused: until the rollback the transaction can still keep its locks.
    async fn undo_checks(&mut self) {
        match self.client().batch_execute(transaction::UNDO_CHECKS).await {
            Ok(()) => self.transaction = Transaction::Open,
            // COMMIT itself was refused, after the checks.
            Err(error) if error.code() == Some(&SqlState::NO_ACTIVE_SQL_TRANSACTION) => {
                self.transaction = Transaction::None;
            }
            // A rollback follows.
            Err(_) => {}
        }
    }
}
