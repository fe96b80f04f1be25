//! A question to the owner of a file, from a process that only reads the file.

use super::frame::{self, Answer, Call, FrameBuffer, FromOwner, Request};
use super::socket::{self, NoConnection};
use super::unexpected;
use crate::error::{Code, Error, Result};
use crate::store::LockHolder;
use crate::store::url::Durability;
use interprocess::local_socket::tokio::prelude::*;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use uuid::Uuid;

/// How long the owner may take for its greeting and its answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The session that holds the lock of a conversation group; `None` if no process owns the file. Call it where a thread may
/// block.
///
/// # Errors
/// 60010 if the owner cannot be worked through, or does not answer.
pub(crate) fn lock_holder(database: &Path, group: Uuid) -> Result<Option<LockHolder>> {
    // A runtime of its own: that of the application may be without I/O.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let asked = async {
        let stream = match socket::connect(database, Durability::Normal).await {
            Ok(stream) => stream,
            Err(NoConnection::Absent) => return Ok(None),
            Err(NoConnection::Silent(error) | NoConnection::Refused(error)) => return Err(error),
        };
        ask(&stream, Call::LockHolder(group)).await
    };
    match runtime.block_on(async { timeout(ANSWER_WAIT, asked).await }) {
        Ok(Ok(Some(Answer::Holder(holder)))) => Ok(holder.map(LockHolder::from)),
        Ok(Ok(Some(other))) => Err(unexpected(&other)),
        // No process owns the file, or the owner has ended, and its locks with it.
        Ok(Ok(None)) => Ok(None),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(Code::STORE_OWNED, "the owner of the database has not answered for 5 s")),
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
