//! The name of a work queue with the Rust type of its jobs.

use crate::error::{Code, Error, Result};
use crate::message::{bytes_body, encode_json};
use crate::protocol::Body;
use crate::protocol::work::Job;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// A work queue with the Rust type of its jobs. A `const` of it is the whole declaration, as of a
/// [`MessageType`](crate::MessageType).
pub struct WorkQueue<T> {
    name: &'static str,
    encode: fn(&T) -> Result<Body>,
    decode: fn(&Job) -> Result<T>,
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for WorkQueue<T> {}

impl<T> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned> WorkQueue<T> {
    /// Jobs are JSON texts.
    pub const fn json(name: &'static str) -> Self {
        Self {
            name,
            encode: encode_json::<T>,
            decode: |job| {
                serde_json::from_slice(body(job))
                    .map_err(|cause| undecodable(job, std::any::type_name::<T>(), &cause).caused_by(cause))
            },
        }
    }
}

impl WorkQueue<Vec<u8>> {
    /// Jobs are any bytes.
    pub const fn raw(name: &'static str) -> Self {
        Self { name, encode: |bytes| Ok(bytes_body(bytes)), decode: |job| Ok(body(job).to_vec()) }
    }
}

impl WorkQueue<String> {
    /// Jobs are UTF-8 texts.
    pub const fn text(name: &'static str) -> Self {
        Self {
            name,
            encode: |text| Ok(bytes_body(text.as_bytes())),
            decode: |job| {
                String::from_utf8(body(job).to_vec())
                    .map_err(|cause| undecodable(job, "a text", &cause).caused_by(cause))
            },
        }
    }
}

impl<T> WorkQueue<T> {
    /// The name, compared without regard to the case of A to Z.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// A work queue for jobs of `V`: a [`WorkQueue`] with its own Rust type, or a plain name with anything that is bytes.
pub trait PushesTo<V: ?Sized> {
    /// The name of the work queue.
    fn queue_name(&self) -> &str;

    /// The body of a job.
    ///
    /// # Errors
    /// 60027 if the value cannot be written in this form.
    fn job_body(&self, value: &V) -> Result<Body>;
}

impl<T> PushesTo<T> for WorkQueue<T> {
    fn queue_name(&self) -> &str {
        self.name
    }

    fn job_body(&self, value: &T) -> Result<Body> {
        (self.encode)(value)
    }
}

impl PushesTo<str> for WorkQueue<String> {
    fn queue_name(&self) -> &str {
        self.name
    }

    fn job_body(&self, value: &str) -> Result<Body> {
        (self.encode)(&value.to_owned())
    }
}

impl PushesTo<[u8]> for WorkQueue<Vec<u8>> {
    fn queue_name(&self) -> &str {
        self.name
    }

    fn job_body(&self, value: &[u8]) -> Result<Body> {
        (self.encode)(&value.to_vec())
    }
}

impl<V: AsRef<[u8]> + ?Sized> PushesTo<V> for &str {
    fn queue_name(&self) -> &str {
        self
    }

    fn job_body(&self, value: &V) -> Result<Body> {
        Ok(bytes_body(value.as_ref()))
    }
}

impl<V: AsRef<[u8]> + ?Sized> PushesTo<V> for &String {
    fn queue_name(&self) -> &str {
        self
    }

    fn job_body(&self, value: &V) -> Result<Body> {
        Ok(bytes_body(value.as_ref()))
    }
}

/// The name of a work queue.
pub trait NamesQueue {
    /// The name.
    fn queue_name(&self) -> &str;
}

impl<T> NamesQueue for WorkQueue<T> {
    fn queue_name(&self) -> &str {
        self.name
    }
}

impl NamesQueue for &str {
    fn queue_name(&self) -> &str {
        self
    }
}

impl NamesQueue for &String {
    fn queue_name(&self) -> &str {
        self
    }
}

impl Job {
    /// The bytes of the body; none if the job has no body.
    pub fn body(&self) -> &[u8] {
        body(self)
    }

    /// The content as the queue's Rust type.
    ///
    /// # Errors
    /// 60021 if the body does not have this form.
    pub fn decode<T>(&self, queue: WorkQueue<T>) -> Result<T> {
        (queue.decode)(self)
    }
}

fn body(job: &Job) -> &[u8] {
    job.body.as_deref().unwrap_or_default()
}

fn undecodable(job: &Job, wanted: &str, why: &dyn fmt::Display) -> Error {
    Error::new(
        Code::BODY_UNDECODABLE,
        format!("the body of job {} of work queue '{}' does not decode as {wanted}: {why}", job.taken.job, job.queue),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MessageType, SendsAs};

    #[test]
    fn borrowed_values_are_written_in_the_form_of_their_queue_and_type() {
        let text = |queue: WorkQueue<String>| PushesTo::<str>::job_body(&queue, "x").unwrap().unwrap().to_vec();
        assert_eq!((text(WorkQueue::text("q")), text(WorkQueue::json("q"))), (b"x".to_vec(), b"\"x\"".to_vec()));
        let bytes = |queue: WorkQueue<Vec<u8>>| PushesTo::<[u8]>::job_body(&queue, &[7]).unwrap().unwrap().to_vec();
        assert_eq!((bytes(WorkQueue::raw("q")), bytes(WorkQueue::json("q"))), (vec![7], b"[7]".to_vec()));

        let text = |sent_as: MessageType<String>| SendsAs::<str>::body(&sent_as, "x").unwrap().unwrap().to_vec();
        assert_eq!((text(MessageType::text("t")), text(MessageType::json("t"))), (b"x".to_vec(), b"\"x\"".to_vec()));
        let bytes = |sent_as: MessageType<Vec<u8>>| SendsAs::<[u8]>::body(&sent_as, &[7]).unwrap().unwrap().to_vec();
        assert_eq!((bytes(MessageType::raw("t")), bytes(MessageType::json("t"))), (vec![7], b"[7]".to_vec()));
    }
}
