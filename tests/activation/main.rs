//! Activation on a real store with a clock that only the test moves (reference 5.1 to 5.7, assertions 186 to 204).

mod events;
mod external;
mod handlers;
mod launching;
mod limits;
mod procedures;
mod readers;
mod stage;
