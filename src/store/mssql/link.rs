//! A link over a connection of the pool, or over one of its own.

use super::args::Request;
use super::connect::{Connection, Connector};
use super::guard::guard;
use super::session::{Client, Session, in_batch};
use crate::store::database::link::{Call, Link, Linked};
use crate::store::{BoxFuture, SqlRow, SqlRows, SqlStatement};
use deadpool::managed::Object;
use std::ops::{Deref, DerefMut};

/// The connection of a link.
pub(super) enum Held {
    /// One of the pool.
    Pooled(Object<Connector>),
    /// One of its own.
    Own(Connection),
}

impl Deref for Held {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Self::Pooled(connection) => connection,
            Self::Own(connection) => connection,
        }
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Connection {
        match self {
            Self::Pooled(connection) => connection,
            Self::Own(connection) => connection,
        }
    }
}

/// A link. When it is dropped, its connection returns to the pool, which closes it if it is not clean.
pub(super) struct MssqlLink {
    held: Held,
}

impl MssqlLink {
    pub(super) fn new(held: Held) -> Self {
        Self { held }
    }

    fn parts(&mut self) -> (&mut Session, &mut Client) {
        let connection = &mut *self.held;
        (&mut connection.session, &mut connection.client)
    }
}

impl Link for MssqlLink {
    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            let rows = session.call(client, Request::of_call(&call, session.rows_form)).await?.rows;
            session.holds_locks &= call.name != "unlock_session";
            Ok(rows)
        })
    }

    fn read<'a>(&'a mut self, text: &'static str) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            Ok(session.read(client, text).await?.rows)
        })
    }

    fn query<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<SqlRows>> {
        Box::pin(async move {
            guard(&sql.text)?;
            let (session, client) = self.parts();
            session.query(client, Request::of_statement(sql)).await
        })
    }

    fn execute<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<u64>> {
        Box::pin(async move {
            guard(&sql.text)?;
            let (session, client) = self.parts();
            session.execute(client, Request::of_statement(sql)).await
        })
    }

    fn script<'a>(&'a mut self, text: &'a str) -> BoxFuture<'a, Linked<()>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            session.script(client, text).await.map_err(|failure| in_batch(failure, text))
        })
    }

    fn begin(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            session.begin(client).await
        })
    }

    fn commit(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            session.commit(client).await
        })
    }

    /// The driver does not say that the server has closed the connection, so the socket is asked.
    fn is_closed(&self) -> bool {
        self.held.session.is_broken || !self.held.is_alive()
    }

    fn rollback(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            session.rollback(client).await
        })
    }

    fn savepoint(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            session.save(client, number).await
        })
    }

    fn release(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            self.held.session.release(number);
            Ok(())
        })
    }

    fn rollback_to(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            session.rollback_to(client, number).await
        })
    }

    fn hold_locks(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async move {
            let (session, client) = self.parts();
            session.hold_locks(client).await
        })
    }

    /// The locks go with the transaction.
    fn keep_locks(&mut self) -> BoxFuture<'_, Linked<()>> {
        Box::pin(async { Ok(()) })
    }
}

impl Drop for MssqlLink {
    fn drop(&mut self) {
        // An open transaction and a session keep their locks until the connection is closed. The pool would close it only
        // when the next caller asks for a connection.
        self.held.close_unless_clean();
    }
}
