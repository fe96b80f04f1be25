//! The status as tables.

use crate::cli::output::{printable, printable_name, shortened, span, table};
use dialoq::status::{LevelStatus, QueueStatus, Status};
use std::time::Duration;

/// All of it, for a terminal.
pub(super) fn tables(status: &Status) -> String {
    let on = |is_on| if is_on { "on" } else { "OFF" };
    let mut text = format!(
        "broker {}  delivery {}  honor broker priority {}  {}\n\n{}\n",
        status.service_broker_guid,
        on(status.is_broker_enabled),
        on(status.is_honor_broker_priority_on),
        status.at,
        queues(&status.queues),
    );
    text.push_str("\nConversations\n");
    text.push_str(&if status.conversations.is_empty() { "none".to_owned() } else { conversations(status) });
    text.push_str("\n\nTransmission queue\n");
    text.push_str(&if status.transmission_queue.is_empty() { "empty".to_owned() } else { transmission(status) });
    text
}

fn queues(queues: &[QueueStatus]) -> String {
    if queues.is_empty() {
        return "no queues".to_owned();
    }
    let mut shown =
        table(&["queue", "status", "#level", "#messages", "#groups", "#oldest waiting", "#readers", "activation"]);
    for queue in queues {
        let first = queue.levels.first().map(level).unwrap_or(["–", "0", "0", "–"].map(str::to_owned));
        let [priority, messages, groups, oldest] = first;
        let name = printable_name(&queue.name).into_owned();
        shown.add_row([name, state(queue), priority, messages, groups, oldest, readers(queue), activation(queue)]);
        for further in queue.levels.iter().skip(1) {
            let [priority, messages, groups, oldest] = level(further);
            let blank = String::new;
            shown.add_row([blank(), blank(), priority, messages, groups, oldest, blank(), blank()]);
        }
    }
    shown.to_string()
}

fn state(queue: &QueueStatus) -> String {
    let status = match (queue.is_receive_enabled, queue.is_enqueue_enabled) {
        (true, true) => "on",
        (false, false) => "OFF",
        (true, false) => "takes nothing in",
        (false, true) => "gives nothing out",
    };
    if queue.is_retention_enabled { format!("{status}, retention") } else { status.to_owned() }
}

fn level(level: &LevelStatus) -> [String; 4] {
    let aside = match (level.is_quarantined, level.retry_in_ms) {
        (false, _) => String::new(),
        (true, None) => " quarantined".to_owned(),
        (true, Some(ms)) => format!(" again in {}", span(Duration::from_millis(ms))),
    };
    [
        format!("{}{aside}", level.priority),
        level.messages.to_string(),
        level.conversation_groups.to_string(),
        span(Duration::from_millis(level.oldest_waiting_ms)),
    ]
}

fn readers(queue: &QueueStatus) -> String {
    match (queue.readers_running, queue.max_queue_readers) {
        (Some(running), Some(most)) => format!("{running} of {most}"),
        (None, Some(most)) => format!("none of {most}"),
        _ => "–".to_owned(),
    }
}

fn activation(queue: &QueueStatus) -> String {
    match (&queue.activation_procedure, queue.process_id) {
        (Some(procedure), _) if !queue.is_activation_enabled => format!("off: {}", printable_name(procedure)),
        (Some(procedure), None) => printable_name(procedure).into_owned(),
        (Some(procedure), Some(process)) => format!("{} (process {process})", printable_name(procedure)),
        (None, Some(process)) => format!("process {process}"),
        (None, None) => String::new(),
    }
}

fn conversations(status: &Status) -> String {
    let mut shown = table(&["service", "state", "", "#endpoints"]);
    for row in &status.conversations {
        let service = printable_name(&row.service_name).into_owned();
        shown.add_row([service, row.state.code().to_owned(), row.state_desc.to_owned(), row.endpoints.to_string()]);
    }
    shown.to_string()
}

fn transmission(status: &Status) -> String {
    let mut shown = table(&["to service", "#messages", "#oldest", "why it waits"]);
    for row in &status.transmission_queue {
        shown.add_row([
            printable_name(&row.to_service_name).into_owned(),
            row.messages.to_string(),
            span(Duration::from_millis(row.oldest_waiting_ms)),
            shortened(&printable(&row.transmission_status), 200),
        ]);
    }
    shown.to_string()
}
