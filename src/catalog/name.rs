//! The rules for names of objects.

use crate::error::{Error, Result};

/// The most characters in the name of an object (`sysname`).
const OBJECT_NAME_CHARS: usize = 128;
/// The most characters in the name of a service on the other side.
const FAR_SERVICE_NAME_CHARS: usize = 256;

/// Refuses an unusable name of an object: empty, over 128 characters, or with a NUL character.
pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    check(what, name, OBJECT_NAME_CHARS)
}

/// Refuses an unusable name of a queue: also a leading `#`, which would mean a temporary one.
pub(super) fn check_queue_name(name: &str) -> Result<()> {
    check_name("queue", name)?;
    if name.starts_with('#') {
        return Err(Error::bad_name("queue", name, "queues cannot be temporary; leave the leading '#' out"));
    }
    Ok(())
}

/// Refuses an unusable name of a service that need not exist here: empty, over 256 characters, or with a NUL character.
pub(super) fn check_far_service_name(name: &str) -> Result<()> {
    check("service", name, FAR_SERVICE_NAME_CHARS)
}

fn check(what: &str, name: &str, most: usize) -> Result<()> {
    if name.is_empty() {
        return Err(Error::bad_name(what, name, format_args!("it is empty; give it 1 to {most} characters")));
    }
    let found = name.chars().count();
    if found > most {
        return Err(Error::bad_name(what, name, format_args!("it has {found} characters; at most {most} are allowed")));
    }
    if name.contains('\0') {
        return Err(Error::bad_name(what, &name.replace('\0', "\\0"), "it contains a NUL character; leave that out"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn characters_are_counted_not_bytes() {
        for character in ["a", "ü", "🚚"] {
            assert!(check_name("service", &character.repeat(128)).is_ok());
            assert_eq!(check_name("service", &character.repeat(129)).unwrap_err().code(), Code::BAD_NAME);
            assert!(check_far_service_name(&character.repeat(256)).is_ok());
            assert_eq!(check_far_service_name(&character.repeat(257)).unwrap_err().code(), Code::BAD_NAME);
        }
    }

    #[test]
    fn empty_names_and_nul_are_refused_and_other_characters_are_not() {
        for bad in ["", "a\0b"] {
            assert_eq!(check_name("contract", bad).unwrap_err().code(), Code::BAD_NAME);
        }
        for odd in ["a]b", "a'b", "a\"b", "a;b", " ", "//x/y", "#t", "ANY", "line\nbreak"] {
            assert!(check_name("contract", odd).is_ok(), "{odd:?}");
        }
    }

    #[test]
    fn only_queues_refuse_a_leading_number_sign() {
        assert_eq!(check_queue_name("#q").unwrap_err().code(), Code::BAD_NAME);
        assert!(check_queue_name("q#").is_ok());
    }
}
