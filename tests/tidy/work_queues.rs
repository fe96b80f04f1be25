//! The table of options in `docs/work-queues.md` is that of `src/protocol/work_queue.rs`.

use crate::source::root;
use dialoq::protocol::definition::{TakingTechnique, WorkNumber, WorkOrder};
use std::fs;

#[test]
fn the_page_of_work_queues_has_every_option_with_its_range() {
    let page = fs::read_to_string(root().join("docs/work-queues.md")).unwrap();
    let orders = WorkOrder::ALL.map(|(word, _)| word).join(", ");
    let mut rows = vec![format!("| `ORDER` | {} | {orders} |", WorkOrder::default().word())];
    let techniques = TakingTechnique::ALL.map(|(word, _)| word).join(", ");
    rows.push(format!("| `TAKE_BY` | {} | {techniques} |", TakingTechnique::default().word()));
    rows.extend(WorkNumber::ALL.iter().map(|number| {
        let (least, most) = number.range();
        format!("| `{}` | {} | {least} to {most} |", number.word(), number.default_value())
    }));
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(*row)).collect();
    assert!(missing.is_empty(), "docs/work-queues.md has no such rows: {missing:#?}");
}
