//! A network between a client and a server, which can be cut at a word, or spoil it.

use crate::servers::{Store, socket_of};
use std::io;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The next cut of the network.
#[derive(Debug, Clone)]
struct Cut {
    /// The texts; the cut happens when a client sends one of them.
    at: [Vec<u8>; 2],
    what: CutKind,
}

#[derive(Debug, Clone, Copy)]
enum CutKind {
    BeforeTheRequest,
    BeforeTheAnswer,
    /// No cut: the server gets another letter as the first of the word, and refuses the statement.
    Spoiled,
}

/// Passes everything on until a cut is requested. Each cut happens once and ends the connection that sent the word.
pub(crate) struct Network {
    url: String,
    cut: Arc<Mutex<Option<Cut>>>,
    _folder: Option<TempDir>,
}

impl Network {
    /// In front of the server that a URL names.
    pub(crate) async fn before(store: Store, url: &str) -> Self {
        match store {
            Store::Mssql => Self::before_a_port(url).await,
            _ => Self::before_a_socket(url),
        }
    }

    /// In front of the server at a host and a port; nothing is encrypted on this network, for words must be seen.
    async fn before_a_port(url: &str) -> Self {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let (login, place) = place.rsplit_once('@').expect("a login");
        let (server, database) = place.split_once('/').expect("a database");
        let server = if server.contains(':') { server.to_owned() } else { format!("{server}:1433") };
        let options: String = query
            .split('&')
            .filter(|option| !option.starts_with("encrypt="))
            .map(|option| format!("&{option}"))
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let cut = Arc::default();
        let accept = async move || listener.accept().await.map(|(client, _)| client);
        tokio::spawn(serve(accept, move || TcpStream::connect(server.clone()), Arc::clone(&cut)));
        let options = options.trim_end_matches('&');
        Self { url: format!("{login}@127.0.0.1:{port}/{database}?encrypt=off{options}"), cut, _folder: None }
    }

    /// In front of the server whose socket folder that URL names.
    fn before_a_socket(url: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let (base, _) = url.split_once('?').expect("a URL with the folder of the socket");
        let server = socket_of(url);
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("a socket");
        let cut = Arc::default();
        let accept = async move || listener.accept().await.map(|(client, _)| client);
        tokio::spawn(serve(accept, move || UnixStream::connect(server.clone()), Arc::clone(&cut)));
        Self { url: format!("{base}?host={}&sslmode=disable", folder.path().display()), cut, _folder: Some(folder) }
    }

    /// The URL of the database over this network.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Cuts when a client sends that, before or after the server has received it; no answer comes back.
    pub(crate) fn cut_at(&self, word: &str, is_delivered: bool) {
        self.next(word, if is_delivered { CutKind::BeforeTheAnswer } else { CutKind::BeforeTheRequest });
    }

    /// Has the server refuse the next statement with that word, as after a cancel that came late; what is sent after it arrives.
    #[allow(dead_code, reason = "not each suite with a network has statements refused")]
    pub(crate) fn spoil_at(&self, word: &str) {
        self.next(word, CutKind::Spoiled);
    }

    fn next(&self, word: &str, what: CutKind) {
        // SQL Server gets its statements in UTF-16, and bodies as they are.
        let wide = word.encode_utf16().flat_map(u16::to_le_bytes).collect();
        *self.cut.lock().unwrap() = Some(Cut { at: [word.as_bytes().to_vec(), wide], what });
    }

    /// Whether the cut that was asked for has happened.
    pub(crate) fn was_cut(&self) -> bool {
        self.cut.lock().unwrap().is_none()
    }
}

/// Takes every client in and leads it to a connection of its own to the server.
async fn serve<S, C>(accept: impl AsyncFn() -> io::Result<S>, connect: impl Fn() -> C, cuts: Arc<Mutex<Option<Cut>>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Future<Output = io::Result<S>> + Send + 'static,
{
    while let Ok(client) = accept().await {
        let (server, cuts) = (connect(), cuts.clone());
        tokio::spawn(async move {
            if let Ok(server) = server.await {
                pass(client, server, cuts).await;
            }
        });
    }
}

async fn pass<S: AsyncRead + AsyncWrite + Unpin>(mut client: S, mut server: S, cuts: Arc<Mutex<Option<Cut>>>) {
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let sent = &mut asked[..length];
                let here = {
                    let mut cut = cuts.lock().unwrap();
                    let place = |word: &Vec<u8>| sent.windows(word.len()).position(|part| part == word);
                    let place = cut.as_ref().and_then(|cut| cut.at.iter().find_map(place));
                    place.and_then(|place| Some((place, cut.take()?.what)))
                };
                match here {
                    Some((_, CutKind::BeforeTheRequest)) => return,
                    Some((place, CutKind::Spoiled)) => {
                        sent[place] = b'_';
                        if server.write_all(sent).await.is_err() {
                            return;
                        }
                    }
                    Some((_, CutKind::BeforeTheAnswer)) => {
                        let _ = server.write_all(sent).await;
                        // The server has done the request when it answers; the answer is lost. Of several requests together it may answer
                        // the first while it does the others: it reads to the end of what it was sent, and ends the session.
                        let _ = server.read(&mut answered).await;
                        let _ = server.shutdown().await;
                        while let Ok(1..) = server.read(&mut answered).await {}
                        return;
                    }
                    None => {
                        if server.write_all(sent).await.is_err() {
                            return;
                        }
                    }
                }
            }
            read = server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&answered[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
