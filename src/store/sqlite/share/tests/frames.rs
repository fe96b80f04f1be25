//! Frames that cannot be written at once, or not at all.

use super::*;

// A named pipe is written by a task only.
#[cfg(unix)]
#[tokio::test]
async fn what_cannot_be_written_at_once_is_queued_and_what_cannot_be_written_at_all_is_refused() {
    let _limit = crate::testing::limit();
    use tokio::io::AsyncReadExt;
    let folders = [0; 3].map(|_| tempfile::tempdir().unwrap());
    let (_owner, client) = connected(folders[0].path()).await;
    // The system takes the last frame in part, or nothing of it.
    while client.connection.queued() == 0 {
        client.connection.send(&[0; 1000]).unwrap();
    }
    let (owner, client) = connected(folders[1].path()).await;
    // No task writes: what is queued goes with the end.
    client.notify(Call::Cancel { request: 5 });
    client.lose();
    let (mut stream, mut sent, mut calls) = (&owner, FrameBuffer::default(), Vec::new());
    while stream.read_buf(sent.room()).await.unwrap() > 0 {
        while let Some(Request { call, .. }) = sent.next().unwrap() {
            calls.push(call);
        }
    }
    assert!(matches!(calls[..], [Call::Cancel { request: 5 }]), "{calls:?}");
    let (owner, client) = connected(folders[2].path()).await;
    drop(owner);
    let alone = client.call(&Call::Submit(Vec::new())).await.unwrap_err();
    assert_eq!(alone.code(), Code::STORE_CLOSED, "the next owner is asked: {alone}");
    let step = Call::InTx { tx: 1, is_seen: false, step: TxStep::Commit };
    let in_tx = client.call(&step).await.unwrap_err();
    assert_eq!(in_tx.code(), Code::OWNER_GONE, "{in_tx}");
}

#[test]
fn a_frame_of_the_most_bytes_comes_and_a_longer_one_is_refused_before_it_does() {
    // Its length takes three bytes.
    let longest = "x".repeat(frame::MAX_FRAME_BYTES - 3);
    let (mut bytes, mut buffer) = (Vec::new(), FrameBuffer::default());
    frame::encode(&longest, &mut bytes).unwrap();
    assert!(frame::encode(&(longest.clone() + "x"), &mut Vec::new()).is_err());
    buffer.room().extend_from_slice(&bytes);
    assert!(buffer.next::<String>().unwrap().is_some_and(|text| text == longest));
    let mut buffer = FrameBuffer::default();
    buffer.room().extend_from_slice(&u32::MAX.to_le_bytes());
    assert!(buffer.next::<String>().is_err());
}
