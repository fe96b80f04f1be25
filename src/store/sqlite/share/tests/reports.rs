//! What an owner reports to the processes that work through it without being asked.

use super::leaving::with_a_job;
use super::*;
use crate::protocol::work::Hold;
use crate::store::sqlite::tests::jobs::take;
use crate::store::work_queue_on_board;

/// If nothing else happened in the queue, its monitors read for ever that a job is ready, and one reader after the other found none.
#[tokio::test]
async fn a_guest_is_sent_the_depth_when_the_last_job_is_taken() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = with_a_job(folder.path()).await;
    let guest = SharedStore::open(options(folder.path())).unwrap();
    guest.submit(Vec::new()).await.unwrap();
    let activity = guest.activity().queue(&work_queue_on_board("w"));
    guest.refresh_facts().await;
    let ready = async |groups| {
        loop {
            let moved = activity.register_monitor();
            if activity.facts().ready_groups == groups {
                break;
            }
            moved.await;
        }
    };
    ready(1).await;
    owner.submit(vec![take(Hold::Lease(None))]).await.unwrap();
    ready(0).await;
}
