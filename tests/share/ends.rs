//! The end of an owner: closed, dropped, and at a bad moment.

use crate::{Place, received, run, send};
use dialoq::{Act, Broker, Code};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The numbers that were sent, in order.
async fn numbers(broker: &Broker) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let Some(batch) = broker.receive("to").await.unwrap() {
        let bodies = batch.messages().iter().map(|message| String::from_utf8_lossy(message.body()).into_owned());
        numbers.extend(bodies.map(|body| body.parse::<u32>().unwrap()));
    }
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_drop_of_the_owner_loses_no_call_of_the_others() {
    run(async || {
        for _ in 0..10 {
            let place = Place::new();
            let owner = place.defined().await;
            let guest = place.open().await;
            let mut sending = tokio::task::JoinSet::new();
            for number in 0..200_u32 {
                let guest = guest.clone();
                sending.spawn(async move { send(&guest, &number.to_string()).await });
            }
            // Some are answered, the others under way.
            sending.join_next().await.unwrap().unwrap().unwrap();
            drop(owner);
            while let Some(sent) = sending.join_next().await {
                sent.unwrap().unwrap();
            }
            assert_eq!(numbers(&guest).await, (0..200).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_file_is_free_when_the_last_of_two_has_closed() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        for round in 0..60 {
            let (owner, guest) = (place.open().await, place.open().await);
            let (first, second) = tokio::join!(owner.close(), guest.close());
            first.unwrap();
            second.unwrap();
            let alone = Broker::open(&format!("{}?share=off", place.url())).await;
            let alone = alone.unwrap_or_else(|error| panic!("round {round}: {error}"));
            alone.close().await.unwrap();
        }
    });
}

#[test]
fn an_owner_closes_while_a_guest_is_stopped() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let mut guest = crate::Other::start(&place.path, "send");
        assert_eq!(guest.send("1"), "sent");
        guest.signal("STOP");
        owner.close().await.unwrap();
        let next = place.open().await;
        guest.signal("CONT");
        assert_eq!(guest.send("2"), "sent");
        assert_eq!(numbers(&next).await, [1, 2]);
    });
}

#[test]
fn a_transaction_of_a_guest_may_end_while_its_owner_closes() {
    run(async || while !ends_while_its_owner_closes().await {});
}

/// Whether the transaction was quick enough: an owner waits two seconds for open ones, which this machine may have spent elsewhere.
async fn ends_while_its_owner_closes() -> bool {
    let place = Place::new();
    let owner = place.defined().await;
    let guest = place.open().await;
    let tx = guest.begin().await.unwrap();
    let dialog = tx.begin_dialog("sender", "receiver").contract("C").await.unwrap();
    let began = Instant::now();
    let closing = tokio::spawn(async move { owner.close().await });
    while place.socket().exists() {
        tokio::task::yield_now().await;
    }
    // Outside the transaction a call waits for the next owner.
    let outside = tokio::spawn({
        let guest = guest.clone();
        async move { send(&guest, "100").await }
    });
    let done = async {
        for number in 0..100 {
            tx.send(dialog, "DEFAULT", &number.to_string()).await?;
        }
        tx.commit().await
    };
    let done = done.await;
    closing.await.unwrap().unwrap();
    outside.await.unwrap().unwrap();
    match done {
        Err(error) if error.code() == Code::OWNER_GONE && began.elapsed() > Duration::from_secs(2) => return false,
        done => done.unwrap(),
    }
    assert_eq!(numbers(&guest).await, (0..101).collect::<Vec<_>>());
    true
}

/// Three closes made a message a dead letter that its receiver would have handled.
#[test]
fn a_close_of_the_owner_is_no_attempt_of_a_guest() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        owner.execute("ALTER QUEUE [to] WITH RETRY (MAX_ATTEMPTS = 1)").await.unwrap();
        send(&owner, "healthy").await.unwrap();
        let guest = place.open().await;
        let tx = guest.begin().await.unwrap();
        assert!(tx.receive("to").await.unwrap().is_some());
        // Its next step says that it has seen the message.
        assert!(tx.receive("from").await.unwrap().is_none());
        owner.close().await.unwrap();
        assert!(tx.commit().await.unwrap_err().is_retryable());
        assert_eq!(received(&guest).await, ["healthy"]);
    });
}

#[test]
fn what_a_guest_has_begun_ends_when_its_owner_closes() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        let tx = guest.begin().await.unwrap();
        let dialog = tx.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        tx.send(dialog, "DEFAULT", "never").await.unwrap();
        owner.close().await.unwrap();
        assert!(tx.commit().await.unwrap_err().is_retryable());
        assert!(guest.receive("to").await.unwrap().is_none());
    });
}

#[test]
fn a_call_under_way_of_a_guest_that_closes_says_that_its_broker_is_closed() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        let dialog = owner.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        let holder = owner.begin().await.unwrap();
        holder.send(dialog, "DEFAULT", "holds the group").await.unwrap();
        let tx = guest.begin().await.unwrap();
        tx.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        let alone = {
            let guest = guest.clone();
            tokio::spawn(async move { guest.send(dialog, "DEFAULT", "alone").await })
        };
        let in_tx = tokio::spawn(async move { (tx.send(dialog, "DEFAULT", "in a transaction").await, tx) });
        let path = place.path.display().to_string();
        let waits =
            || dialoq::testing::describe_waits().into_iter().filter(|store| store.contains(&path)).collect::<String>();
        while waits().matches("parked for").count() < 2 {
            tokio::task::yield_now().await;
        }
        guest.close().await.unwrap();
        let refused = alone.await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::STORE_CLOSED, "{refused}");
        let (sent, tx) = in_tx.await.unwrap();
        assert_eq!(sent.unwrap_err().code(), Code::STORE_CLOSED);
        assert_eq!(tx.commit().await.unwrap_err().code(), Code::STORE_CLOSED);
        holder.commit().await.unwrap();
    });
}

/// Of 640 SENDs that were refused so, 549 had happened, and of 271 messages that such receivers took, 217 reached none of them.
#[test]
fn calls_under_way_of_a_guest_that_closes_have_their_answers() {
    run(async || {
        for _ in 0..5 {
            let place = Place::new();
            let owner = place.defined().await;
            let guest = place.open().await;
            let (mut working, mut finishing) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
            owner.execute("CREATE WORK QUEUE jobs").await.unwrap();
            let pushes = owner.begin().await.unwrap();
            for _ in 0..1000 {
                pushes.push_job("jobs", "body").await.unwrap();
            }
            pushes.commit().await.unwrap();
            let has_sent = Arc::new(AtomicUsize::new(0));
            for _ in 0..16 {
                let has_sent = has_sent.clone();
                let (sender, committer, receiver) = (guest.clone(), guest.clone(), guest.clone());
                let worker = guest.clone();
                finishing.spawn(async move {
                    let mut finished = 0_usize;
                    let mut job = None::<dialoq::work::Job>;
                    loop {
                        let take = worker.take_jobs("jobs");
                        let (taken, is_finishing) = match &job {
                            Some(job) => (take.completing(job).await, 1),
                            None => (take.await, 0),
                        };
                        match taken {
                            Ok(mut jobs) => (job, finished) = (jobs.pop(), finished + is_finishing),
                            Err(refused) => break (finished, refused),
                        }
                    }
                });
                working.spawn(async move {
                    let mut sent = 0_usize;
                    let refused = loop {
                        match send(&sender, "alone").await {
                            Ok(()) => sent += 1,
                            Err(refused) => break refused,
                        }
                        has_sent.fetch_add(1, Relaxed);
                    };
                    (sent, 0, refused)
                });
                working.spawn(async move {
                    let mut sent = 0_usize;
                    let refused = loop {
                        let done = async {
                            let tx = committer.begin().await?;
                            let dialog = tx.begin_dialog("sender", "receiver").contract("C").await?;
                            tx.send(dialog, "DEFAULT", "in a transaction").await?;
                            tx.commit().await
                        };
                        match done.await {
                            Ok(()) => sent += 1,
                            Err(refused) => break refused,
                        }
                    };
                    (sent, 0, refused)
                });
                working.spawn(async move {
                    let mut received = 0_usize;
                    let refused = loop {
                        match receiver.receive("to").top(1).await {
                            Ok(batch) => received += batch.map_or(0, |batch| batch.messages().len()),
                            Err(refused) => break refused,
                        }
                    };
                    (0, received, refused)
                });
            }
            while has_sent.load(Relaxed) < 100 {
                tokio::task::yield_now().await;
            }
            guest.close().await.unwrap();
            let (mut sent, mut taken) = (0, 0);
            while let Some(done) = working.join_next().await {
                let (sends, receives, refused) = done.unwrap();
                assert_eq!(refused.code(), Code::STORE_CLOSED, "{refused}");
                (sent, taken) = (sent + sends, taken + receives);
            }
            let mut left = 0;
            while let Some(batch) = owner.receive("to").await.unwrap() {
                left += batch.messages().len();
            }
            assert_eq!(sent, taken + left, "{taken} messages reached their receivers, {left} are left");
            let mut finished = 0;
            while let Some(done) = finishing.join_next().await {
                let (finishes, refused) = done.unwrap();
                assert_eq!(refused.code(), Code::STORE_CLOSED, "{refused}");
                finished += finishes;
            }
            let unfinished = owner.jobs(&dialoq::work::JobFilter::default(), 1000).await.unwrap().len();
            assert_eq!(finished, 1000 - unfinished, "an answer says that a job is finished");
        }
    });
}

#[test]
fn a_second_close_returns_when_the_file_is_free() {
    run(async || {
        for has_first_left in [false, true] {
            let place = Place::new();
            let owner = place.defined().await;
            let guest = place.open().await;
            let tx = guest.begin().await.unwrap();
            tx.begin_dialog("sender", "receiver").contract("C").await.unwrap();
            // It waits for the transaction of the guest.
            let closing = tokio::spawn({
                let owner = owner.clone();
                async move { owner.close().await }
            });
            while place.socket().exists() {
                tokio::task::yield_now().await;
            }
            if has_first_left {
                closing.abort();
            }
            owner.close().await.unwrap();
            assert!(tx.commit().await.is_err(), "the owner still served; the first has left: {has_first_left}");
        }
    });
}

/// Sends a take, whose answer comes before its caller looks again. On a busy machine it may come within the first look: that job.
async fn sent(
    taking: &mut (impl Future<Output = dialoq::Result<Vec<dialoq::work::Job>>> + Unpin),
) -> Option<dialoq::work::Job> {
    use std::pin::Pin;
    use std::task::Poll;
    match std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *taking).poll(context))).await {
        Poll::Ready(jobs) => jobs.unwrap().pop(),
        Poll::Pending => None,
    }
}

/// The job was taken to the end of its lease, and that was a failed attempt.
#[test]
fn a_job_that_a_guest_has_not_seen_goes_back_when_its_owner_closes_or_is_dropped() {
    run(async || {
        let place = Place::new();
        place.defined().await.execute("CREATE WORK QUEUE jobs").await.unwrap();
        for is_dropped in [true, false] {
            for closes in [true, false] {
                while !goes_back_when_its_owner_ends(&place, is_dropped, closes).await {}
            }
        }
    });
}

/// False if the answer came within the first look.
async fn goes_back_when_its_owner_ends(place: &Place, is_dropped: bool, closes: bool) -> bool {
    use std::future::IntoFuture;
    let owner = place.open().await;
    owner.push_job("jobs", "body").await.unwrap();
    let guest = place.open().await;
    let mut taking = Box::pin(guest.take_jobs("jobs").into_future());
    if let Some(job) = sent(&mut taking).await {
        drop(taking);
        guest.complete_job(&job).await.unwrap();
        guest.close().await.unwrap();
        owner.close().await.unwrap();
        return false;
    }
    while owner.jobs(&dialoq::work::JobFilter::default(), 1).await.unwrap()[0].state == dialoq::work::ShownState::Ready
    {
    }
    match closes {
        true => owner.close().await.unwrap(),
        false => drop(owner),
    }
    let job = if is_dropped {
        drop(taking);
        guest.take_jobs("jobs").wait(crate::PATIENCE / 4).await.unwrap().pop()
    } else {
        taking.await.unwrap().pop()
    };
    let job =
        job.unwrap_or_else(|| panic!("the job is still held; taker dropped: {is_dropped}, owner closed: {closes}"));
    assert_eq!(job.attempt, 1);
    guest.complete_job(&job).await.unwrap();
    guest.close().await.unwrap();
    true
}

/// A caller that gives up its take as the answer comes, and a process that closes at once, or has just closed: the job waited for the
/// end of its lease, and that was a failed attempt.
#[test]
fn a_job_that_a_guest_has_not_seen_goes_back_although_it_closes_at_once() {
    use std::future::IntoFuture;
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        owner.execute("CREATE WORK QUEUE jobs").await.unwrap();
        for round in 0..50 {
            owner.push_job("jobs", "body").await.unwrap();
            let guest = place.open().await;
            let mut taking = Box::pin(guest.take_jobs("jobs").into_future());
            if let Some(job) = sent(&mut taking).await {
                drop(taking);
                guest.complete_job(&job).await.unwrap();
                guest.close().await.unwrap();
                continue;
            }
            while owner.jobs(&dialoq::work::JobFilter::default(), 1).await.unwrap()[0].state
                == dialoq::work::ShownState::Ready
            {}
            std::thread::sleep(std::time::Duration::from_millis(20));
            match round % 3 {
                0 => {
                    drop(taking);
                    guest.close().await.unwrap();
                }
                // As a task that was aborted, and that its runtime drops a moment later.
                1 => {
                    guest.close().await.unwrap();
                    drop(taking);
                }
                _ => {
                    guest.close().await.unwrap();
                    assert_eq!(taking.await.unwrap_err().code(), Code::STORE_CLOSED, "it could not report on the job");
                }
            }
            let job = owner.take_jobs("jobs").wait(crate::PATIENCE / 4).await.unwrap().pop();
            let job = job.unwrap_or_else(|| panic!("round {round}: the job is still held"));
            assert_eq!(job.attempt, 1, "round {round}");
            owner.complete_job(&job).await.unwrap();
        }
    });
}

/// It was lost with its connection: the owner ended that before its store had refused what waited.
#[test]
fn a_call_of_a_guest_that_waits_for_a_group_goes_to_the_next_owner_when_its_owner_closes() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        let dialog = owner.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        let holder = owner.begin().await.unwrap();
        holder.send(dialog, "DEFAULT", "never").await.unwrap();
        let sending = tokio::spawn({
            let guest = guest.clone();
            async move { guest.send(dialog, "DEFAULT", "by the next owner").await }
        });
        let path = place.path.display().to_string();
        while !dialoq::testing::describe_waits()
            .iter()
            .any(|store| store.contains(&path) && store.contains("parked for"))
        {
            tokio::task::yield_now().await;
        }
        owner.close().await.unwrap();
        sending.await.unwrap().unwrap();
        assert!(holder.commit().await.is_err());
        assert_eq!(received(&guest).await, ["by the next owner"]);
    });
}
