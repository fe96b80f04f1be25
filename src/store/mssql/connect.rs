//! Makes connections, and checks whether they still work.

use super::args::RowsForm;
use super::failure::{self, Text};
use super::session::{Client, Session};
use crate::error::{Code, Error, Result};
use crate::sql::mssql::client;
use crate::store::url::{Encryption, Login, MssqlUrl};
use crate::store::{AccessToken, SqlValue};
use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use socket2::{SockRef, TcpKeepalive};
use std::fmt::Display;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;
use tiberius::error::Error as DriverError;
use tiberius::{AuthMethod, Config, EncryptionLevel, SqlBrowser};
use tokio::net::TcpStream;
use tokio_util::compat::TokioAsyncWriteCompatExt;

/// The environment variable with the token, if code gives none.
const TOKEN_VARIABLE: &str = "DIALOQ_ENTRA_TOKEN";

/// TCP keepalive: the idle time before the first probe, the interval, and the number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(5), 4);

/// TCP_USER_TIMEOUT: a connection whose data the server does not acknowledge for this long is lost. Keepalive does not run
/// while data is unacknowledged, and without this limit Linux tries for some 15 minutes.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The port of SQL Server if the URL names none.
const DEFAULT_PORT: u16 = 1433;

/// The most redirects by gateways.
const MAX_REDIRECTS: usize = 4;

/// A connection with its state.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) session: Session,
    /// The same socket, to check whether the server has closed it, and to close it at once.
    socket: std::net::TcpStream,
}

impl Connection {
    /// Closes the connection if a transaction is open in it, an answer is on its way, or the session may hold locks: then the
    /// server rolls back and frees the locks.
    pub(super) fn close_unless_clean(&mut self) {
        if !self.session.is_clean() {
            self.session.is_broken = true;
            // The socket may be closed already.
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    /// Whether the connection is open as far as this machine can see. A server says nothing unasked but that it ends the session, in an
    /// error or in an alert of TLS.
    pub(super) fn is_alive(&self) -> bool {
        self.socket.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

/// Makes connections for one URL.
#[derive(Clone)]
pub(super) struct Connector {
    url: Arc<MssqlUrl>,
    token: Option<AccessToken>,
}

impl Connector {
    pub(super) fn new(url: MssqlUrl, token: Option<AccessToken>) -> Self {
        Self { url: Arc::new(url), token }
    }

    /// A new connection, ready for our texts.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let mut config = self.config().await?;
        let mut place = (self.url.host.clone(), self.url.port);
        let limit = self.url.connect_timeout;
        let connecting = async {
            for _ in 0..MAX_REDIRECTS {
                let stream = self.reach(&config, &place).await?;
                let socket = keep_alive(&stream).map_err(|error| self.unreachable(&error))?;
                match Client::connect(config.clone(), stream.compat_write()).await {
                    Ok(client) => {
                        let session = Session::with_limit(self.url.server.common.sql_timeout);
                        return ready(Connection { client, session, socket }).await;
                    }
                    Err(DriverError::Routing { host, port }) => {
                        config.host(&host);
                        config.port(port);
                        place = (host, Some(port));
                    }
                    Err(DriverError::Server(error)) => return Err(failure::refused(&error, Text::Ours)),
                    Err(error) => return Err(self.unreachable(&error)),
                }
            }
            Err(self.unreachable(&format!(
                "it redirected the connection {MAX_REDIRECTS} times; no more redirects are followed"
            )))
        };
        match tokio::time::timeout(limit, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(self.unreachable(&format!("no answer within {} s", limit.as_secs()))),
        }
    }

    async fn config(&self) -> Result<Config> {
        let url = &*self.url;
        let mut config = Config::new();
        config.host(&url.host);
        if let Some(port) = url.port {
            config.port(port);
        }
        if let Some(instance) = &url.instance {
            config.instance_name(instance);
        }
        config.database(&url.database);
        config.application_name(&url.application_name);
        config.encryption(match url.encryption {
            Encryption::Required => EncryptionLevel::Required,
            Encryption::On => EncryptionLevel::On,
            Encryption::Off => EncryptionLevel::NotSupported,
            Encryption::Strict => EncryptionLevel::Strict,
        });
        if url.trust_server_certificate {
            config.trust_cert();
        }
        if let Some(file) = &url.trust_server_certificate_ca {
            config.trust_cert_ca(file.display());
        }
        if let Some(name) = &url.host_name_in_certificate {
            config.hostname_in_certificate(name);
        }
        config.handshake_timeout(Some(url.connect_timeout));
        // A wait for a lock has no limit, so an answer has none either; keepalive detects a lost server.
        config.command_timeout(None);
        // Plain T-SQL can write half of a character. Its row would end the connection of everyone who reads it.
        config.lossy_utf16_decoding(true);
        config.authentication(match &url.login {
            Login::Sql { user, password } => AuthMethod::sql_server(user, password),
            Login::EntraToken => AuthMethod::aad_token(self.token().await?),
        });
        Ok(config)
    }

    async fn token(&self) -> Result<String> {
        match &self.token {
            Some(token) => token.give().await,
            None => std::env::var(TOKEN_VARIABLE).map_err(|_| {
                Error::new(
                    Code::ACCESS_DENIED,
                    format!("the URL asks for a token of Entra, but {TOKEN_VARIABLE} is not set, nor OpenOptions::entra_token"),
                )
            }),
        }
    }

    async fn reach(&self, config: &Config, place: &(String, Option<u16>)) -> Result<TcpStream> {
        let (host, port) = place;
        if port.is_none() && self.url.instance.is_some() {
            return TcpStream::connect_named(config).await.map_err(|error| self.unreachable(&error));
        }
        let port = port.unwrap_or(DEFAULT_PORT);
        TcpStream::connect((host.as_str(), port)).await.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, why: &dyn Display) -> Error {
        let place = &self.url.server.shown;
        let message = format!("the server of '{place}' cannot be reached: {why}");
        Error::new(Code::SERVER_UNREACHABLE, message)
    }
}

/// Sets a new connection up as our texts expect it.
async fn ready(mut connection: Connection) -> Result<Connection> {
    let Connection { client, session, .. } = &mut connection;
    let rows = session.read(client, client::SESSION).await.map_err(|failure| failure.error)?;
    let is_babelfish = rows.rows.first().is_some_and(|row| row.values() == [SqlValue::Integer(1)]);
    session.rows_form = if is_babelfish { RowsForm::Json } else { RowsForm::Table };
    Ok(connection)
}

/// Sets the socket up and gives a second handle of it.
fn keep_alive(stream: &TcpStream) -> std::io::Result<std::net::TcpStream> {
    let (time, interval, retries) = KEEPALIVE;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval);
    // Some systems, as older Windows, have a fixed number of probes; the others must not go without any for it.
    if socket.set_tcp_keepalive(&keepalive.clone().with_retries(retries)).is_err() {
        socket.set_tcp_keepalive(&keepalive)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(socket.try_clone()?.into())
}

impl Manager for Connector {
    type Type = Connection;
    type Error = Error;

    async fn create(&self) -> Result<Connection> {
        self.connect().await
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Error> {
        if !connection.session.is_clean() || !connection.is_alive() {
            return Err(RecycleError::message("the connection is closed, or not clean"));
        }
        Ok(())
    }
}
