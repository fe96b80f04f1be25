//! How takes lock and mark jobs. Ours. The other cases of work queues run under each technique too: `Form::TakesBy`.

use crate::rig::{Rig, code};
use dialoq::protocol::definition::TakingTechnique;
use dialoq::work::Job;
use dialoq::{Act, Broker, Code, JobId, OpenOptions, Result};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::task::JoinSet;

const LEASE: Duration = Duration::from_secs(60);

async fn alter(t: &Rig, technique: TakingTechnique) -> Result<()> {
    let text = format!("ALTER WORK QUEUE w WITH TAKE_BY = {}", technique.word());
    t.broker.execute(&text).await.map(drop)
}

async fn push(t: &Rig, names: impl IntoIterator<Item = u32>) -> Result<BTreeSet<JobId>> {
    let mut ids = BTreeSet::new();
    for name in names {
        let job_type = if name % 2 == 0 { "even" } else { "odd" };
        let pushed = t.broker.push_job("w", &name.to_string()).job_type(job_type).key("k").await?;
        ids.extend(pushed.job);
    }
    Ok(ids)
}

fn names(jobs: &[Job]) -> String {
    jobs.iter().map(|job| std::str::from_utf8(job.body()).unwrap()).collect::<Vec<_>>().join(" ")
}

fn ascend(jobs: &[Job]) -> bool {
    jobs.is_sorted_by_key(|job| job.taken.job)
}

case!(a_technique_can_be_altered_and_gives_the_same_jobs, [268], async |t| {
    t.define("CREATE WORK QUEUE w").await?;
    let mut last_token = 0;
    for (word, technique) in TakingTechnique::ALL {
        alter(&t, technique).await?;
        let is_shown = t.broker.dump().contains(&format!("TAKE_BY = {word}"));
        assert_eq!(is_shown, technique != TakingTechnique::Default, "{word}");
        push(&t, 1..=9).await?;
        let leased = t.broker.take_jobs("w").count(2).lease(LEASE).taken_by("me").await?;
        assert_eq!(names(&leased), "1 2", "{word}");
        assert!(leased[0].taken.token > last_token && leased[1].taken.token > leased[0].taken.token, "{word}");
        assert_eq!(
            (&*leased[0].job_type, leased[0].key.as_deref(), leased[0].attempt),
            ("odd", Some("k"), 1),
            "{word}"
        );
        assert_eq!(leased[1].lease_until, Some(t.now().after(LEASE)), "{word}");
        assert_eq!(names(&t.broker.take_jobs("w").job_type("odd").count(2).lease(LEASE).await?), "3 5", "{word}");
        let tx = t.begin().await?;
        assert_eq!(names(&tx.0.take_jobs("w").count(2).await?), "4 6", "{word}");
        tx.commit().await?;
        let popped = t.broker.take_jobs("w").count(9).pop().await?;
        assert_eq!((names(&popped), popped[0].lease_until), ("7 8 9".to_owned(), None), "{word}");
        assert!(t.broker.take_jobs("w").await?.is_empty(), "{word}");
        last_token = popped.iter().map(|job| job.taken.token).max().unwrap();
    }
});

case!(an_unknown_technique_is_refused, [244, 268], async |t| {
    t.define("CREATE WORK QUEUE w WITH TAKE_BY = CURSOR").await?;
    for text in ["ALTER WORK QUEUE w WITH TAKE_BY = GUESS", "CREATE WORK QUEUE v WITH TAKE_BY = 1"] {
        let refused = t.broker.execute(text).await;
        assert_eq!(code(refused), Code::SYNTAX.0, "{text}");
    }
    assert!(t.broker.dump().contains("TAKE_BY = CURSOR"));
});

/// Takes until it gets nothing, and completes what it got: with a lease, or in a transaction, of which each third is rolled back.
async fn read(broker: Broker, place: u32) -> Result<Vec<JobId>> {
    let (mut done, mut takes) = (Vec::new(), 0);
    loop {
        takes += 1;
        let count = 1 + place % 3;
        if place.is_multiple_of(2) {
            let jobs = broker.take_jobs("w").count(count).lease(LEASE).await?;
            assert!(ascend(&jobs), "{}", names(&jobs));
            for job in &jobs {
                // A take that passes over the job keeps its row until its commit, which may last on a busy machine.
                while let Err(error) = broker.complete_job(job).await {
                    if error.code() != Code::JOB_LOCKED {
                        return Err(error);
                    }
                }
            }
            done.extend(jobs.iter().map(|job| job.taken.job));
            if jobs.is_empty() {
                return Ok(done);
            }
            continue;
        }
        let tx = broker.begin().await?;
        let jobs = tx.take_jobs("w").count(count).await?;
        assert!(ascend(&jobs), "{}", names(&jobs));
        if takes % 3 == 0 {
            tx.rollback().await?;
            continue;
        }
        tx.commit().await?;
        done.extend(jobs.iter().map(|job| job.taken.job));
        if jobs.is_empty() {
            return Ok(done);
        }
    }
}

case!(readers_with_different_techniques_get_each_job_once, [269], async |t| {
    t.define("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0, MAX_ATTEMPTS = 1000").await?;
    let other = Broker::open_with(t.database.url(), OpenOptions::default().clock(t.clock.clone())).await?;
    let pushed = push(&t, 0..120).await?;
    let mut readers = JoinSet::new();
    for place in 0..8 {
        let broker = if place % 4 < 2 { t.broker.clone() } else { other.clone() };
        readers.spawn(read(broker, place));
    }
    let mut done = Vec::new();
    let mut techniques = TakingTechnique::ALL.into_iter().cycle();
    while !readers.is_empty() {
        // A process that has not read the change yet takes by the technique before.
        let (_, technique) = techniques.next().unwrap();
        alter(&t, technique).await?;
        while let Some(ended) = readers.try_join_next() {
            done.extend(ended.unwrap()?);
        }
    }
    // What a rollback gave back after the others had looked.
    done.extend(read(t.broker.clone(), 0).await?);
    assert_eq!(done.len(), pushed.len(), "each once");
    assert_eq!(done.into_iter().collect::<BTreeSet<_>>(), pushed);
    other.close().await?;
});
