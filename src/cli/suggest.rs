//! "Did you mean", added to refusals that name something that does not exist.

use super::failure::Failure;
use super::globals::Globals;
use dialoq::catalog::Catalog;
use dialoq::internals::ErrorConstructors;
use dialoq::status::NameKind;
use dialoq::{Code, Error};

/// The failure, with the name that was probably meant, or with the kind of queue that has this name.
pub(super) fn with_names(failure: Failure, globals: &Globals) -> Failure {
    let Failure::Refused(error) = failure else { return failure };
    let near = globals.opened.get().and_then(|catalog| {
        let (kind, name) = missing(&error)?;
        if error.message().contains("did you mean") {
            return None;
        }
        if let Some(other) = other_kind(catalog, kind, &name) {
            return Some(other.to_owned());
        }
        // The name itself was dropped while the command waited.
        let near = kind.nearest(catalog, &name).filter(|near| **near != *name)?;
        Some(format!("did you mean '{near}'?"))
    });
    Failure::Refused(match near {
        None => error,
        Some(hint) => {
            let message = format!("{}; {hint}", error.message());
            let (code, position) = (error.code(), error.position());
            let named = Error::new(code, message);
            position.into_iter().fold(named, |named, position| named.at(position))
        }
    })
}

/// What to say of a queue that is one of the other kind.
fn other_kind(catalog: &Catalog, kind: NameKind, name: &str) -> Option<&'static str> {
    match kind {
        NameKind::Queue if catalog.work_queue(name).is_some() => {
            Some("there is a work queue of this name (`dialoq work`, ALTER WORK QUEUE)")
        }
        NameKind::WorkQueue if catalog.queue(name).is_some() => {
            Some("there is a queue of messages of this name, whose commands are those without `work`")
        }
        _ => None,
    }
}

/// What does not exist, by the number and the text of a refusal: the last of the words of a kind, and the quoted name after it.
fn missing(error: &Error) -> Option<(NameKind, String)> {
    let is_missing = [
        Code::OBJECT_NOT_FOUND,
        Code::SERVICE_NOT_FOUND,
        Code::CONTRACT_NOT_FOUND,
        Code::MESSAGE_TYPE_NOT_FOUND,
        Code::MESSAGE_TYPE_NOT_IN_CONTRACT,
    ]
    .contains(&error.code());
    if !is_missing {
        return None;
    }
    let message = error.message();
    // Longer words first: a work queue is no queue.
    let kinds = [
        NameKind::WorkSchedule,
        NameKind::WorkQueue,
        NameKind::MessageType,
        NameKind::BrokerPriority,
        NameKind::Contract,
        NameKind::Service,
        NameKind::Queue,
    ];
    kinds.into_iter().find_map(|kind| {
        let (_, rest) = message.split_once(&format!("{} '", kind.words()))?;
        let (name, _) = rest.split_once('\'')?;
        Some((kind, name.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_name_is_read_from_the_refusal() {
        let found = |code, text: &str| missing(&Error::new(code, text));
        assert_eq!(
            found(Code::OBJECT_NOT_FOUND, "work queue 'a' was not found"),
            Some((NameKind::WorkQueue, "a".into()))
        );
        assert_eq!(found(Code::OBJECT_NOT_FOUND, "queue 'b' was not found"), Some((NameKind::Queue, "b".into())));
        assert_eq!(found(Code::DUPLICATE_NAME, "queue 'b' exists already"), None);
    }
}
