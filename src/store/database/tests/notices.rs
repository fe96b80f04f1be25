//! Notices for other processes while the server cannot be reached.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A server that refuses the notices while `is_away`, and keeps the others.
fn with_network(stage: &Stage) -> (Arc<AtomicBool>, Arc<Mutex<Vec<String>>>) {
    let (is_away, came) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<String>>>::default());
    let (away, payloads) = (is_away.clone(), came.clone());
    stage.play(move |name, args| match (name, args) {
        ("send", _) => Some(Ok(vec![row([("notices", format!("q:{QUEUE} d:9 d:5").into())])])),
        ("notify_processes", _) if away.load(SeqCst) => Some(Err(failure(Code::SERVER_UNREACHABLE, Fate::Unknown))),
        ("notify_processes", [Arg::Text(payload)]) => {
            payloads.lock().unwrap().push((*payload).to_owned());
            None
        }
        _ => None,
    });
    (is_away, came)
}

/// Lets the paused time pass until the server was asked so often.
async fn until_refused(stage: &Stage, times: usize) {
    while stage.asked(&["notify_processes"]).len() < times {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_could_not_be_sent_is_sent_when_the_server_is_back() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let (is_away, came) = with_network(&stage);
    store.submit(vec![send(1, "Text", b"x")]).await.unwrap();
    until_refused(&stage, 20).await;
    is_away.store(false, SeqCst);
    while came.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Once, and of several times only the first.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let came = came.lock().unwrap().clone();
    assert_eq!(came.len(), 1, "{came:?}");
    assert!(came[0].ends_with(&format!(" q:{QUEUE} d:5")), "{came:?}");
    store.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_closes_while_the_server_is_away_tries_once_more() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let (_, came) = with_network(&stage);
    store.submit(vec![send(1, "Text", b"x")]).await.unwrap();
    until_refused(&stage, 3).await;
    store.close().await.unwrap();
    assert_eq!(came.lock().unwrap().len(), 0);
}
