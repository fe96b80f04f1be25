//! The strategies that the lab compares, each with the queues it needs.

use super::On;
use super::scene::{HIGH_LEVEL, HIGH_QUEUE, LOW_QUEUE, Layout, QUEUE};
use dialoq::internals::ErrorConstructors;
use dialoq::receive::strategy::{
    Bound, Form, ReaderPools, Strategy, aging, by_levels, drain_high_then_one_low, drain_one_conversation,
    dual_queue_loop, dual_queue_loop_classic, independent_readers, weighted,
};
use dialoq::{Code, ConversationHandle, Error, Result};
use std::time::Duration;

/// Readers of the high queue in strategy 3; the low queue has one.
const HIGH_READERS: u16 = 3;
/// Receives of the high and of the low queue in a window of the weighted strategy.
const WEIGHTS: (u32, u32) = (3, 1);
/// What the waiting of one level lasts under aging.
const PER_LEVEL: Duration = Duration::from_millis(60);

/// A strategy in one of its forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contestant {
    Drain(Form),
    DualQueue(Form),
    Readers(Form),
    Weighted,
    Aging,
}

/// How a contestant reads.
pub(super) enum Reading {
    /// One reader that a strategy leads.
    ByStrategy(Box<dyn Strategy>),
    /// A pool of activated readers for each queue.
    ByPools(ReaderPools),
}

impl Reading {
    pub(super) fn bound(&self) -> Bound {
        match self {
            Self::ByStrategy(strategy) => strategy.bound(),
            Self::ByPools(pools) => pools.bound(),
        }
    }
}

impl Contestant {
    pub(super) const ALL: [Self; 8] = [
        Self::Drain(Form::Classic),
        Self::Drain(Form::Improved),
        Self::DualQueue(Form::Classic),
        Self::DualQueue(Form::Improved),
        Self::Readers(Form::Classic),
        Self::Readers(Form::Improved),
        Self::Weighted,
        Self::Aging,
    ];

    /// Whether it can be played on these. The classic form of strategy 1 knows a conversation, and a job has none.
    pub(super) fn plays(self, on: On) -> bool {
        on == On::Messages || self != Self::Drain(Form::Classic)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Drain(_) => "drain_high_then_one_low",
            Self::DualQueue(_) => "dual_queue_loop",
            Self::Readers(_) => "independent_readers",
            Self::Weighted => "weighted",
            Self::Aging => "aging",
        }
    }

    pub(super) fn form(self) -> Form {
        match self {
            Self::Drain(form) | Self::DualQueue(form) | Self::Readers(form) => form,
            Self::Weighted | Self::Aging => Form::Improved,
        }
    }

    /// What it does, in a sentence.
    pub(super) fn definition(self) -> String {
        match self {
            Self::Drain(Form::Classic) => "One queue. Receives from the one high conversation it knows until that is \
                                           empty, then takes one message of any other."
                .to_owned(),
            Self::Drain(Form::Improved) => {
                "One queue. Receives from any conversation of a high level until none has messages, then takes one low."
                    .to_owned()
            }
            Self::DualQueue(Form::Classic) => "Two queues. Waits 10 ms for a high message; when none came, takes one \
                                               low message if there is one."
                .to_owned(),
            Self::DualQueue(Form::Improved) => {
                "Two queues. Takes high messages, and one low when there is none; sleeps on both queues at once."
                    .to_owned()
            }
            Self::Readers(Form::Classic) => {
                format!("Two queues, up to {HIGH_READERS} activated readers for high and 1 for low, one more each 5 s.")
            }
            Self::Readers(Form::Improved) => {
                format!("Two queues, up to {HIGH_READERS} activated readers for high and 1 for low, launched at once.")
            }
            Self::Weighted => {
                format!(
                    "Two queues. Of any {} receives, {} high and {} low.",
                    WEIGHTS.0 + WEIGHTS.1,
                    WEIGHTS.0,
                    WEIGHTS.1
                )
            }
            Self::Aging => {
                format!("One queue, high at level 8, low at 3. A level is gained per {PER_LEVEL:?} of waiting.")
            }
        }
    }

    pub(super) fn layout(self) -> Layout {
        match self {
            Self::Drain(Form::Classic) => Layout::OneQueue,
            Self::Drain(Form::Improved) | Self::Aging => Layout::OneQueueWithLevels,
            Self::DualQueue(_) | Self::Readers(_) | Self::Weighted => Layout::TwoQueues,
        }
    }

    /// How it reads; `known` is the receiver's side of the one conversation that the classic form of strategy 1 knows.
    pub(super) fn reading(self, known: Option<ConversationHandle>) -> Result<Reading> {
        let led = |strategy: Box<dyn Strategy>| Ok(Reading::ByStrategy(strategy));
        let pools = || independent_readers([(HIGH_QUEUE, HIGH_READERS), (LOW_QUEUE, 1)]);
        match self {
            Self::Drain(Form::Classic) => {
                let known = known.ok_or_else(|| {
                    let why = "the lab's first message of the high conversation did not arrive";
                    Error::new(Code::STORE_DAMAGED, why)
                })?;
                led(Box::new(drain_one_conversation(QUEUE, known).high_top(1)))
            }
            Self::Drain(Form::Improved) => {
                led(Box::new(drain_high_then_one_low(QUEUE, by_levels(HIGH_LEVEL..=10)).high_top(1)))
            }
            Self::DualQueue(Form::Classic) => led(Box::new(dual_queue_loop_classic(HIGH_QUEUE, LOW_QUEUE).high_top(1))),
            Self::DualQueue(Form::Improved) => led(Box::new(dual_queue_loop(HIGH_QUEUE, LOW_QUEUE).high_top(1))),
            Self::Readers(Form::Classic) => Ok(Reading::ByPools(pools().classic())),
            Self::Readers(Form::Improved) => Ok(Reading::ByPools(pools())),
            Self::Weighted => led(Box::new(weighted([(HIGH_QUEUE, WEIGHTS.0), (LOW_QUEUE, WEIGHTS.1)]))),
            Self::Aging => led(Box::new(aging(QUEUE, PER_LEVEL))),
        }
    }
}
