//! Deliveries that a definition has made possible: they happen while a process has the broker open, and this may be the only one.

use super::output::{Output, counted};
use dialoq::Broker;
use std::time::{Duration, Instant};

/// The pause between two looks at the transmission queue, and after how long without progress the rest is left to others.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const WITHOUT_PROGRESS: Duration = Duration::from_millis(500);

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(10);

/// Waits as long as messages leave the transmission queue, and says how many stay. Without this 64 of 300 were delivered after a
/// `dialoq resume`, and the others when the next process came.
pub(super) async fn settle(broker: &Broker, output: &Output) {
    let began = Instant::now();
    let (mut waiting, mut progress) = (u64::MAX, began);
    loop {
        let Ok(status) = broker.status().await else { return };
        let now: u64 = status.transmission_queue.iter().map(|undelivered| undelivered.messages).sum();
        if now < waiting {
            (waiting, progress) = (now, Instant::now());
        }
        if waiting == 0 {
            return;
        }
        if progress.elapsed() > WITHOUT_PROGRESS || began.elapsed() > LONGEST {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    if !output.json {
        output.note(&format!(
            "note: {} in the transmission queue; `dialoq status` says why, and what can be delivered is delivered while a process has \
             the broker open for changes",
            match waiting {
                1 => "1 message waits".to_owned(),
                waiting => format!("{} wait", counted(waiting, "message")),
            }
        ));
    }
}
