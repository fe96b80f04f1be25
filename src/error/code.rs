//! The stable numbers.

use super::ErrorKind;
use std::fmt;

/// The stable number of an error: Service Broker's where the condition is the same, ours from 60001.
///
/// A gap among ours is a retired code. Service Broker's numbers for what only its statements' text can get wrong, a NULL
/// where a value must stand, have no place here: the types of the verbs rule those out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal, $kind:ident;)*) => {
        impl Code {
            $($(#[doc = $doc])* pub const $name: Code = Code($number);)*
            /// Every code Dialoq can raise, ascending, with its meaning.
            pub const ALL: &'static [(Code, &'static str)] = &[$((Code($number), concat!($($doc),*))),*];

            /// The class of the condition: each code has exactly one. A number that is not in [`Code::ALL`] counts as a
            /// failure of the store.
            pub const fn kind(self) -> ErrorKind {
                match self.0 {
                    $($number => ErrorKind::$kind,)*
                    _ => ErrorKind::Store,
                }
            }
        }
    };
}

codes! {
    /// The transaction was chosen as the victim of a deadlock and rolled back; run it again.
    DEADLOCK = 1205, Conflict;
    /// A lock was not granted in time; the same call may succeed later.
    LOCK_TIMEOUT = 1222, Conflict;
    /// The object is still bound to others.
    OBJECT_IN_USE = 3716, InUse;
    /// A message type is listed twice in one contract.
    MESSAGE_TYPE_LISTED_TWICE = 8403, Input;
    /// A contract is listed twice in one service.
    CONTRACT_LISTED_TWICE = 8404, Input;
    /// The timer would fire after the conversation's LIFETIME.
    TIMER_BEYOND_LIFETIME = 8410, Input;
    /// LIFETIME or TIMEOUT is out of range.
    LIFETIME_OUT_OF_RANGE = 8411, Input;
    /// A service name is not usable.
    BAD_SERVICE_NAME = 8412, Input;
    /// A broker instance is not usable.
    BAD_BROKER_INSTANCE = 8413, Input;
    /// A conversation group id is not usable here.
    BAD_GROUP_ID = 8414, Input;
    /// An activated task ended with its transaction open.
    ACTIVATED_TASK_OPEN_TRANSACTION = 8415, User;
    /// The conversation handle is missing.
    HANDLE_MISSING = 8418, Input;
    /// The service was not found.
    SERVICE_NOT_FOUND = 8423, NotFound;
    /// The code of END WITH ERROR is missing or not above zero.
    END_ERROR_CODE_MISSING = 8424, Input;
    /// The contract was not found.
    CONTRACT_NOT_FOUND = 8425, NotFound;
    /// The conversation handle was not found.
    CONVERSATION_NOT_FOUND = 8426, NotFound;
    /// The conversation's state does not allow END.
    STATE_FORBIDS_END = 8427, State;
    /// The message type was not found.
    MESSAGE_TYPE_NOT_FOUND = 8428, NotFound;
    /// The conversation's state does not allow SEND.
    STATE_FORBIDS_SEND = 8429, State;
    /// The message type is not in the contract.
    MESSAGE_TYPE_NOT_IN_CONTRACT = 8431, Input;
    /// The message type may be sent by the target only.
    SENT_BY_TARGET_ONLY = 8432, Input;
    /// The message type may be sent by the initiator only.
    SENT_BY_INITIATOR_ONLY = 8434, Input;
    /// One handle in a list was not found.
    LISTED_CONVERSATION_NOT_FOUND = 8435, NotFound;
    /// The conversation group was not found.
    GROUP_NOT_FOUND = 8436, NotFound;
    /// The conversation's state does not allow MOVE.
    STATE_FORBIDS_MOVE = 8438, State;
    /// The destination conversation group is not usable.
    BAD_DESTINATION_GROUP = 8439, Input;
    /// A handle is repeated in a list.
    LISTED_HANDLE_TWICE = 8451, Input;
    /// The conversation's state does not allow BEGIN CONVERSATION TIMER.
    STATE_FORBIDS_TIMER = 8458, State;
    /// The message is larger than the limit.
    MESSAGE_TOO_LARGE = 8459, Input;
    /// The contract lets the initiator send nothing.
    CONTRACT_WITHOUT_INITIATOR = 8492, Input;
    /// ALTER SERVICE changes nothing.
    ALTER_SERVICE_EMPTY = 8493, Input;
    /// The conversations cannot be related.
    RELATION_IMPOSSIBLE = 9601, State;
    /// The FROM service differs from the service of the group.
    GROUP_OF_OTHER_SERVICE = 9610, Input;
    /// Activation has no user to run as.
    ACTIVATION_USER_MISSING = 9613, Input;
    /// Activation has no procedure, or it is not usable.
    ACTIVATION_PROCEDURE_MISSING = 9614, Input;
    /// The queue is disabled.
    QUEUE_DISABLED = 9617, State;
    /// SEND is refused because the own queue is disabled and retains messages.
    OWN_QUEUE_DISABLED_WITH_RETENTION = 9618, State;
    /// Activation is on with a limit of 0 readers (a warning).
    ACTIVATION_LIMIT_ZERO = 9648, Input;
    /// The object belongs to the system and cannot be changed.
    SYSTEM_OBJECT = 9663, Input;
    /// Internal activation and a QUEUE_ACTIVATION notification exclude each other: the notification exists.
    NOTIFICATION_EXCLUDES_ACTIVATION = 9717, InUse;
    /// Internal activation and a QUEUE_ACTIVATION notification exclude each other: the activation exists.
    ACTIVATION_EXCLUDES_NOTIFICATION = 9718, InUse;
    /// The activation procedure is temporary.
    ACTIVATION_PROCEDURE_TEMPORARY = 9742, Input;
    /// A reader was ended because its queue was dropped.
    READER_QUEUE_DROPPED = 28085, State;
    /// A reader was ended because its queue or activation was disabled.
    READER_QUEUE_DISABLED = 28086, State;
    /// A reader ended without a RECEIVE.
    READER_WITHOUT_RECEIVE = 28087, User;
    /// A reader ended with an error.
    READER_FAILED = 28088, User;
    /// An object of that name exists.
    DUPLICATE_NAME = 60001, InUse;
    /// The object named in a definition does not exist.
    OBJECT_NOT_FOUND = 60002, NotFound;
    /// The name is not usable.
    BAD_NAME = 60003, Input;
    /// The statement is not understood.
    SYNTAX = 60004, Input;
    /// A value is out of its range.
    OUT_OF_RANGE = 60005, Input;
    /// An XML or JSON schema is not usable.
    BAD_SCHEMA = 60006, Input;
    /// A broker priority with the same criteria exists.
    DUPLICATE_PRIORITY_CRITERIA = 60007, InUse;
    /// Definitions cannot be made inside a transaction of the embedded store.
    DEFINITION_IN_TRANSACTION = 60008, Unsupported;
    /// The database file is owned by another process.
    STORE_OWNED = 60010, Store;
    /// The file is not a Dialoq database.
    STORE_FOREIGN = 60011, Store;
    /// The database file is damaged.
    STORE_DAMAGED = 60012, Store;
    /// The database was written by a newer Dialoq.
    STORE_NEWER = 60013, Store;
    /// The database file or its folder cannot be written.
    STORE_READ_ONLY = 60014, Store;
    /// An earlier commit failed; nothing more is accepted until the store is opened again. A file that may be shared is opened again by
    /// itself after a full disk.
    STORE_POISONED = 60015, Store;
    /// The broker is closed.
    STORE_CLOSED = 60016, Store;
    /// The disk is full.
    STORE_FULL = 60017, Store;
    /// The store could not be read or written.
    STORE_IO = 60018, Store;
    /// The URL of the store is not understood.
    BAD_URL = 60019, Input;
    /// The transaction has ended or was rolled back by an earlier error.
    TRANSACTION_ENDED = 60020, State;
    /// A message body does not decode as the type that was asked for.
    BODY_UNDECODABLE = 60021, Input;
    /// The user's own SQL failed.
    USER_SQL_FAILED = 60022, User;
    /// The savepoint does not exist in this transaction.
    SAVEPOINT_NOT_FOUND = 60023, NotFound;
    /// A handler returned an error or panicked.
    HANDLER_FAILED = 60024, User;
    /// An external program failed.
    PROGRAM_FAILED = 60025, User;
    /// Dialoq does not do this.
    UNSUPPORTED = 60026, Unsupported;
    /// A body cannot be encoded.
    BODY_UNENCODABLE = 60027, Input;
    /// Input from a file or stream is not usable.
    BAD_INPUT = 60028, Input;
    /// No handler takes messages of this type.
    MESSAGE_TYPE_UNHANDLED = 60029, User;
    /// The database server cannot be reached or has no free connection, or the connection to it was lost before anything
    /// was committed.
    SERVER_UNREACHABLE = 60030, Store;
    /// COMMIT was sent and its answer never came: the unit may have happened or not.
    COMMIT_UNKNOWN = 60031, Store;
    /// No connection became free in time.
    POOL_EXHAUSTED = 60032, Store;
    /// The definitions have changed since the client read them; it reads them again by itself.
    CATALOG_STALE = 60033, Conflict;
    /// The database server refuses the login, the database or the statement to this user.
    ACCESS_DENIED = 60034, Store;
    /// The database has no Dialoq schema, or only part of one.
    SCHEMA_MISSING = 60035, Store;
    /// A statement of the user's own SQL ran longer than its limit and was stopped.
    SQL_TIMEOUT = 60036, User;
    /// A row of the broker was changed or deleted by another program while this process owned the database.
    STORE_CHANGED = 60037, Store;
    /// A cancelled RECEIVE of this transaction took messages that the caller never saw, so it was rolled back; run it again.
    RECEIVE_CANCELLED = 60038, Conflict;
    /// There is no such job in a work queue: it is done, was cancelled, or never was.
    JOB_NOT_FOUND = 60040, NotFound;
    /// The job is not taken, so that nothing can be reported on it.
    JOB_NOT_TAKEN = 60041, State;
    /// The lease of the job was over; another reader may have it.
    LEASE_LOST = 60042, State;
    /// An open transaction holds the job; the same call may succeed later.
    JOB_LOCKED = 60043, Conflict;
    /// The job is not dead, so that it needs no other attempts.
    JOB_NOT_DEAD = 60044, State;
    /// The CRON or the TIME_ZONE of a work schedule is not usable.
    BAD_CRON = 60045, Input;
    /// The process that owned the database file ended during the call. Another takes over; what was not committed in a
    /// transaction may have happened or not. A commit under way fails with [`Code::COMMIT_UNKNOWN`].
    OWNER_GONE = 60046, Conflict;
    /// A message was received as often as the retry policy of its queue allows, and never committed.
    RETRIES_USED_UP = 60047, State;
    /// There is no such dead letter: it was redriven or purged, or never was one.
    DEAD_LETTER_NOT_FOUND = 60048, NotFound;
    /// Another transaction redrives or purges the dead letter; the same call may succeed later.
    DEAD_LETTER_LOCKED = 60049, Conflict;
    /// The conversation of the dead letter has ended on the side that received it, so it cannot be redriven.
    DEAD_LETTER_WITHOUT_CONVERSATION = 60050, State;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_code_has_one_kind_however_it_is_raised() {
        let mut last = Code(0);
        for (code, _) in Code::ALL {
            assert!(*code > last, "the table ascends: {code} after {last}");
            last = *code;
            let here = Error::new(*code, "raised here");
            let by_the_server = crate::store::database::refusal(i64::from(code.0), "raised by a server");
            assert_eq!((by_the_server.code(), by_the_server.kind()), (*code, here.kind()));
            assert_eq!(by_the_server.is_retryable(), here.is_retryable(), "{code}");
        }
        assert_eq!(Code(1).kind(), ErrorKind::Store, "a number that is not in the table");
    }

    #[test]
    fn retryable_is_a_property_of_the_code() {
        let retryable: Vec<u16> = Code::ALL
            .iter()
            .map(|(code, _)| *code)
            .filter(|code| Error::new(*code, "").is_retryable())
            .map(|code| code.0)
            .collect();
        assert_eq!(retryable, [1205, 1222, 60_030, 60_032, 60_033, 60_038, 60_043, 60_046, 60_049]);
        let page = include_str!("../../docs/troubleshooting.md");
        let (before, _) = page.split_once(" may be tried again as they are").expect("the page lists them");
        let sentence = before.rsplit(". ").next().unwrap_or_default();
        let listed: Vec<u16> = sentence.split([',', ' ']).filter_map(|word| word.parse().ok()).collect();
        assert_eq!(listed, retryable, "in docs/troubleshooting.md");
    }
}
