//! Which message bodies pass at their destination.
//!
//! A body is judged when its message enters the target's queue, never at SEND, and the receiver's own definition of
//! the message type decides. Bodies come from strangers: every check is bounded in depth and takes time in proportion
//! to the size of the body, follows no reference to a file or a network, and expands no entity.
//!
//! A store checks bodies before it takes any lock, and keeps the [`Verdict`] for the moment of arrival.

mod chains;
mod counted;
mod json;
mod markup;
mod patterns;
mod schemas;
mod verdict;
mod weights;
mod xml;
mod xsd;

use super::{Catalog, MessageType};
use crate::protocol::definition::Validation;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemas::{Compiled, Kind, Schema, Schemas};

pub use schemas::CompiledSchemas;
pub use verdict::{CheckedTypes, Judgement, Verdict};

/// The code of the Error a sender gets for XML that does not pass.
const XML_REJECTED: i32 = -9615;
/// The code of the Error a sender gets for a body that conflicts with the type in any other way.
const KIND_REJECTED: i32 = -8430;

/// The largest body that gets a quick check.
const QUICK_BYTES: usize = 4 * 1024;
/// Steps of a quick check by JSON Schema.
const QUICK_STEPS: u64 = 5_000;

/// Steps of a check by a schema, however small the body is.
const LEAST_STEPS: u64 = 1_000_000;
/// Steps for each byte of the body, on top of that.
const STEPS_PER_BYTE: u64 = 16;

/// Steps of a check by a schema: accesses to values of a JSON body, visits of elements of an XML body.
fn most_steps(bytes: usize) -> u64 {
    LEAST_STEPS + STEPS_PER_BYTE * bytes as u64
}

/// Processor time of a check, and for each byte of the body, after which it is given up. What is counted before it runs keeps nearly all far
/// below; this is for what the counts miss, and for patterns.
const MOST_TIME: Duration = Duration::from_secs(10);
const MOST_TIME_PER_BYTE: Duration = Duration::from_micros(10);

fn most_time(bytes: usize) -> Duration {
    MOST_TIME + MOST_TIME_PER_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// The processor time of this thread: a check is not given up because the machine is busy, or because its process was stopped.
#[cfg(unix)]
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(not(unix))]
fn processor_time() -> Duration {
    Duration::ZERO
}

thread_local! {
    /// Whether the check under way on this thread may give way: only one that no lock waits for.
    static MAY_GIVE_WAY: Cell<bool> = const { Cell::new(false) };
    #[cfg(test)]
    static GAVE_WAY: Cell<u32> = const { Cell::new(0) };
}

/// Gives other threads a turn, in a check of full effort.
fn give_way() {
    if MAY_GIVE_WAY.get() {
        #[cfg(test)]
        GAVE_WAY.set(GAVE_WAY.get() + 1);
        crate::time::give_way();
    }
}

/// The most memory that a check by a schema may take. `<n/>` a million times takes 600 MB.
const MOST_MEMORY: u64 = 1 << 30;

/// Refuses a body whose check would take too much memory.
fn check_memory(bytes: u64) -> Result<(), String> {
    if bytes <= MOST_MEMORY {
        return Ok(());
    }
    Err(format!(
        "checking it may take {} MiB of memory; the limit is {} MiB; send fewer elements or values in one message",
        bytes >> 20,
        MOST_MEMORY >> 20
    ))
}

/// Why a body did not pass: the content of the Error message to the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// -9615 for XML (the receiver's own Error says -9616), -8430 for anything else.
    pub code: i32,
    /// Names the message type, the fault and the correct form.
    pub description: String,
}

/// Characters of a description. The name of a type, an element or a property may come from the body, so a description
/// can be as long as the body; the servers take a verdict of 10,000 characters.
const MOST_DESCRIBED: usize = 3000;

impl Rejection {
    fn new(code: i32, description: String) -> Self {
        // A name in a body may hold NUL, which the servers' texts cannot.
        let mut description = description.replace('\0', "\u{fffd}");
        if let Some((end, _)) = description.char_indices().nth(MOST_DESCRIBED) {
            description.truncate(end);
            description.push_str("...");
        }
        Self { code, description }
    }
}

/// How much work a check may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// A few milliseconds at most: for use under a lock.
    Quick,
    /// As much as the limits allow: for a thread of its own.
    Full,
}

impl Effort {
    fn steps(self) -> u64 {
        match self {
            Self::Quick => QUICK_STEPS,
            Self::Full => u64::MAX,
        }
    }

    /// The processor time that ends the check of so many bytes; `None` where nothing but its steps does.
    fn time(self, bytes: usize) -> Option<Duration> {
        (self == Self::Full && cfg!(unix)).then(|| most_time(bytes))
    }
}

/// The checks of all message types, each schema compiled once, and the verdicts of messages that are being sent.
#[derive(Default)]
pub struct BodyChecks {
    schemas: Mutex<Schemas>,
    verdicts: verdict::Verdicts,
}

impl std::fmt::Debug for BodyChecks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyChecks").finish_non_exhaustive()
    }
}

impl BodyChecks {
    /// Nothing compiled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether that body passes as a message of that type; a body of no bytes is no body. Takes time in proportion to
    /// the size of the body, seconds for tens of megabytes: never call it under a lock.
    ///
    /// # Errors
    /// The [`Rejection`] for the sender.
    pub fn check(&self, catalog: &Catalog, message_type: &MessageType, body: Option<&[u8]>) -> Result<(), Rejection> {
        self.judge(catalog, message_type, body, Effort::Full).expect("the full effort always suffices")
    }

    /// The same if it takes milliseconds at most, else `None`. A schema is never compiled here.
    pub fn quick_check(
        &self,
        catalog: &Catalog,
        message_type: &MessageType,
        body: Option<&[u8]>,
    ) -> Option<Result<(), Rejection>> {
        self.judge(catalog, message_type, body, Effort::Quick)
    }

    fn judge(
        &self,
        catalog: &Catalog,
        message_type: &MessageType,
        body: Option<&[u8]>,
        effort: Effort,
    ) -> Option<Result<(), Rejection>> {
        let Some(body) = body.filter(|body| !body.is_empty()) else {
            return Some(Ok(()));
        };
        // If a defect of a validator panics, it costs one message, not the broker.
        MAY_GIVE_WAY.set(effort == Effort::Full);
        let judged = catch_unwind(AssertUnwindSafe(|| self.judge_unguarded(catalog, message_type, body, effort)));
        MAY_GIVE_WAY.set(false);
        judged.unwrap_or_else(|_| {
            let description = format!("the validator failed on the body of a message of type '{}'", message_type.name);
            Some(Err(Rejection::new(KIND_REJECTED, description)))
        })
    }

    fn judge_unguarded(
        &self,
        catalog: &Catalog,
        message_type: &MessageType,
        body: &[u8],
        effort: Effort,
    ) -> Option<Result<(), Rejection>> {
        let is_cheap = matches!(message_type.validation, Validation::None | Validation::Empty);
        if effort == Effort::Quick && !is_cheap && body.len() > QUICK_BYTES {
            return None;
        }
        let (code, kind, result) = match &message_type.validation {
            Validation::None => return Some(Ok(())),
            Validation::Empty => {
                let found = format!("{} bytes were found; the type allows no body", body.len());
                (KIND_REJECTED, "must be empty", Err(found))
            }
            Validation::WellFormedXml => (XML_REJECTED, "is not well-formed XML", xml::well_formed(body)),
            Validation::ValidXml { schema_collection } => {
                let result = self.check_collection(catalog, message_type, schema_collection, body, effort)?;
                (XML_REJECTED, "is not valid XML", result)
            }
            Validation::Json => (KIND_REJECTED, "is not JSON", json::well_formed(body)),
            Validation::JsonSchema { schema } => {
                let result = self.check_json(message_type, schema, body, effort)?;
                (KIND_REJECTED, "does not match its JSON Schema", result)
            }
        };
        Some(result.map_err(|why| {
            Rejection::new(code, format!("the body of a message of type '{}' {kind}: {why}", message_type.name))
        }))
    }

    /// Lets no check by a schema begin until the guard is dropped.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop + '_ {
        self.schemas()
    }

    /// How many verdicts are kept.
    #[cfg(test)]
    pub(crate) fn verdicts_held(&self) -> usize {
        self.verdicts.lock().unwrap_or_else(std::sync::PoisonError::into_inner).len()
    }

    fn check_collection(
        &self,
        catalog: &Catalog,
        message_type: &MessageType,
        name: &str,
        body: &[u8],
        effort: Effort,
    ) -> Option<Result<(), String>> {
        let Some(collection) = catalog.xml_schema_collection(name) else {
            return Some(Err(format!("the XML schema collection '{name}' of the type was not found")));
        };
        let compiled = self.compiled(Kind::Xsd, message_type, &collection.schemas, effort)?;
        match &compiled.schema {
            Ok(Schema::Xsd(collection)) => collection.check(body, effort),
            Ok(Schema::Json(_)) => unreachable!("the kind says which schema was compiled"),
            Err(why) => Some(Err(format!("the XML schema collection '{name}' of the type is not usable: {why}"))),
        }
    }

    fn check_json(
        &self,
        message_type: &MessageType,
        text: &str,
        body: &[u8],
        effort: Effort,
    ) -> Option<Result<(), String>> {
        let compiled = self.compiled(Kind::Json, message_type, text, effort)?;
        match &compiled.schema {
            Ok(Schema::Json(schema)) => schema.check(body, effort),
            Ok(Schema::Xsd(_)) => unreachable!("the kind says which schema was compiled"),
            Err(why) => Some(Err(format!("the JSON Schema of the type is not usable: {why}"))),
        }
    }

    /// The compiled schema of a type; `None` if it is not compiled yet and the effort is quick.
    fn compiled(&self, kind: Kind, message_type: &MessageType, text: &str, effort: Effort) -> Option<Arc<Compiled>> {
        let known = self.schemas().of_type(kind, message_type.id, text);
        match (known, effort) {
            (None, Effort::Full) => {
                let compiled = self.compile(kind, text);
                Some(self.schemas().keep(compiled, Some(message_type.id)))
            }
            (known, _) => known,
        }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
