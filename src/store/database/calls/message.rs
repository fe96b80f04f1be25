//! Rows of RECEIVE as messages.

use crate::error::Result;
use crate::id::{ConversationHandle, GroupId, MessageId};
use crate::protocol::{Message, MessageValidation};
use crate::store::database::calls::rows::damaged;
use crate::store::{SqlRow, SqlValue};
use crate::time::Timestamp;
use std::sync::Arc;
use uuid::Uuid;

/// The messages of an answer, in order, each with the number of the item that it answers, 0 if the answer has no items.
///
/// # Errors
/// 60012 if the rows are not those of a RECEIVE.
pub(in crate::store::database) fn messages(rows: Vec<SqlRow>) -> Result<Vec<(usize, Message)>> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    // Found once for all rows: names are compared once, not once a cell.
    let find = |name: &str| first.columns.iter().position(|column| column == name);
    let mut places = [0; Message::COLUMNS.len()];
    for (place, name) in places.iter_mut().zip(Message::COLUMNS) {
        *place = find(name).ok_or_else(|| damaged(format!("RECEIVE gives no column '{name}'")))?;
    }
    let item = find("item");
    rows.into_iter()
        .filter(|row| row.values[places[4]] != SqlValue::Null)
        .map(|mut row| {
            let item = item.map_or(Ok(0), |place| number(&row.values[place])).and_then(narrow)?;
            Ok((item, message(&mut row.values, &places)?))
        })
        .collect()
}

fn message(values: &mut [SqlValue], places: &[usize; Message::COLUMNS.len()]) -> Result<Message> {
    let mut take = |column: usize| std::mem::replace(&mut values[places[column]], SqlValue::Null);
    Ok(Message {
        status: narrow(number(&take(0))?)?,
        priority: narrow(number(&take(1))?)?,
        queuing_order: narrow(number(&take(2))?)?,
        conversation_group_id: GroupId(uuid(&take(3))?),
        conversation_handle: ConversationHandle(uuid(&take(4))?),
        message_sequence_number: narrow(number(&take(5))?)?,
        service_name: text(take(6))?.into(),
        service_id: narrow(number(&take(7))?)?,
        service_contract_name: text(take(8))?.into(),
        service_contract_id: narrow(number(&take(9))?)?,
        message_type_name: text(take(10))?.into(),
        message_type_id: narrow(number(&take(11))?)?,
        validation: validation(&text(take(12))?)?,
        message_body: match take(13) {
            SqlValue::Blob(bytes) => Some(bytes),
            SqlValue::Null => None,
            other => return Err(unexpected(&other)),
        },
        message_id: MessageId(uuid(&take(14))?),
        message_enqueue_time: Timestamp(number(&take(15))?),
        trace: match take(16) {
            SqlValue::Null => None,
            other => Some(Arc::from(text(other)?)),
        },
    })
}

fn validation(letter: &str) -> Result<MessageValidation> {
    Ok(match letter.trim_end() {
        "E" => MessageValidation::E,
        "N" => MessageValidation::N,
        "X" => MessageValidation::X,
        "J" => MessageValidation::J,
        other => return Err(damaged(format!("'{other}' is no validation"))),
    })
}

fn number(value: &SqlValue) -> Result<i64> {
    match value {
        SqlValue::Integer(number) => Ok(*number),
        other => Err(unexpected(other)),
    }
}

fn narrow<T: TryFrom<i64>>(number: i64) -> Result<T> {
    T::try_from(number).map_err(|_| damaged(format!("{number} is out of the range of its column")))
}

fn uuid(value: &SqlValue) -> Result<Uuid> {
    match value {
        SqlValue::Uuid(id) => Ok(*id),
        SqlValue::Blob(bytes) => Uuid::from_slice(bytes).map_err(|_| unexpected(value)),
        other => Err(unexpected(other)),
    }
}

fn text(value: SqlValue) -> Result<String> {
    match value {
        SqlValue::Text(text) => Ok(text),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(value: &SqlValue) -> crate::error::Error {
    damaged(format!("RECEIVE gives {value:?} where something else must stand"))
}
