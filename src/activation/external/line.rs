//! The lines a program answers.

use super::super::handlers::{Context, HandlerResult};
use super::failed;
use crate::act::{Act, Perform, current_trace};
use crate::error::Result;
use crate::id::ConversationHandle;
use crate::jsonl::{SendLine, object, parse_handle};
use crate::protocol::Verb;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// One line.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// Done in the transaction of the message.
    Reply(Reply),
    /// The message is done.
    Commit,
    /// The message is not done, and why.
    Rollback(String),
}

/// A request of a program.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Send(SendLine),
    End(Option<ConversationHandle>),
    EndError { code: i32, description: String, conversation: Option<ConversationHandle> },
    Timer { seconds: u32, conversation: Option<ConversationHandle> },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum RawReply {
    Send(Box<RawValue>),
    End(RawEnd),
    EndError(Box<RawValue>),
    Timer(Box<RawValue>),
    Commit(bool),
    Rollback(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawEnd {
    Own(bool),
    Other(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEndError {
    code: i32,
    description: String,
    conversation: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTimer {
    seconds: u32,
    conversation: Option<String>,
}

impl Line {
    /// Parses one line.
    ///
    /// # Errors
    /// 60025 with the fault of the line.
    pub(super) fn parse(line: &str) -> Result<Self> {
        Self::read(line).map_err(|why| {
            let shorten = |text: &str| text.trim_end().chars().take(200).collect::<String>();
            let (why, shown) = (shorten(&why), shorten(line));
            failed(format!("the program answered what is not understood: {why}; the line is: {shown}"))
        })
    }

    fn read(line: &str) -> Result<Self, String> {
        let handle = |text: Option<String>| {
            text.map(|text| parse_handle(&text)).transpose().map_err(|error| error.message().to_owned())
        };
        let reply = match object(line)? {
            RawReply::Commit(true) => return Ok(Self::Commit),
            RawReply::Rollback(why) => return Ok(Self::Rollback(why)),
            RawReply::Commit(false) => {
                return Err(r#"commit must be true; to refuse, answer {"rollback": "why"}"#.into());
            }
            RawReply::Send(send) => {
                Reply::Send(SendLine::parse(send.get()).map_err(|error| error.message().to_owned())?)
            }
            RawReply::End(RawEnd::Own(true)) => Reply::End(None),
            RawReply::End(RawEnd::Own(false)) => return Err("end must be true or a conversation handle".into()),
            RawReply::End(RawEnd::Other(text)) => Reply::End(handle(Some(text))?),
            RawReply::EndError(error) => {
                let RawEndError { code, description, conversation } = object(error.get())?;
                Reply::EndError { code, description, conversation: handle(conversation)? }
            }
            RawReply::Timer(timer) => {
                let RawTimer { seconds, conversation } = object(timer.get())?;
                Reply::Timer { seconds, conversation: handle(conversation)? }
            }
        };
        Ok(Self::Reply(reply))
    }
}

impl Reply {
    /// Does it in the transaction of the message; without a handle, on its conversation.
    pub(super) async fn apply(self, context: &Context) -> HandlerResult {
        let own = context.handle();
        match self {
            Self::Send(SendLine { message_type, body, conversation, end }) => {
                let handle = conversation.unwrap_or(own);
                let verb = Verb::Send {
                    handles: vec![handle],
                    message_type: message_type.map(Into::into),
                    body: body.filter(|body| !body.is_empty()).map(Arc::new),
                    trace: current_trace(),
                };
                context.perform(verb).await?;
                if end {
                    context.end(handle).await?;
                }
            }
            Self::End(handle) => drop(context.end(handle.unwrap_or(own)).await?),
            Self::EndError { code, description, conversation } => {
                context.end_with_error(conversation.unwrap_or(own), code, description).await?;
            }
            Self::Timer { seconds, conversation } => {
                context.timer(conversation.unwrap_or(own), Duration::from_secs(seconds.into())).await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn every_kind_of_line_is_read() {
        let handle = "01890a5d-ac96-774b-bcce-b302099a8057";
        let of = |line: &str| Line::parse(line).unwrap();
        assert_eq!(of(r#"{"commit": true}"#), Line::Commit);
        assert_eq!(of(r#"{"rollback": "no stock"}"#), Line::Rollback("no stock".into()));
        assert_eq!(of(r#"{"end": true}"#), Line::Reply(Reply::End(None)));
        assert_eq!(of(&format!(r#"{{"end": "{handle}"}}"#)), Line::Reply(Reply::End(handle.parse().ok())));
        let refused = Reply::EndError { code: 7, description: "x".into(), conversation: None };
        assert_eq!(of(r#"{"end_error": {"code": 7, "description": "x"}}"#), Line::Reply(refused));
        let timer = Reply::Timer { seconds: 60, conversation: handle.parse().ok() };
        assert_eq!(of(&format!(r#"{{"timer": {{"seconds": 60, "conversation": "{handle}"}}}}"#)), Line::Reply(timer));
        let Line::Reply(Reply::Send(send)) = of(r#"{"send": {"type": "//t", "body": {"a": 1}, "end": true}}"#) else {
            panic!("a send was written");
        };
        assert_eq!(send.message_type.as_deref(), Some("//t"));
        assert_eq!(send.body.as_deref(), Some(&br#"{"a": 1}"#[..]));
        assert!(send.end);
    }

    #[test]
    fn garbage_is_refused_with_its_text() {
        for line in [
            "hello",
            "",
            "{}",
            r#"{"commit": false}"#,
            r#"{"commit": true, "end": true}"#,
            r#"{"end": false}"#,
            r#"{"end": "x"}"#,
            r#"{"send": 5}"#,
            r#"{"send": ["//t", "x", null, null, null, true]}"#,
            r#"{"end_error": [7, "x"]}"#,
            r#"{"timer": [60]}"#,
            r#"["commit"]"#,
            r#"{"end_error": {"code": 1}}"#,
            r#"{"explode": true}"#,
        ] {
            let error = Line::parse(line).expect_err(line);
            assert_eq!(error.code(), Code::PROGRAM_FAILED);
            assert!(error.message().ends_with(line), "{error}");
        }
    }
}
