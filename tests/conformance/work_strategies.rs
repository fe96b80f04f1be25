//! The broker's strategies over work queues. Ours.

use crate::rig::{Rig, code};
use dialoq::receive::strategy::{Bound, Strategy, drain_one_conversation};
use dialoq::receive::{aging, by_contract, by_levels, drain_high_then_one_low, dual_queue_loop, weighted};
use dialoq::work::{JobTurn, JobTurns};
use dialoq::{Act, Code, ConversationHandle, Result, Timestamp};
use std::collections::HashMap;
use std::time::Duration;

async fn push(t: &Rig, queue: &str, level: u8) -> Result<()> {
    t.broker.push_job(queue, "x").level(level).await.map(drop)
}

/// The takes that a strategy chooses, each without waiting.
fn turns(t: &Rig, strategy: impl Strategy + 'static) -> Result<JobTurns> {
    t.broker.take_jobs_by(strategy).map(|turns| turns.wait(Duration::ZERO))
}

/// The next take; its job is completed.
async fn next(t: &Rig, turns: &mut JobTurns) -> Result<Option<JobTurn>> {
    let turn = turns.next(&t.broker).await?;
    if let Some(turn) = &turn {
        assert_eq!(turn.jobs.len(), 1);
        t.broker.complete_job(&turn.jobs[0]).await?;
    }
    Ok(turn)
}

/// The classes of so many takes.
async fn classes(t: &Rig, turns: &mut JobTurns, takes: usize) -> Result<Vec<String>> {
    let mut classes = Vec::new();
    for _ in 0..takes {
        classes.push(next(t, turns).await?.map_or_else(|| "none".to_owned(), |turn| turn.class.to_string()));
    }
    Ok(classes)
}

case!(weighted_gives_each_work_queue_its_share_of_every_window, [258], async |t| {
    let shares: [(&str, u32); 3] = [("high", 3), ("middle", 2), ("low", 1)];
    for (queue, _) in shares {
        t.define(&format!("CREATE WORK QUEUE {queue}")).await?;
    }
    let strategy = weighted(shares);
    let bound = strategy.bound();
    let mut turns = turns(&t, strategy)?;
    let mut waiting = [0; 3];
    let mut takes: Vec<(usize, [bool; 3])> = Vec::new();
    for step in 0..90 {
        // A flood of high, a lull, and another flood; low comes all along.
        let arrivals = [if step % 45 < 30 { 2 } else { 0 }, usize::from(step % 3 == 0), usize::from(step % 4 == 0)];
        for ((queue, _), (jobs, waiting)) in shares.iter().zip(arrivals.iter().zip(&mut waiting)) {
            for _ in 0..*jobs {
                push(&t, queue, 5).await?;
            }
            *waiting += jobs;
        }
        let before = waiting.map(|jobs| jobs > 0);
        let turn = next(&t, &mut turns).await?.expect("jobs wait");
        let class = shares.iter().position(|(queue, _)| **queue == *turn.class).expect("a class of the strategy");
        waiting[class] -= 1;
        takes.push((class, before));
    }
    let Bound::Window { receives, weights } = &bound else { panic!("{bound}") };
    for window in takes.windows(usize::try_from(*receives).unwrap()) {
        for (class, (name, weight)) in weights.iter().enumerate() {
            if window.iter().all(|(_, before)| before[class]) {
                let count = window.iter().filter(|(taken, _)| *taken == class).count() as u64;
                assert!(count >= *weight, "{name} got {count} of {receives}: {window:?}");
            }
        }
    }
    let (mut run, mut longest) = (0, 0);
    for (class, before) in &takes {
        run = if before[2] && *class != 2 { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    assert_eq!(Some(longest), bound.longest_run_past("low"), "the flood makes low wait as long as the bound allows");
});

case!(aging_bounds_by_how_much_a_newer_job_may_overtake, [259], async |t| {
    t.define("CREATE WORK QUEUE w WITH ORDER = PRIORITY").await?;
    let strategy = aging("w", Duration::from_millis(50));
    let bound = strategy.bound();
    let mut turns = turns(&t, strategy)?;
    let mut taken: Vec<(u8, Timestamp)> = Vec::new();
    for step in 0_u64..60 {
        // More than is taken, mostly of high levels.
        for job in 0..2 {
            let level = if (step + job) % 3 == 0 { 1 + step % 5 } else { 8 + (step + job) % 3 };
            push(&t, "w", u8::try_from(level).unwrap()).await?;
        }
        let turn = next(&t, &mut turns).await?.expect("jobs wait");
        taken.push((turn.jobs[0].level, turn.jobs[0].pushed_at));
        t.advance_ms(30).await?;
    }
    while let Some(turn) = next(&t, &mut turns).await? {
        taken.push((turn.jobs[0].level, turn.jobs[0].pushed_at));
    }
    assert_eq!(taken.len(), 120);
    let mut overtaken = 0;
    for (place, (level, pushed_at)) in taken.iter().enumerate() {
        let within = bound.overtaken_within(*level).expect("aging has a bound");
        let mut beyond: HashMap<u8, usize> = HashMap::new();
        for (other, newer_at) in taken[..place].iter().filter(|(_, other_at)| other_at > pushed_at) {
            overtaken += 1;
            if newer_at.since(*pushed_at) > within {
                *beyond.entry(*other).or_default() += 1;
            }
        }
        assert!(beyond.values().all(|times| *times == 1), "level {level}, pushed at {pushed_at}: {beyond:?}");
    }
    let lows_first = taken.iter().take(60).filter(|(level, _)| *level <= 5).count();
    assert!(overtaken > 100 && lows_first > 3, "levels count ({overtaken}), and age does ({lows_first})");
});

case!(a_pause_and_a_limit_make_no_job_younger_under_aging, [259], async |t| {
    for (queue, options) in [("paused", ""), ("limited", ", MAX_TAKEN = 1")] {
        t.define(&format!("CREATE WORK QUEUE {queue} WITH ORDER = PRIORITY{options}")).await?;
        let mut turns = turns(&t, aging(queue, Duration::from_millis(10)))?;
        let status = |on: &str| format!("ALTER WORK QUEUE {queue} WITH STATUS = {on}");
        let mut holder = None;
        if options.is_empty() {
            t.define(&status("OFF")).await?;
        } else {
            push(&t, queue, 5).await?;
            holder = t.broker.take_jobs(queue).await?.pop();
        }
        for _ in 0..3 {
            push(&t, queue, 3).await?;
        }
        // The bound is 70 ms.
        t.advance(1).await?;
        for _ in 0..5 {
            push(&t, queue, 10).await?;
        }
        assert!(next(&t, &mut turns).await?.is_none(), "{queue}");
        match holder {
            Some(job) => t.broker.complete_job(&job).await?,
            None => drop(t.define(&status("ON")).await?),
        }
        let order = classes(&t, &mut turns, 8).await?;
        let of = |level: &str, times: usize| std::iter::repeat_n(format!("level {level}"), times);
        let right: Vec<String> = of("10", 1).chain(of("3", 3)).chain(of("10", 4)).collect();
        assert_eq!(order, right, "{queue}: one out of turn, to learn the age of its level");
    }
});

case!(low_jobs_wait_for_high_ones_under_the_strategies_without_a_bound, [260], async |t| {
    t.define("CREATE WORK QUEUE w WITH ORDER = PRIORITY; CREATE WORK QUEUE high; CREATE WORK QUEUE low").await?;
    let mut drain = turns(&t, drain_high_then_one_low("w", by_levels(8..=10)))?;
    let mut dual = turns(&t, dual_queue_loop("high", "low"))?;
    for level in [3, 9, 3, 8] {
        push(&t, "w", level).await?;
        push(&t, if level > 5 { "high" } else { "low" }, 5).await?;
    }
    for turns in [&mut drain, &mut dual] {
        assert_eq!(classes(&t, turns, 3).await?, ["high", "high", "low"]);
    }
    push(&t, "w", 10).await?;
    push(&t, "high", 5).await?;
    for turns in [&mut drain, &mut dual] {
        assert_eq!(classes(&t, turns, 3).await?, ["high", "low", "none"]);
    }
    // In a transaction, whose rollback is a failed attempt.
    push(&t, "low", 5).await?;
    let tx = t.broker.begin().await?;
    let turn = dual.next(&tx).await?.expect("a job waits");
    assert_eq!((&*turn.class, turn.jobs[0].lease_until), ("low", None));
    assert!(dual.next(&t.broker).await?.is_none());
    tx.rollback().await?;
    t.advance(2).await?;
    let again = t.soon(async || t.broker.take_jobs("low").await, |jobs| !jobs.is_empty()).await?;
    assert_eq!(again[0].attempt, 2);
});

case!(a_strategy_over_work_queues_is_checked_before_its_first_take, [261], async |t| {
    t.define("CREATE WORK QUEUE w; CREATE WORK QUEUE levels WITH ORDER = PRIORITY; CREATE QUEUE messages").await?;
    let conversation = ConversationHandle(uuid::Uuid::nil());
    let second = Duration::from_secs(1);
    for missing in ["nowhere", "messages"] {
        assert_eq!(code(t.broker.take_jobs_by(weighted([(missing, 1)])).map(drop)), Code::OBJECT_NOT_FOUND.0);
    }
    let refused = [
        t.broker.take_jobs_by(aging("w", second)).map(drop),
        t.broker.take_jobs_by(drain_high_then_one_low("w", by_levels(8..=10))).map(drop),
        t.broker.take_jobs_by(drain_high_then_one_low("levels", by_contract("DEFAULT"))).map(drop),
        t.broker.take_jobs_by(drain_high_then_one_low("levels", by_levels(8..=11))).map(drop),
        t.broker.take_jobs_by(drain_one_conversation("w", conversation)).map(drop),
        t.broker.take_jobs_by(weighted([("w", 0)])).map(drop),
        t.broker.take_jobs_by(aging("levels", second).top(10_001)).map(drop),
    ];
    for (place, refused) in refused.into_iter().enumerate() {
        assert_eq!(code(refused), Code::OUT_OF_RANGE.0, "{place}");
    }
    assert!(t.broker.take_jobs_by(aging("LEVELS", second).top(10_000)).is_ok());
});
