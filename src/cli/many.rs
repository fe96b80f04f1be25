//! Conversations chosen by options, and their preview.

use super::confirm::previewed;
use super::failure::Failure;
use super::output::{Output, printable_name, table};
use super::peek::before;
use clap::Args;
use dialoq::internals::counting;
use dialoq::protocol::ConversationState;
use dialoq::status::{Changed, ConversationFilter, ConversationSide};
use dialoq::{Broker, ConversationHandle};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many conversations a preview lists one by one.
const LISTED: usize = 20;

/// Which conversations are meant.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Only sides of the services of this queue.
    #[arg(long, value_name = "QUEUE", help_heading = "Which conversations")]
    queue: Option<String>,
    /// Only sides of this service.
    #[arg(long, value_name = "SERVICE", help_heading = "Which conversations")]
    service: Option<String>,
    /// Only sides in this state, such as ER or DI.
    #[arg(long, value_name = "STATE", value_parser = parse_state, help_heading = "Which conversations")]
    state: Option<ConversationState>,
    /// Only conversations begun at least so long ago: 10m, 2h, 7d.
    #[arg(long, value_name = "SPAN", value_parser = super::globals::parse_span, help_heading = "Which conversations")]
    older_than: Option<Duration>,
    /// Only conversations over this contract.
    #[arg(long, value_name = "CONTRACT", help_heading = "Which conversations")]
    contract: Option<String>,
}

impl Filter {
    pub(super) fn is_empty(&self) -> bool {
        let Self { queue, service, state, older_than, contract } = self;
        queue.is_none() && service.is_none() && state.is_none() && older_than.is_none() && contract.is_none()
    }

    /// The filter, with the names it uses checked; `handle` chooses one side.
    pub(super) fn of(
        &self,
        broker: &Broker,
        handle: Option<ConversationHandle>,
    ) -> Result<ConversationFilter, Failure> {
        let catalog = broker.catalog();
        let missing = |what: &str, name: &str| Failure::unknown(what, name);
        if let Some(queue) = self.queue.as_deref().filter(|queue| catalog.queue(queue).is_none()) {
            return Err(missing("queue", queue));
        }
        if let Some(service) = self.service.as_deref().filter(|service| catalog.service(service).is_none()) {
            return Err(missing("service", service));
        }
        if let Some(contract) = self.contract.as_deref().filter(|contract| catalog.contract(contract).is_none()) {
            return Err(missing("contract", contract));
        }
        Ok(ConversationFilter {
            id: handle.map(|handle| handle.0),
            queue: self.queue.clone(),
            service: self.service.clone(),
            state: self.state,
            before: self.older_than.map(|span| before(broker.clock().now(), span)),
            contract: self.contract.clone(),
        })
    }
}

fn parse_state(text: &str) -> Result<ConversationState, String> {
    let all = ConversationState::ALL;
    let found = all
        .iter()
        .find(|state| state.code().eq_ignore_ascii_case(text) || state.description().eq_ignore_ascii_case(text));
    found.copied().ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|state| format!("{} ({})", state.code(), state.description())).collect();
        format!("a state is one of {}", known.join(", "))
    })
}

/// Prints which conversations a change would touch, those whose side has ended only if it takes them, and gives them, and whether
/// there are more than one change takes; there must be one.
pub(super) async fn preview(
    broker: &Broker,
    filter: &ConversationFilter,
    verb: &str,
    takes_ended: bool,
    is_confirmed: bool,
    output: &Output,
) -> Result<(Vec<ConversationSide>, bool), Failure> {
    let (sides, has_more) = counting::sides(broker, filter, takes_ended).await?;
    if sides.is_empty() {
        return Err(Failure::Nothing(format!("there is no conversation to {verb}")));
    }
    if output.json {
        // What was done is the one object of a confirmed change.
        if is_confirmed {
            return Ok((sides, has_more));
        }
        let listed: Vec<_> = sides.iter().take(LISTED).collect();
        let preview = json!({ "would": verb, "conversations": sides.len(), "sides": listed, "has_more": has_more });
        previewed(is_confirmed, output.json(&preview))?;
        return Ok((sides, has_more));
    }
    let mut groups: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for ConversationSide { service_name, state_desc, .. } in &sides {
        *groups.entry((service_name, state_desc)).or_default() += 1;
    }
    let mut shown = table(&["service", "state", "#conversations"]);
    for ((service, state), number) in groups {
        shown.add_row([printable_name(service).into_owned(), state.to_owned(), number.to_string()]);
    }
    let mut text = format!("would {verb}\n{shown}");
    for side in sides.iter().take(LISTED) {
        text.push_str(&format!("\n{} {} begun {}", side.conversation_handle, side.state.code(), side.begun_at));
    }
    if sides.len() > LISTED {
        text.push_str(&format!("\nand {} more", sides.len() - LISTED));
    }
    if has_more {
        text.push_str("\nthere are more than those, for the next call");
    }
    previewed(is_confirmed, output.text(&text))?;
    Ok((sides, has_more))
}

/// Prints what became of a change of many; the verb is that of its past.
pub(super) fn report(changed: &Changed, verb: &str, output: &Output) -> Result<(), Failure> {
    match output.json {
        true => output.result_json(changed),
        false => output.result(&format!(
            "{} {verb}, {} gone, {} held by other sessions{}",
            changed.changed,
            changed.gone,
            changed.held,
            if changed.has_more { "; there are more than those: run it again" } else { "" }
        )),
    }
}
