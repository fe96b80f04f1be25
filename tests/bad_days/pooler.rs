//! A pooler that gives each transaction a session of the server, as PgBouncer does with `pool_mode = transaction`.

use crate::servers::{Store, socket_of};
use crate::{Database, broker, on};
use dialoq::{Broker, Code};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, mpsc};

pub(crate) fn a_pooler_of_transactions_is_refused(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        broker(database.url()).await?.close().await?;
        let folder = TempDir::new().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("a socket");
        let session = Arc::new(Mutex::new(Session::login(socket_of(database.url()))));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(lead(client, session.clone()));
            }
        });
        let (base, _) = database.url().split_once('?').expect("a URL with the folder of the socket");
        let error = Broker::open(&format!("{base}?host={}", folder.path().display())).await.unwrap_err();
        assert_eq!(error.code(), Code::UNSUPPORTED, "{error:?}");
        assert!(error.message().contains("pool_mode = session"), "{error}");
        Ok(())
    });
}

/// The one session of the server, once a client has logged in.
struct Session {
    server: PathBuf,
    open: Option<OpenSession>,
}

struct OpenSession {
    answers: mpsc::UnboundedReceiver<Vec<u8>>,
    requests: OwnedWriteHalf,
    /// What the server answered to the login; every client gets the same.
    welcome: Vec<u8>,
}

impl Session {
    fn login(server: PathBuf) -> Self {
        Self { server, open: None }
    }

    async fn open(&mut self, login: &[u8]) -> io::Result<&mut OpenSession> {
        if self.open.is_none() {
            let (answers, mut requests) = UnixStream::connect(&self.server).await?.into_split();
            requests.write_all(login).await?;
            let (mut answers, mut welcome) = (messages(answers), Vec::new());
            while let Some(answer) = answers.recv().await {
                welcome.extend(&answer);
                if answer[0] == b'Z' {
                    break;
                }
            }
            self.open = Some(OpenSession { answers, requests, welcome });
        }
        Ok(self.open.as_mut().expect("it is open"))
    }
}

/// Leads the transactions of a client to the session, one after the other.
async fn lead(mut client: UnixStream, session: Arc<Mutex<Session>>) -> io::Result<()> {
    let login = read(&mut client, Vec::new()).await?;
    let welcome = session.lock().await.open(&login).await?.welcome.clone();
    client.write_all(&welcome).await?;
    let (requests, mut answers): (OwnedReadHalf, _) = client.into_split();
    let mut requests = messages(requests);
    while let Some(first) = requests.recv().await {
        if first[0] == b'X' {
            break;
        }
        let mut session = session.lock().await;
        let session = session.open(&login).await?;
        // Each query and each Sync ends with one answer that the server is ready.
        let mut awaited = 0;
        let mut next = Some(first);
        loop {
            if let Some(request) = next.take() {
                awaited += usize::from(matches!(request[0], b'Q' | b'S'));
                session.requests.write_all(&request).await?;
            }
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => next = Some(request),
                    None => return Ok(()),
                },
                Some(answer) = session.answers.recv() => {
                    answers.write_all(&answer).await?;
                    awaited -= usize::from(answer[0] == b'Z');
                    if answer[0] == b'Z' && awaited == 0 && answer[5] == b'I' {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The messages that come in, each with the byte of its kind and its length.
fn messages(mut from: OwnedReadHalf) -> mpsc::UnboundedReceiver<Vec<u8>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(kind) = from.read_u8().await
            && let Ok(message) = read(&mut from, vec![kind]).await
            && sender.send(message).is_ok()
        {}
    });
    receiver
}

/// A message after what was read of it.
async fn read(from: &mut (impl AsyncRead + Unpin), mut message: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    message.extend(length.to_be_bytes());
    let begin = message.len();
    message.resize(begin + length as usize - 4, 0);
    from.read_exact(&mut message[begin..]).await?;
    Ok(message)
}
