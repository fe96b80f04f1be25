//! An owner that hangs, and a guest that takes its answers slowly.

use super::*;
#[cfg(unix)]
use crate::protocol::work::Hold;
use crate::store::sqlite::tests::jobs::push;
#[cfg(unix)]
use crate::store::sqlite::tests::jobs::take;
use std::task::{Context, Waker};
use tokio::io::AsyncReadExt;

/// As long as a frame may be in these tests, but for what stands around it.
const LARGE: usize = 900_000;

fn push_large() -> Verb {
    push(Some(vec![7; LARGE]))
}

/// Callers that gave up and tried again filled the memory of their process, as long as the owner hung.
#[tokio::test]
async fn calls_that_are_given_up_while_the_owner_hangs_take_no_more_memory() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (owner, client) = connected(folder.path()).await;
    let guest = async {
        let calls = [
            Call::Submit(vec![push_large()]),
            Call::InTx { tx: 1, is_seen: false, step: TxStep::Execute(push_large()) },
        ];
        for place in 0..100 {
            let mut asked = Box::pin(client.submit(&calls[place % 2]));
            assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(asked);
            // The task writes as much as the system takes.
            tokio::task::yield_now().await;
        }
        assert!(client.connection.queued() < 4 * LARGE, "{} bytes wait", client.connection.queued());
        // The owner goes on.
        let last = async { client.call(&Call::UnitHappened(uuid(1))).await };
        let answered = async {
            let mut sent = FrameBuffer::default();
            loop {
                match sent.next::<Request>().unwrap() {
                    Some(Request { id, call: Call::UnitHappened(_) }) => {
                        let answer = Ok(Answer::Happened(true));
                        return tell(&owner, &FromOwner::Answer { id, definitions: 0, answer }).await;
                    }
                    Some(_) => {}
                    None => assert_ne!((&mut &owner).read_buf(sent.room()).await.unwrap(), 0),
                }
            }
        };
        let (last, ()) = tokio::join!(last, answered);
        assert!(matches!(last.unwrap(), Answer::Happened(true)));
    };
    tokio::select! {
        () = client.run() => unreachable!("the owner has not ended the connection"),
        () = guest => {}
    }
}

/// A call that waits for room goes to the next owner when this one has gone.
#[tokio::test]
async fn a_call_that_waits_for_an_owner_that_hangs_ends_with_it() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (owner, client) = connected(folder.path()).await;
    let guest = async {
        let pushing = Call::Submit(vec![push_large()]);
        let mut asked: Vec<_> = (0..9).map(|_| Box::pin(client.submit(&pushing))).collect();
        for asked in &mut asked {
            assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            tokio::task::yield_now().await;
        }
        drop(owner);
        let mut codes = Vec::new();
        for asked in asked {
            codes.push(asked.await.unwrap_err().code());
        }
        codes
    };
    let (codes, ()) = tokio::join!(guest, client.run());
    assert_eq!((codes[0], codes[8]), (Code::OWNER_GONE, Code::STORE_CLOSED), "the last was not sent: {codes:?}");
}

/// An owner that closed gave its guests some seconds for all answers. Of twelve messages of 48 MB that were on their way, nine were
/// lost.
// A named pipe may take all answers at once.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_guest_that_takes_its_answers_slowly_gets_them_although_the_owner_closes() {
    let _limit = crate::testing::limit();
    const JOBS: usize = 9;
    let folder = tempfile::tempdir().unwrap();
    let given = options(folder.path());
    let board = given.board.clone();
    let store = SqliteStore::open(given).unwrap();
    store.submit(vec![definitions("CREATE WORK QUEUE w")]).await.unwrap();
    for _ in 0..JOBS {
        store.submit(vec![push_large()]).await.unwrap();
    }
    let owned = Arc::new(owned::OwnedStore::new(store.clone(), board, Default::default()));
    let path = folder.path().join("a.db");
    let listening = socket::listen(&path).unwrap();
    let (closing, draining) = (watch::channel(session::Closing::No), tokio::sync::mpsc::channel(1));
    let (closing, is_closing) = closing;
    let serving = tokio::spawn(async move {
        use interprocess::local_socket::traits::tokio::Listener as _;
        let stream = listening.listener.accept().await.unwrap();
        session::serve(owned, stream, Durability::Full, is_closing, draining.0).await
    });
    let guest = socket::connect(&path, Durability::Full).await.unwrap();
    for id in 1..=JOBS as u64 {
        tell(&guest, &Request { id, call: Call::Submit(vec![take(Hold::Lease(None))]) }).await;
    }
    let taken = async || {
        let rows = store.query(statement_of("select * from dialoq_job where state = 2")).await.unwrap().rows;
        rows.len()
    };
    while taken().await < JOBS {
        tokio::task::yield_now().await;
    }
    closing.send_replace(session::Closing::AtOnce);
    let (mut arrived, mut answered) = (FrameBuffer::default(), 0);
    let mut piece = Vec::with_capacity(LARGE / 2);
    while answered < JOBS {
        match arrived.next::<FromOwner>().unwrap() {
            Some(FromOwner::Answer { answer, .. }) => {
                assert_eq!(answer.unwrap().taken_jobs().len(), 1);
                answered += 1;
            }
            Some(_) => {}
            None => {
                // The thread of the connections ends with them, and the last answer fits in the socket.
                assert!(!serving.is_finished() || answered + 1 >= JOBS, "{answered} of {JOBS} answers came");
                tokio::time::sleep(Duration::from_secs(1)).await;
                piece.clear();
                // A clock that is paused jumps ahead while nothing has come from the socket yet, but not while a thread works.
                let (is_read, read) = std::sync::mpsc::channel::<()>();
                let standing = tokio::task::spawn_blocking(move || read.recv().is_ok());
                assert_ne!((&mut &guest).read_buf(&mut piece).await.unwrap(), 0, "the owner writes");
                drop(is_read);
                standing.await.unwrap();
                arrived.room().extend_from_slice(&piece);
            }
        }
    }
    drop(guest);
    let _ = serving.await.unwrap();
    store.close().await.unwrap();
}

/// A lone caller would write into the middle of the frame that the task is writing.
// A named pipe is written by a task only.
#[cfg(unix)]
#[tokio::test]
async fn a_lone_caller_does_not_write_into_another_frame() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (owner, client) = connected(folder.path()).await;
    let guest = async {
        client.notify(Call::Watch { queue: "x".repeat(LARGE) });
        // The task writes as much as the system takes.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let mut sent = FrameBuffer::default();
        // There is room again, and the task has not run meanwhile.
        for _ in 0..3 {
            (&mut &owner).read_buf(sent.room()).await.unwrap();
        }
        let call = Call::UnitHappened(uuid(1));
        let mut asked = Box::pin(client.call(&call));
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        loop {
            match sent.next::<Request>().unwrap() {
                Some(Request { call: Call::UnitHappened(_), .. }) => break,
                Some(Request { call: Call::Watch { queue }, .. }) => assert!(queue.bytes().all(|byte| byte == b'x')),
                Some(other) => panic!("{other:?}"),
                None => assert_ne!((&mut &owner).read_buf(sent.room()).await.unwrap(), 0, "the guest is there"),
            }
        }
    };
    tokio::select! {
        () = client.run() => unreachable!("the owner has not ended the connection"),
        () = guest => {}
    }
}

/// What is being written when a guest closes.
#[cfg(unix)]
#[tokio::test]
async fn a_guest_that_closes_ends_its_last_frame() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (owner, client) = connected(folder.path()).await;
    let guest = async {
        client.notify(Call::Watch { queue: "x".repeat(LARGE) });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        client.close().await;
    };
    let guest = async {
        tokio::select! {
            () = client.run() => {}
            () = guest => {}
        }
    };
    let reads = async {
        let (mut sent, mut names) = (FrameBuffer::default(), Vec::new());
        // The owner reads once the close waits.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        while (&mut &owner).read_buf(sent.room()).await.unwrap() > 0 {
            while let Some(Request { call, .. }) = sent.next().unwrap() {
                names.extend(if let Call::Watch { queue } = call { Some(queue.len()) } else { None });
            }
        }
        names
    };
    let (names, ()) = tokio::join!(reads, guest);
    assert_eq!(names, [LARGE]);
}
