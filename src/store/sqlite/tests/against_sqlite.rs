//! Random SQL in transactions, compared with plain SQLite that runs the committed transactions one after another.
//!
//! Each result that a commit proves ([0033](../../../../docs/decisions/0033-sql-in-a-transaction-runs-twice.md)) must be the
//! one that plain SQLite gives at the place of the commit. After each commit the user's tables are the same in both, so that
//! a refused transaction has left nothing. Left out are `changes()` and `last_insert_rowid()`, whose differences are
//! documented.

use super::*;
use crate::store::Seen;
use dialoq_test_support::seeds;
use plain::{Plain, Ran, Reported, is_same};
use program::{Action, OUTSIDE, TABLES, step};
use proptest::collection::vec;
use proptest::test_runner::TestCaseError;
use std::task::Poll;

mod plain;
mod program;

/// Seeds that find each of the defects that this test has found: a refused transaction that left rows for the next batch, and
/// CREATE TRIGGER IF NOT EXISTS that was not repeated.
const SEEDS: u64 = 30;

/// A transaction without the statements and messages that a rollback to a savepoint has undone.
#[derive(Default)]
struct Work {
    ran: Vec<Ran>,
    sent: Vec<String>,
}

struct Open {
    tx: Box<dyn StoreTx>,
    work: Work,
    /// Each with how many statements and messages there were.
    savepoints: Vec<(u8, usize, usize)>,
}

/// An error is a difference.
type Compare = std::result::Result<(), String>;

/// What came of an action that waited for the writer.
enum Ended {
    Statement(usize, Open, Result<Reported>, SqlStatement, bool),
    Commit(Work, Result<()>),
    Outside(SqlStatement, Result<Reported>),
    Sent(String, Result<()>),
}

fn refusals(done: Result<Reported>) -> Result<Reported> {
    match done {
        Err(error) if error.code() == Code::USER_SQL_FAILED => Ok(Reported::Refused(error.message().to_owned())),
        done => done,
    }
}

struct Compared {
    store: Arc<SqliteStore>,
    plain: Plain,
    open: [Option<Open>; OUTSIDE],
    /// One conversation for each place, because a SEND of an open transaction holds its group.
    dialogs: Vec<ConversationHandle>,
    /// The broker's own tables and the like.
    not_the_users: Vec<Vec<SqlValue>>,
    sent: Vec<String>,
    next_body: u32,
}

const OBJECTS: &str = r"select type, name, sql from sqlite_schema
                        where name not like 'sqlite\_%' escape '\' and name not like 'ft\_%' escape '\' order by name";

async fn rows(store: &SqliteStore, text: &str) -> Vec<Vec<SqlValue>> {
    let rows = store.query(sql(text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    rows.rows.iter().map(|row| row.values().to_vec()).collect()
}

impl Compared {
    async fn new(folder: &Path) -> Self {
        let mut options = options(folder);
        options.durability = crate::store::url::Durability::Normal;
        let store = defined(options).await;
        let mut dialogs = Vec::new();
        for _ in 0..=OUTSIDE {
            dialogs.push(begin(&store).await);
        }
        let not_the_users = rows(&store, OBJECTS).await;
        let plain = Plain::open();
        for text in TABLES {
            store.run_sql(sql(text)).await.unwrap_or_else(|error| panic!("{text}: {error}"));
            plain.do_all(text);
        }
        let open = std::array::from_fn(|_| None);
        Self { store, plain, open, dialogs, not_the_users, sent: Vec::new(), next_body: 0 }
    }

    async fn step(&mut self, actions: Vec<(usize, Action)>) -> Compare {
        let mut begun = Vec::new();
        for (place, action) in actions {
            begun.extend(self.begin(place, action).await.map(|future| (future, None)));
        }
        if begun.len() > 1 {
            let writer = self.store.engine.write.lock().unwrap();
            // A transaction whose statements are still applied, which is a matter of time, would be the first of the batch.
            writer.drop_rehearsal();
            for (future, ended) in &mut begun {
                if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    *ended = Some(done);
                }
            }
        }
        // The writer runs the statements of open transactions before the batch. What ended at once was refused.
        let (mut before, mut batch) = (Vec::new(), Vec::new());
        for (future, ended) in begun {
            let is_before = ended.is_some();
            let ended = match ended {
                Some(ended) => ended,
                None => future.await,
            };
            let is_before = is_before || matches!(ended, Ended::Statement(..));
            if is_before { before.push(ended) } else { batch.push(ended) }
        }
        let has_batch = !batch.is_empty();
        before.into_iter().chain(batch).try_for_each(|ended| self.check(ended))?;
        if has_batch { self.check_tables().await } else { Ok(()) }
    }

    /// Begins work that waits for the writer, or does the rest.
    async fn begin(&mut self, place: usize, action: Action) -> Option<BoxFuture<'static, Ended>> {
        let (handle, store) = (self.dialogs[place], self.store.clone());
        self.next_body += 1;
        let body = format!("{:05}", self.next_body);
        if place == OUTSIDE {
            return match action {
                Action::Run { text, expected_rows } => Some(Box::pin(async move {
                    let statement = SqlStatement { expected_rows, ..sql(&text) };
                    let done = store.run_sql(statement.clone()).await.map(Reported::Count);
                    Ended::Outside(statement, refusals(done))
                })),
                Action::Send => Some(Box::pin(async move {
                    let done = store.submit(vec![send(handle, &body)]).await.map(drop);
                    Ended::Sent(body, done)
                })),
                _ => None,
            };
        }
        let mut open = match self.open[place].take() {
            Some(open) => open,
            None => {
                Open { tx: store.begin(Seen::always()).await.unwrap(), work: Work::default(), savepoints: Vec::new() }
            }
        };
        match action {
            Action::Run { text, expected_rows } => {
                let statement = SqlStatement { expected_rows, ..sql(&text) };
                return Some(Box::pin(async move {
                    let done = open.tx.sql(statement.clone()).await.map(Reported::Count);
                    Ended::Statement(place, open, refusals(done), statement, false)
                }));
            }
            Action::Query(text) => {
                return Some(Box::pin(async move {
                    let values = |rows: SqlRows| rows.rows.iter().map(|row| row.values().to_vec()).collect();
                    let done = open.tx.query(sql(&text)).await.map(|rows| Reported::Rows(values(rows)));
                    Ended::Statement(place, open, refusals(done), sql(&text), true)
                }));
            }
            Action::Commit => {
                let Open { tx, work, .. } = open;
                return Some(Box::pin(async move { Ended::Commit(work, tx.commit().await) }));
            }
            Action::RollBack => return open.tx.rollback(None).await.map(|()| None).unwrap(),
            Action::Drop => return None,
            Action::Send => {
                open.tx.execute(send(handle, &body)).await.unwrap();
                open.work.sent.push(body);
            }
            Action::Savepoint(name) => {
                open.tx.savepoint(&name.to_string()).await.unwrap();
                open.savepoints.push((name, open.work.ran.len(), open.work.sent.len()));
            }
            Action::RollBackTo(name) => {
                if let Some(found) = open.savepoints.iter().rposition(|(known, ..)| *known == name) {
                    open.tx.rollback_to(&name.to_string()).await.unwrap();
                    open.work.ran.truncate(open.savepoints[found].1);
                    open.work.sent.truncate(open.savepoints[found].2);
                    open.savepoints.truncate(found + 1);
                }
            }
        }
        self.open[place] = Some(open);
        None
    }

    fn check(&mut self, ended: Ended) -> Compare {
        match ended {
            Ended::Statement(place, mut open, Ok(reported), statement, is_query) => {
                // A query before the first write shows committed rows, on another connection.
                let is_proven = !statement.text.starts_with("select") || open.work.ran.iter().any(Ran::has_written);
                open.work.ran.push(Ran { statement, is_query, reported, is_proven });
                self.open[place] = Some(open);
                Ok(())
            }
            Ended::Statement(_, open, Err(error), ..) => self.check_end(open.work, Err(error)),
            Ended::Commit(work, done) => self.check_end(work, done),
            Ended::Outside(statement, Ok(reported)) => {
                let is_put_off = matches!(&reported, Reported::Refused(why) if why.contains(DEFERRED));
                let ran = Ran { statement, is_query: false, reported, is_proven: true };
                self.plain.do_all("begin");
                let plain = self.plain.run(&ran.statement, false);
                let is_committed = self.plain.commit();
                let is_right = if is_put_off { !is_committed } else { is_committed && is_same(&ran.reported, &plain) };
                if is_right {
                    Ok(())
                } else {
                    Err(format!("{ran:?}: SQLite gives {plain:?}, committed: {is_committed}"))
                }
            }
            Ended::Outside(statement, Err(error)) => Err(format!("{statement:?}: {error}")),
            Ended::Sent(body, done) => {
                self.sent.push(body);
                done.map_err(|error| error.to_string())
            }
        }
    }

    /// Compares a transaction that has ended.
    fn check_end(&mut self, work: Work, done: Result<()>) -> Compare {
        let mut differences = self.plain.differences(&work.ran);
        let is_conflict = matches!(&done, Err(error) if error.code() == Code::DEADLOCK);
        let is_put_off = matches!(&done, Err(error) if error.message().contains(DEFERRED));
        let is_committed = if is_conflict {
            self.plain.do_all("rollback");
            false
        } else {
            self.plain.commit()
        };
        let is_same = !differences.iter().any(|(is_proven, _)| *is_proven);
        let wrong = match &done {
            Err(error) if is_conflict => {
                differences.is_empty().then(|| format!("every result is the same, but {error}"))
            }
            Err(error) if !is_put_off => Some(error.to_string()),
            _ if !is_same => differences.pop().map(|(_, why)| why),
            _ if is_committed == is_put_off => Some(format!("{done:?}, and committed by SQLite: {is_committed}")),
            _ => None,
        };
        self.sent.extend(if done.is_ok() { work.sent } else { Vec::new() });
        wrong.map_or(Ok(()), |wrong| Err(format!("{wrong}\nin the transaction {:#?}", work.ran)))
    }

    async fn check_tables(&self) -> Compare {
        let mut ours = rows(&self.store, OBJECTS).await;
        ours.retain(|object| !self.not_the_users.contains(object));
        let plain = self.plain.rows(OBJECTS).unwrap();
        if ours != plain {
            return Err(format!("the objects are {ours:#?}\nand those of SQLite {plain:#?}"));
        }
        for object in &ours {
            let [SqlValue::Text(kind), SqlValue::Text(name), _] = &object[..] else { continue };
            let text = match (kind.as_str(), name.as_str()) {
                ("table", "ft") => "select rowid, body from ft".to_owned(),
                ("table", name) => format!("select * from {name}"),
                _ => continue,
            };
            let (mut ours, mut plain) = (rows(&self.store, &text).await, self.plain.rows(&text).unwrap());
            [&mut ours, &mut plain].into_iter().for_each(|rows| rows.sort_by_key(|row| format!("{row:?}")));
            if ours != plain {
                return Err(format!("{text}: {ours:?}\nSQLite: {plain:?}"));
            }
        }
        Ok(())
    }

    /// Commits what is open in one batch, and looks for the messages.
    async fn finish(mut self) -> Compare {
        self.step((0..OUTSIDE).map(|place| (place, Action::Commit)).collect()).await?;
        self.store
            .run_sql(sql("insert into ft (ft) values ('integrity-check')"))
            .await
            .map_err(|error| error.to_string())?;
        let mut received = Vec::new();
        loop {
            let outcomes = self.store.submit(vec![receive()]).await.unwrap();
            if messages(&outcomes[0]).is_empty() {
                break;
            }
            received.extend(bodies(&outcomes[0]));
        }
        received.sort();
        self.sent.sort();
        if received == self.sent { Ok(()) } else { Err(format!("sent {:?}, received {received:?}", self.sent)) }
    }
}

/// The refusal of a commit that SQLite refuses too.
const DEFERRED: &str = "a row breaks a deferred foreign key";

#[test]
fn committed_transactions_do_what_plain_sqlite_does_with_one_after_another() {
    let limit = crate::testing::limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    seeds::check(SEEDS, 200, &vec(step(), 20..120), |seed, steps| {
        limit.doing(format!("DIALOQ_SEED={seed}"));
        let folder = tempfile::tempdir().unwrap();
        let compared = runtime.block_on(async {
            let mut compared = Compared::new(folder.path()).await;
            for step in steps {
                compared.step(step).await?;
            }
            compared.finish().await
        });
        compared.map_err(TestCaseError::fail)
    });
}
