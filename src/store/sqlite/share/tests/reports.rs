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

/// The frames that come until one of them is the last.
async fn reports_until(
    guest: &interprocess::local_socket::tokio::Stream,
    arrived: &mut FrameBuffer,
    is_last: impl Fn(&FromOwner) -> bool,
) -> Vec<FromOwner> {
    use tokio::io::AsyncReadExt;
    let mut reports = Vec::new();
    loop {
        match arrived.next::<FromOwner>().unwrap() {
            Some(last) if is_last(&last) => return reports,
            Some(report) => reports.push(report),
            None => assert_ne!((&mut &*guest).read_buf(arrived.room()).await.unwrap(), 0, "the owner is there"),
        }
    }
}

#[tokio::test]
async fn a_guest_learns_of_definitions_and_free_places_and_once_of_each_queue() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = with_a_job(folder.path()).await;
    let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
    let mut arrived = FrameBuffer::default();
    // Of 1024 bytes at most.
    let (longest, too_long) = ("x".repeat(1024), "y".repeat(1025));
    for name in ["q", "Q", &too_long, &longest, "q"] {
        tell(&guest, &Request { id: 0, call: Call::Watch { queue: name.to_owned() } }).await;
    }
    tell(&guest, &Request { id: 1, call: Call::UnitHappened(uuid(1)) }).await;
    let is_answer = |frame: &FromOwner| matches!(frame, FromOwner::Answer { .. });
    let mut reports = reports_until(&guest, &mut arrived, is_answer).await;
    owner.submit(vec![definitions("CREATE QUEUE other")]).await.unwrap();
    reports.extend(reports_until(&guest, &mut arrived, |frame| matches!(frame, FromOwner::Redefined)).await);
    let names: Vec<_> = reports
        .iter()
        .filter_map(|report| match report {
            // A definition wakes all queues, and that is reported too.
            FromOwner::Queue { queue, news } if !news.is_changed => Some(queue.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["q", longest.as_str()]);
    // What is given up can be asked for again.
    let is_of_q =
        |frame: &FromOwner| matches!(frame, FromOwner::Queue { queue, news } if queue == "q" && !news.is_changed);
    for call in [Call::Unwatch { queue: "Q".into() }, Call::Watch { queue: "q".into() }] {
        tell(&guest, &Request { id: 0, call }).await;
    }
    reports_until(&guest, &mut arrived, is_of_q).await;
    let queue_id = owner.catalog().work_queue("w").unwrap().id;
    drop(owner.reader_slot(queue_id, 1).await.unwrap().expect("it is free"));
    let is_freed = |frame: &FromOwner| matches!(frame, FromOwner::SlotFreed { queue: Some(name) } if *name == work_queue_on_board("w"));
    reports_until(&guest, &mut arrived, is_freed).await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_monitors_of_all_processes_are_shown_each_with_its_own_id() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guests = [0, 1].map(|_| SharedStore::open(options(folder.path())).unwrap());
    let row = |state| crate::store::MonitorRow {
        monitor_id: 1,
        queue_id: 1,
        queue_name: "q".into(),
        state,
        last_empty_rowset_time: None,
        last_activated_time: None,
        tasks_waiting: 0,
        max_queue_readers: 1,
        tasks_running: 0,
        tasks_started_total: 0,
        tasks_aborted_total: 0,
        task_limit_reached_total: 0,
        activation_errors_total: 0,
    };
    owner.activity().monitors().put_monitor(row("INACTIVE"));
    for guest in &guests {
        guest.activity().monitors().put_monitor(row("RECEIVES_OCCURRING"));
    }
    let shown = || {
        let all = owner.activity().monitors().all_processes();
        all.into_iter().flat_map(|process| process.monitors).collect::<Vec<_>>()
    };
    until(|| shown().len() == 3).await;
    let ids: std::collections::HashSet<_> = shown().iter().map(|row| row.monitor_id).collect();
    assert_eq!(ids.len(), 3, "{:?}", shown());
    assert_eq!(shown().iter().filter(|row| row.state == "RECEIVES_OCCURRING").count(), 2);
}

#[tokio::test]
async fn a_report_says_what_has_happened_in_a_queue() {
    let _limit = crate::testing::limit();
    use tokio::io::AsyncReadExt;
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    owner.submit(vec![definitions(SERVICES)]).await.unwrap();
    let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
    let mut arrived = FrameBuffer::default();
    let mut next = async || loop {
        match arrived.next::<FromOwner>().unwrap() {
            Some(FromOwner::Queue { news, .. }) => return news,
            Some(_) => {}
            None => assert_ne!((&mut &guest).read_buf(arrived.room()).await.unwrap(), 0, "the owner is there"),
        }
    };
    tell(&guest, &Request { id: 0, call: Call::Watch { queue: "q".to_owned() } }).await;
    let first = next().await;
    assert_eq!((first.unread, first.newly_ready, first.has_arrivals, first.is_changed), (0, 0, true, false));
    let mut newly_ready = 0;
    for unread in 1..=3 {
        let Outcome::Began { handle, .. } = owner.submit(vec![dialog()]).await.unwrap()[0] else { panic!("no dialog") };
        owner
            .submit(vec![Verb::Send { handles: vec![handle], message_type: None, body: None, trace: None }])
            .await
            .unwrap();
        let mut has_arrivals = false;
        loop {
            let news = next().await;
            newly_ready += news.newly_ready;
            has_arrivals |= news.has_arrivals;
            assert!(!news.is_changed, "{news:?}");
            if news.unread == unread && newly_ready >= unread {
                break;
            }
        }
        assert!(has_arrivals, "a receiver is woken");
    }
    assert_eq!(newly_ready, 3);
    owner.submit(vec![definitions("ALTER QUEUE q WITH STATUS = OFF")]).await.unwrap();
    while !next().await.is_changed {}
}

/// An owner has room for 10,000 names of one guest that are no queues.
#[tokio::test]
async fn a_guest_gives_names_up_that_are_no_queues_before_it_watches_another_one() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (owner, client) = connected(folder.path()).await;
    let name = |number: usize| format!("gone {number}");
    let first_kept = 1024;
    (0..=first_kept).for_each(|number| client.watch(&name(number)));
    let (mut watched, mut given_up) = (Vec::new(), Vec::new());
    let mut sent = FrameBuffer::default();
    let reading = async {
        use tokio::io::AsyncReadExt;
        while watched.last() != Some(&name(first_kept)) {
            match sent.next::<Request>().unwrap() {
                Some(Request { call: Call::Watch { queue }, .. }) => watched.push(queue),
                Some(Request { call: Call::Unwatch { queue }, .. }) => given_up.push(queue),
                Some(_) => {}
                None => assert_ne!((&mut &owner).read_buf(sent.room()).await.unwrap(), 0, "the guest is there"),
            }
        }
    };
    tokio::select! {
        () = client.run() => unreachable!("the owner has not ended the connection"),
        () = reading => {}
    }
    assert_eq!(watched.len(), first_kept + 1);
    given_up.sort_unstable_by_key(|name| name.len() * 10_000 + name[5..].parse::<usize>().unwrap());
    assert_eq!(given_up, (0..first_kept).map(name).collect::<Vec<_>>());
}
