//! The driver against a server that the test plays: it lets everyone in, and answers every request that it is done.

use super::driver;
use crate::error::Code;
use crate::store::SqlStatement;
use crate::store::database::link::{Driver, Fate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The answer to PRELOGIN: a version, and that the server encrypts nothing.
const PRELOGIN: &[u8] = &[0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF, 16, 0, 0, 0, 0, 0, 2];
/// LOGINACK of TDS 7.4 by a server without a name.
const LOGIN: &[u8] = &[0xAD, 10, 0, 1, 0x74, 0, 0, 4, 0, 16, 0, 0, 0];
/// The end of an answer without rows.
const DONE: &[u8] = &[0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// The kinds of packets that a client sends first.
const PRELOGIN_PACKET: u8 = 0x12;
const LOGIN_PACKET: u8 = 0x10;

/// Reads a request; gives its kind, `None` at the end of the connection.
async fn request(stream: &mut TcpStream) -> Option<u8> {
    Some(whole_request(stream).await?.0)
}

/// Reads a request; gives its kind and what it holds.
async fn whole_request(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut body = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await.ok()?;
        let mut rest = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - header.len()];
        stream.read_exact(&mut rest).await.ok()?;
        body.extend(rest);
        let is_last = header[1] & 1 == 1;
        if is_last {
            return Some((header[0], body));
        }
    }
}

async fn answer(stream: &mut TcpStream, parts: &[&[u8]]) {
    let body = parts.concat();
    let length = u16::try_from(body.len() + 8).unwrap().to_be_bytes();
    let packet = [&[4, 1, length[0], length[1], 0, 0, 1, 0], &*body].concat();
    stream.write_all(&packet).await.unwrap();
}

/// Lets a client in, and answers its first request.
async fn let_in(listener: TcpListener) -> TcpStream {
    let mut stream = listener.accept().await.unwrap().0;
    loop {
        match request(&mut stream).await.expect("the client stays") {
            PRELOGIN_PACKET => answer(&mut stream, &[PRELOGIN]).await,
            LOGIN_PACKET => answer(&mut stream, &[LOGIN, DONE]).await,
            _ => {
                answer(&mut stream, &[DONE]).await;
                return stream;
            }
        }
    }
}

#[tokio::test]
async fn a_link_whose_connection_the_server_closes_is_known_to_be_closed() {
    let _limit = crate::testing::limit();
    for (is_reset, farewell) in [(false, None), (true, None), (false, Some(DONE))] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(let_in(listener));
        let driver = driver(&format!("mssql://sa:secret@127.0.0.1:{port}/d?encrypt=off"));
        let link = driver.dedicated().await.unwrap();
        let mut stream = server.await.unwrap();
        assert!(!link.is_closed());
        if let Some(farewell) = farewell {
            answer(&mut stream, &[farewell]).await;
        }
        if is_reset {
            socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        }
        drop(stream);
        while !link.is_closed() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_link_whose_call_fails_without_an_answer_is_known_to_be_closed() {
    let _limit = crate::testing::limit();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let mut stream = let_in(listener).await;
        request(&mut stream).await
    });
    let driver = driver(&format!("mssql://sa:secret@127.0.0.1:{port}/d?encrypt=off"));
    let mut link = driver.dedicated().await.unwrap();
    assert!(!link.read("SELECT 1 AS n").await.unwrap_err().is_link_usable);
    assert!(server.await.unwrap().is_some() && link.is_closed());
}

/// The row of one value of nvarchar(4), in a column `t`.
fn row_of(units: &[u16]) -> Vec<u8> {
    let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let columns = [0x81, 1, 0, 0, 0, 0, 0, 1, 0, 0xE7, 8, 0, 9, 4, 0xD0, 0, 0x34, 1, b't', 0];
    let length = u16::try_from(bytes.len()).unwrap().to_le_bytes();
    [&columns, &[0xD1][..], &length, &bytes].concat()
}

/// The row ended the connection of everyone who read it.
#[tokio::test]
async fn half_of_a_character_is_shown_as_a_mark() {
    let _limit = crate::testing::limit();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let mut stream = let_in(listener).await;
        request(&mut stream).await;
        answer(&mut stream, &[&row_of(&[u16::from(b'a'), 0xD83D, u16::from(b'b'), 0xDE00]), DONE]).await;
        stream
    });
    let driver = driver(&format!("mssql://sa:secret@127.0.0.1:{port}/d?encrypt=off"));
    let mut link = driver.dedicated().await.unwrap();
    let rows = link.read("SELECT t FROM dialoq.t").await.unwrap();
    assert_eq!(rows[0].get::<String>("t").unwrap(), "a\u{FFFD}b\u{FFFD}");
    drop(server.await.unwrap());
}

/// An error of the server of class 16, and the end of its answer.
fn error_of(number: u32) -> Vec<u8> {
    let text: Vec<u8> = "said".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let body = [&number.to_le_bytes()[..], &[1, 16, 4, 0], &text, &[0, 0], &1_u32.to_le_bytes()].concat();
    let length = u16::try_from(body.len()).unwrap().to_le_bytes();
    [&[0xAA], &length[..], &body, &[0xFD, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat()
}

/// Answers one request that holds this text with that error, and all others that they are done.
async fn refuse(listener: TcpListener, text: &str, number: u32) {
    let text: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut stream = let_in(listener).await;
    while let Some((_, body)) = whole_request(&mut stream).await {
        match body.windows(text.len()).any(|part| part == text) {
            true => answer(&mut stream, &[&error_of(number)]).await,
            false => answer(&mut stream, &[DONE]).await,
        }
    }
}

/// A commit that was hardened before the failover was done a second time.
#[tokio::test]
async fn a_commit_that_a_failover_answers_may_have_happened() {
    let _limit = crate::testing::limit();
    for (number, fate) in [(40_197, Fate::Unknown), (40_501, Fate::TransactionUndone), (983, Fate::Unknown)] {
        for is_in_transaction in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let text = if is_in_transaction { "COMMIT" } else { "INSERT" };
            let server = tokio::spawn(refuse(listener, text, number));
            let driver = driver(&format!("mssql://sa:secret@127.0.0.1:{port}/d?encrypt=off"));
            let mut link = driver.dedicated().await.unwrap();
            let refused = match is_in_transaction {
                true => {
                    link.begin().await.unwrap();
                    link.commit().await.unwrap_err()
                }
                false => {
                    let insert = SqlStatement {
                        text: "INSERT INTO t VALUES (1)".into(),
                        params: Vec::new(),
                        expected_rows: None,
                    };
                    link.execute(&insert).await.unwrap_err()
                }
            };
            let fate = if is_in_transaction || fate == Fate::Unknown { fate } else { Fate::Undone };
            assert_eq!(refused.fate, fate, "{number}, in a transaction: {is_in_transaction}");
            let code = if fate == Fate::Unknown { Code::COMMIT_UNKNOWN } else { Code::SERVER_UNREACHABLE };
            assert_eq!(refused.error.code(), code, "{number}, in a transaction: {is_in_transaction}");
            drop(link);
            server.await.unwrap();
        }
    }
}
