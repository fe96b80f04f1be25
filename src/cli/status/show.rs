//! The status as tables.

use super::Sides;
use crate::cli::output::{counted, fitting, folded, marked, printable, printable_name, shortened, span, table};
use crate::cli::work::queue_table;
use comfy_table::Cell;
use dialoq::internals::{held_back, shell_command, shell_option};
use dialoq::status::{
    ConversationCount, ConversationSide, LevelStatus, MonitorStatus, OffBy, QueueOff, QueueStatus, Status,
};
use dialoq::work::WorkQueueStatus;
use std::time::Duration;

/// All of it, for a terminal; the sides of conversations if they were asked for.
pub(super) fn tables(status: &Status, sides: Option<&Sides>) -> String {
    let on = |is_on| if is_on { "on" } else { "OFF" };
    // Each line fits 60 columns.
    let mut text = format!(
        "{}  delivery {}  honor priority {}\nbroker {}\n\n{}\n",
        status.at,
        on(status.is_broker_enabled),
        on(status.is_honor_broker_priority_on),
        status.service_broker_guid,
        queues(&status.queues),
    );
    text.push_str("\nConversations\n");
    text.push_str(&if status.conversations.is_empty() { "none".to_owned() } else { conversations(status) });
    if let Some(sides) = sides {
        text.push_str(&each(sides));
    }
    text.push_str("\n\nTransmission queue\n");
    text.push_str(&if status.transmission_queue.is_empty() { "empty".to_owned() } else { transmission(status) });
    text.push_str(&work_queues(&status.work_queues));
    text
}

/// The work queues, if there are any, and how to look at what wants a human.
fn work_queues(queues: &[WorkQueueStatus]) -> String {
    if queues.is_empty() {
        return String::new();
    }
    let mut text = format!("\n\nWork queues\n{}", queue_table(queues));
    for queue in queues.iter().filter(|queue| queue.dead > 0) {
        text.push_str(&folded(&format!(
            "\n{} has {}: {}",
            printable_name(&queue.name),
            counted(queue.dead, "dead job"),
            printable_name(&shell_command("dialoq work list", &queue.name, "--state dead"))
        )));
    }
    text
}

fn queues(queues: &[QueueStatus]) -> String {
    if queues.is_empty() {
        return "no queues".to_owned();
    }
    let mut rows = Vec::new();
    for queue in queues {
        let first = queue.levels.first().map(level).unwrap_or(["–", "0", "0", "–"].map(str::to_owned));
        let [priority, messages, groups, oldest] = first;
        let name = printable_name(&queue.name).into_owned();
        // A queue that is off wants a human.
        let status = marked(state(queue), !(queue.is_receive_enabled && queue.is_enqueue_enabled));
        let of_first = marked(priority, queue.levels.first().is_some_and(|level| level.is_quarantined));
        let counts = [messages, groups, oldest, readers(queue), activation(queue)].map(Cell::new);
        rows.push([vec![Cell::new(name), status, of_first], counts.to_vec()].concat());
        for further in queue.levels.iter().skip(1) {
            let [priority, messages, groups, oldest] = level(further);
            let blank = || Cell::new("");
            let counts = [messages, groups, oldest].map(Cell::new);
            let of_further = marked(priority, further.is_quarantined);
            rows.push([vec![blank(), blank(), of_further], counts.to_vec(), vec![blank(), blank()]].concat());
        }
    }
    let headings = ["queue", "status", "#level", "#messages", "#groups", "#oldest", "#readers", "activation"];
    // In a narrow terminal first the groups go, then who activates, the age, and the readers.
    let mut text = fitting(&headings, &[4, 7, 5, 6], &rows).to_string();
    for queue in queues {
        text.push_str(&off(queue));
        if let Some(held_back) = held_back(queue) {
            text.push_str(&folded(&format!("\n{}", printable_name(&held_back))));
        }
        text.push_str(&processes(queue));
    }
    for queue in queues.iter().filter(|queue| queue.dead_letters > 0) {
        let letters = counted(queue.dead_letters, "dead letter");
        let name = printable_name(&queue.name);
        text.push_str(&format!(
            "\n{name} has {letters}: dialoq dead list {}",
            printable_name(&shell_option("--queue", &queue.name))
        ));
    }
    text
}

/// The processes that activate a queue, each with the state of its queue monitor; empty if there is none.
fn processes(queue: &QueueStatus) -> String {
    if queue.monitors.is_empty() {
        return String::new();
    }
    let process = |monitor: &MonitorStatus| {
        let host =
            monitor.host_name.as_deref().map_or_else(String::new, |host| format!(" on {}", printable_name(host)));
        let readers = counted(monitor.readers_running, "reader");
        format!("process {}{host} ({}, {readers})", monitor.process_id, printable_name(&monitor.state))
    };
    let processes: Vec<String> = queue.monitors.iter().map(process).collect();
    folded(&format!("\n{} is activated by {}", printable_name(&queue.name), processes.join(", ")))
}

/// Since when a queue is off, and why; empty if it is on.
fn off(queue: &QueueStatus) -> String {
    match &queue.off {
        Some(off) => folded(&format!("\n{} is OFF {}", printable_name(&queue.name), since_and_why(off))),
        None => String::new(),
    }
}

/// Since when, and why, on one line.
pub(in crate::cli) fn since_and_why(off: &QueueOff) -> String {
    let why = match (off.by, &off.reason) {
        (OffBy::Poison, _) => "poison message handling turned it off".into(),
        (_, Some(reason)) => printable_name(reason),
        (_, None) => "a statement turned it off and gave no reason".into(),
    };
    format!("since {}: {why}", off.since)
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

/// The procedure, or how many processes activate the queue: the lines below the table name each.
fn activation(queue: &QueueStatus) -> String {
    match (&queue.activation_procedure, queue.monitors.len()) {
        (Some(procedure), _) if !queue.is_activation_enabled => format!("off: {}", printable_name(procedure)),
        (Some(procedure), _) => printable_name(procedure).into_owned(),
        (None, 0) => String::new(),
        (None, 1) => "1 process".to_owned(),
        (None, processes) => format!("{processes} processes"),
    }
}

fn conversations(status: &Status) -> String {
    let row = |row: &ConversationCount| {
        let service = printable_name(&row.service_name).into_owned();
        let is_broken = row.state.code() == "ER";
        let state = marked(row.state.code().to_owned(), is_broken);
        vec![Cell::new(service), state, Cell::new(row.state_desc), Cell::new(row.endpoints)]
    };
    let rows: Vec<_> = status.conversations.iter().map(row).collect();
    fitting(&["service", "state", "", "#endpoints"], &[2], &rows).to_string()
}

/// Each side of a conversation, with its handle.
fn each(Sides { sides, has_more }: &Sides) -> String {
    if sides.is_empty() {
        return String::new();
    }
    let row = |side: &ConversationSide| {
        let state = marked(side.state.code().to_owned(), side.state.code() == "ER");
        let handle = Cell::new(side.conversation_handle);
        let (service, far) = (printable_name(&side.service_name), printable_name(&side.far_service));
        vec![handle, state, Cell::new(service), Cell::new(far), Cell::new(side.priority), Cell::new(side.begun_at)]
    };
    let rows: Vec<_> = sides.iter().map(row).collect();
    let shown = fitting(&["handle", "state", "service", "with", "#level", "begun"], &[5, 4, 3, 2], &rows);
    let more = if *has_more { "\nand more; --conversations N shows more" } else { "" };
    format!("\n{shown}{more}")
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
