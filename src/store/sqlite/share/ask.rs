//! A question to the owner of a file, from a process that only reads the file.

use super::frame::{self, Answer, Call, FrameBuffer, FromOwner, Request};
use super::socket::{self, NoConnection};
use super::unexpected;
use crate::error::{Code, Error, Result};
use crate::store::LockHolder;
use crate::store::url::Durability;
use crate::time::Timestamp;
use interprocess::local_socket::tokio::prelude::*;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use uuid::Uuid;

/// How long the owner may take for its greeting and its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// The same for what a status asks: an owner that is stopped must not make each status late by five seconds.
const STATUS_WAIT: Duration = Duration::from_secs(1);

/// The session that holds the lock of a conversation group; `None` if no process owns the file. Call it where a thread may
/// block.
///
/// # Errors
/// 60010 if the owner cannot be worked through, or does not answer.
pub(crate) fn lock_holder(database: &Path, group: Uuid) -> Result<Option<LockHolder>> {
    match ask_owner(database, Call::LockHolder(group), ANSWER_WAIT)? {
        Some(Answer::Holder(holder)) => Ok(holder.map(LockHolder::from)),
        Some(other) => Err(unexpected(&other)),
        None => Ok(None),
    }
}

/// The queues from which a definition that waits holds receives back; none if no process owns the file. Call it where a thread may
/// block.
///
/// # Errors
/// 60010 if the owner cannot be worked through, or does not answer.
pub(crate) fn receive_holds(database: &Path) -> Result<Vec<(i32, Timestamp)>> {
    match ask_owner(database, Call::ReceiveHolds, STATUS_WAIT)? {
        Some(Answer::Holds(holds)) => Ok(holds),
        Some(other) => Err(unexpected(&other)),
        None => Ok(Vec::new()),
    }
}

/// The owner's answer; `None` if no process owns the file, or the owner has ended, and its locks with it.
fn ask_owner(database: &Path, call: Call, wait: Duration) -> Result<Option<Answer>> {
    // A runtime of its own: that of the application may be without I/O.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let asked = async {
        let stream = match socket::connect(database, Durability::Normal).await {
            Ok(stream) => stream,
            Err(NoConnection::Absent) => return Ok(None),
            Err(NoConnection::Silent(error) | NoConnection::Refused(error)) => return Err(error),
        };
        ask(&stream, call).await
    };
    match runtime.block_on(async { timeout(wait, asked).await }) {
        Ok(answer) => answer,
        Err(_) => {
            let text = format!("the owner of the database has not answered for {} s", wait.as_secs());
            Err(Error::new(Code::STORE_OWNED, text))
        }
    }
}

/// The answer to one call; `None` if the connection ends before.
async fn ask(stream: &LocalSocketStream, call: Call) -> Result<Option<Answer>> {
    let mut bytes = Vec::new();
    frame::encode(&Request { id: 1, call }, &mut bytes).map_err(failed)?;
    (&mut &*stream).write_all(&bytes).await.map_err(failed)?;
    let mut arrived = FrameBuffer::default();
    loop {
        while let Some(frame) = arrived.next::<FromOwner>().map_err(failed)? {
            if let FromOwner::Answer { id: 1, answer, .. } = frame {
                return answer.map(Some).map_err(Error::from);
            }
        }
        if (&mut &*stream).read_buf(arrived.room()).await.map_err(failed)? == 0 {
            return Ok(None);
        }
    }
}

fn failed(error: io::Error) -> Error {
    Error::new(Code::STORE_IO, format!("the owner of the database could not be asked ({error})"))
}
