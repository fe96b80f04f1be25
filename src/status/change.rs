//! Changes of many conversations or messages at once, chosen by a filter.

use super::conversation::{ConversationFilter, ConversationSide};
use super::held::HeldGroups;
use super::names::NameKind;
use super::peek::{MOST_MESSAGES, MessageFilter, MessageState, PeekedMessage};
use super::read;
use super::shell::shell_command;
use crate::act::{Act, Perform};
use crate::broker::Broker;
use crate::define::Level;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId};
use crate::protocol::{ConversationState, EndForm, Message, Outcome, Verb, system};
use crate::tx::Tx;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};

/// The most conversations that one call ends, or whose level it changes.
pub const MOST_CONVERSATIONS: u32 = 100_000;
/// The conversations of one commit of a purge.
const PURGED_AT_ONCE: usize = 50;
/// The messages that one read for a purge gives at most, unless more were chosen, and the conversations that it asks for. A read
/// looks at the whole queue: one for each of 4,000 conversations took 14 s.
const READ_AT_ONCE: usize = 20_000;
const READ_TOGETHER: usize = 500;
/// How many times as many the next read takes if all of the last one stand behind others.
const READ_ON: u32 = 4;
/// The refusals of a change whose side is gone, or has ended meanwhile.
const GONE: [Code; 3] = [Code::CONVERSATION_NOT_FOUND, Code::STATE_FORBIDS_END, Code::STATE_FORBIDS_MOVE];
/// Set before each RECEIVE of a purge.
const BEFORE_RECEIVE: &str = "dialoq_before_receive";

/// What became of a change of many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Changed {
    /// How many were changed.
    pub changed: u64,
    /// How many were gone, or no longer as the filter says, when their turn came.
    pub gone: u64,
    /// How many were left alone, because another session held their conversation group for too long.
    pub held: u64,
    /// Whether there are more than one call changes: the next call takes those.
    pub has_more: bool,
}

/// What became of a release from quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Released {
    /// The conversation group.
    pub group: GroupId,
    /// Whether it was quarantined, or paused after a rollback; if not, nothing has changed.
    pub was_quarantined: bool,
}

/// What became of a purge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Purged {
    /// How many messages were removed.
    pub messages: u64,
    /// How many conversations were ended, because an EndDialog or an Error was among their messages.
    pub ended: u64,
    /// How many messages stay, of those that were read: behind others of their conversation, in groups that other sessions hold, or
    /// because they would end a conversation that has others.
    pub left: u64,
    /// Whether there may be more messages than were read: the next call goes on.
    pub has_more: bool,
}

/// What a purge removes now.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Purgeable {
    /// The messages, at most [`MOST_MESSAGES`].
    pub messages: Vec<PeekedMessage>,
    /// How many stay, of those that were read: behind others of their conversation, quarantined, or because they would end a
    /// conversation that has others.
    pub left: u64,
    /// Whether there are more messages than were read.
    pub has_more: bool,
    /// Of these conversations every message is to be removed, also what was not read.
    whole: HashSet<ConversationHandle>,
}

impl Broker {
    /// Ends the sides of conversations that a filter chooses, one commit each: as `END CONVERSATION` in this form. It waits at
    /// most five seconds for a group that a session holds, and briefly for others once it has waited for half a minute. A side
    /// that has ended is left out, unless it is erased (WITH CLEANUP). At most [`MOST_CONVERSATIONS`] at a time.
    ///
    /// # Errors
    /// 8424, 60005 the form is not usable; else those of the store.
    pub async fn end_conversations(&self, filter: &ConversationFilter, form: EndForm) -> Result<Changed> {
        let takes_ended = form == EndForm::Cleanup;
        let (sides, has_more) = self.sides_to_change(filter, takes_ended, MOST_CONVERSATIONS).await?;
        let mut changed = Changed { has_more, ..Changed::default() };
        self.end_sides(&sides, filter.state, form, &mut changed).await?;
        Ok(changed)
    }

    /// The same for the sides of a preview, if they are still in that state. Its caller knows the number also if it gives the future
    /// up, but for the one that was under way.
    pub(crate) async fn end_sides(
        &self,
        sides: &[ConversationSide],
        state: Option<ConversationState>,
        form: EndForm,
        changed: &mut Changed,
    ) -> Result<()> {
        let end =
            |side: &ConversationSide| Verb::EndConversation { handle: side.conversation_handle, form: form.clone() };
        self.change_each(sides, state, end, changed).await
    }

    /// Changes the level of the sides that a filter chooses, one commit each. Only sides that can receive are changed.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn reprioritise_conversations(&self, filter: &ConversationFilter, level: Level) -> Result<Changed> {
        let (sides, has_more) = self.sides_to_change(filter, false, MOST_CONVERSATIONS).await?;
        let mut changed = Changed { has_more, ..Changed::default() };
        self.reprioritise_sides(&sides, level, &mut changed).await?;
        Ok(changed)
    }

    /// The same for the sides of a preview, as [`Broker::end_sides`].
    pub(crate) async fn reprioritise_sides(
        &self,
        sides: &[ConversationSide],
        level: Level,
        changed: &mut Changed,
    ) -> Result<()> {
        let verb =
            |side: &ConversationSide| Verb::Reprioritise { handle: side.conversation_handle, level: level.get() };
        self.change_each(sides, None, verb, changed).await
    }

    /// The oldest sides that a filter chooses, at most so many, those that have ended only if the change takes them; and whether
    /// there are more.
    pub(crate) async fn sides_to_change(
        &self,
        filter: &ConversationFilter,
        takes_ended: bool,
        most: u32,
    ) -> Result<(Vec<ConversationSide>, bool)> {
        let mut sides = self.sides(filter, takes_ended, most + 1).await?;
        let has_more = sides.len() > most as usize;
        sides.truncate(most as usize);
        Ok((sides, has_more))
    }

    async fn change_each(
        &self,
        sides: &[ConversationSide],
        state: Option<ConversationState>,
        verb: impl Fn(&ConversationSide) -> Verb,
        changed: &mut Changed,
    ) -> Result<()> {
        let mut held = HeldGroups::default();
        for side in sides {
            let group = side.conversation_group_id;
            let Some(wait) = held.wait_for(group) else {
                changed.held += 1;
                continue;
            };
            // In a transaction: a call that is given up may still happen on a server, once the lock is free.
            let tx = self.begin().await?;
            let Ok(done) = tokio::time::timeout(wait, tx.perform(verb(side))).await else {
                changed.held += 1;
                held.note(group, wait);
                continue;
            };
            let done = match done {
                // Its state has changed since it was found.
                Ok(Outcome::Ended(was)) if state.is_some_and(|state| state != was) => {
                    changed.gone += 1;
                    continue;
                }
                Ok(_) => tx.commit().await,
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => changed.changed += 1,
                Err(error) if GONE.contains(&error.code()) => changed.gone += 1,
                Err(error) if error.is_retryable() => changed.held += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Releases a conversation group from quarantine or from the pause of a retry policy: the group of that id, or the group
    /// of a conversation by its handle.
    ///
    /// # Errors
    /// 8436 no such group or conversation.
    pub async fn release(&self, id: uuid::Uuid) -> Result<Released> {
        let filter = ConversationFilter { id: Some(id), ..ConversationFilter::default() };
        let sides = self.conversations(&filter, 2).await?;
        let is_own = |side: &&ConversationSide| side.conversation_handle.0 == id;
        let group = sides.iter().find(is_own).map_or(GroupId(id), |side| side.conversation_group_id);
        let members = ConversationFilter { id: Some(group.0), ..ConversationFilter::default() };
        let members = self.conversations(&members, MOST_CONVERSATIONS).await?;
        let was_quarantined = members.iter().any(|side| side.is_quarantined);
        self.release_quarantine(group).await?;
        Ok(Released { group, was_quarantined })
    }

    /// The messages that [`Broker::purge`] removes now: those of the filter that no other message of their conversation stands
    /// before. At most [`MOST_MESSAGES`]; it also says how many stay, and whether there are more. [`Broker::purge_found`] removes just
    /// these.
    ///
    /// # Errors
    /// 60002 no such queue; 9617 the queue is off: nothing can be received from it.
    pub async fn purgeable(&self, queue: &str, filter: &MessageFilter) -> Result<Purgeable> {
        self.purgeable_at_once(queue, filter, MOST_MESSAGES).await
    }

    /// The same of at most so many; reads go on until a message is found that no other stands before.
    pub(crate) async fn purgeable_at_once(&self, queue: &str, filter: &MessageFilter, most: u32) -> Result<Purgeable> {
        let catalog = self.catalog();
        let found = catalog.queue(queue).ok_or_else(|| self.unknown(NameKind::Queue, queue))?;
        if !found.is_receive_enabled {
            return Err(Error::new(
                Code::QUEUE_DISABLED,
                format!(
                    "queue '{queue}' is off, and a purge receives the messages; turn it on (`{}`), or end its \
                     conversations WITH CLEANUP, which erases them with their messages",
                    shell_command("dialoq resume", queue, "")
                ),
            ));
        }
        let name = found.name.clone();
        let filter = MessageFilter { with_kept: false, ..filter.clone() };
        let is_everything = filter == MessageFilter { conversation: filter.conversation, ..MessageFilter::default() };
        let mut top = most;
        loop {
            let mut chosen = self.messages(Some(&name), &filter, None, top + 1, 0).await?;
            let mut has_more = chosen.len() > top as usize;
            chosen.truncate(top as usize);
            let total = chosen.len();
            // Those of quarantined groups are the last.
            let goes_on = has_more && chosen.last().is_some_and(|message| message.state == MessageState::Waiting);
            let mut chosen = by_conversation(chosen);
            chosen.retain(|_, messages| messages.iter().all(|message| message.state == MessageState::Waiting));
            let (first, whole) = match is_everything {
                true => (chosen.clone(), chosen.into_keys().collect()),
                false => self.leading(&name, chosen, READ_AT_ONCE).await?,
            };
            let mut messages: Vec<_> = first.into_values().flatten().collect();
            if messages.is_empty() && goes_on {
                top = top.saturating_mul(READ_ON);
                continue;
            }
            let left = (total - messages.len()) as u64;
            has_more |= messages.len() > most as usize;
            messages.truncate(most as usize);
            return Ok(Purgeable { messages, left, has_more, whole });
        }
    }

    /// Of chosen messages of conversations those that no other message of their conversation stands before. An EndDialog or an Error
    /// stays if a message does, and what stands behind it: its removal ends the conversation, and that would remove the rest. Also
    /// the conversations that have nothing but chosen messages.
    async fn leading(
        &self,
        queue: &str,
        mut chosen: MessagesOfConversations,
        read_at_once: usize,
    ) -> Result<(MessagesOfConversations, HashSet<ConversationHandle>)> {
        let (mut leading, mut all_chosen) = (MessagesOfConversations::new(), HashSet::new());
        // Each round decides at least one conversation: one message more than were chosen of it are enough.
        while !chosen.is_empty() {
            let asked: Vec<_> = chosen.keys().take(READ_TOGETHER).copied().collect();
            let top = asked.iter().map(|handle| chosen[handle].len() + 1).sum::<usize>().max(read_at_once);
            let handles = read::list(asked.iter().map(|handle| &handle.0));
            let all = MessageFilter::default();
            let found = self.messages_of(Some(handles), Some(queue), &all, None, top as u32, 0).await?;
            let cut = (found.len() == top).then(|| found.last().map(|message| message.conversation_handle)).flatten();
            let mut found = by_conversation(found);
            for handle in asked {
                let messages = &chosen[&handle];
                let mut whole = found.remove(&handle).unwrap_or_default();
                let ids: HashSet<_> = messages.iter().map(|message| message.message_id).collect();
                let run = whole.iter().take_while(|message| ids.contains(&message.message_id)).count();
                let is_whole = cut.is_none() || !whole.is_empty() && cut != Some(handle);
                let goes_on = run < whole.len();
                if is_whole || goes_on || run == messages.len() && !messages.iter().any(is_last) {
                    let stays = !whole[run..].iter().all(is_last);
                    whole.truncate(run);
                    if stays {
                        whole.truncate(whole.iter().position(is_last).unwrap_or(run));
                    } else if is_whole && !goes_on {
                        all_chosen.insert(handle);
                    }
                    leading.insert(handle, whole);
                    chosen.remove(&handle);
                }
            }
        }
        Ok((leading, all_chosen))
    }

    /// Removes messages of a queue: they are received and dropped. Their conversations go on, and no other side is notified; only
    /// a conversation whose EndDialog or Error was removed is ended. A message that stands behind one that the filter does not choose
    /// stays, as do an Error before such a one, those of quarantined groups, and of groups that other sessions hold. At most
    /// [`MOST_MESSAGES`] at a time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
    /// # use dialoq::{Act, status::MessageFilter};
    /// # let broker = dialoq::testing::TestBroker::in_memory().await?;
    /// broker.execute("CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])").await?;
    /// let dialog = broker.begin_dialog("s", "s").await?;
    /// broker.send(dialog, "DEFAULT", "x").await?;
    /// assert_eq!(broker.purge("q", &MessageFilter::default()).await?.messages, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// 60002 no such queue; 9617 the queue is off: nothing can be received from it, so turn it on, or end the conversations
    /// with [`Broker::end_conversations`].
    pub async fn purge(&self, queue: &str, filter: &MessageFilter) -> Result<Purged> {
        let mut purged = Purged::default();
        let found = self.purgeable_at_once(queue, filter, MOST_MESSAGES).await?;
        self.purge_found_counting(queue, found, &mut purged).await?;
        Ok(purged)
    }

    /// As [`Broker::purge`], but only of the messages that [`Broker::purgeable`] has found in this queue: those of a preview. What
    /// came after it stays.
    ///
    /// # Errors
    /// As [`Broker::purge`]; then messages of conversations before the failure are removed.
    pub async fn purge_found(&self, queue: &str, found: Purgeable) -> Result<Purged> {
        let mut purged = Purged::default();
        self.purge_found_counting(queue, found, &mut purged).await?;
        Ok(purged)
    }

    /// The same for a caller that wants the number although it gives the call up; one commit has the messages of up to fifty
    /// conversations.
    pub(crate) async fn purge_found_counting(&self, queue: &str, found: Purgeable, purged: &mut Purged) -> Result<()> {
        (purged.left, purged.has_more) = (found.left, found.has_more);
        let conversations: Vec<_> = by_conversation(found.messages).into_iter().collect();
        let mut passed = Vec::new();
        for some in conversations.chunks(PURGED_AT_ONCE) {
            let tx = self.begin().await?;
            let mut done = Purged::default();
            for (handle, messages) in some {
                let (number, has_last) =
                    receive_chosen(&tx, queue, *handle, messages, found.whole.contains(handle)).await?;
                if number < messages.len() {
                    passed.push((*handle, messages));
                }
                done.messages += number as u64;
                if has_last {
                    tx.end(*handle).await?;
                    done.ended += 1;
                }
            }
            tx.commit().await?;
            purged.messages += done.messages;
            purged.ended += done.ended;
        }
        for (handle, messages) in passed {
            purged.left += self.still_waiting(queue, handle, messages).await?;
        }
        Ok(())
    }

    /// How many of these messages of a conversation are still in the queue: another receiver may have taken some.
    async fn still_waiting(&self, queue: &str, handle: ConversationHandle, of: &[PeekedMessage]) -> Result<u64> {
        let filter = MessageFilter { conversation: Some(handle), ..MessageFilter::default() };
        let ids: HashSet<_> = of.iter().map(|message| message.message_id).collect();
        let waiting = self.messages(Some(queue), &filter, None, MOST_MESSAGES, 0).await?;
        Ok(waiting.iter().filter(|message| ids.contains(&message.message_id)).count() as u64)
    }
}

/// Receives messages of a conversation that were chosen, as far as they are the first ones: how many, and whether an EndDialog or an
/// Error was among them, behind which nothing is left. Since they were chosen another receiver may have taken some of them, and an
/// Error or a timer may have come before them: a RECEIVE of as many gave others in their place, and they were lost.
async fn receive_chosen(
    tx: &Tx,
    queue: &str,
    handle: ConversationHandle,
    chosen: &[PeekedMessage],
    takes_all: bool,
) -> Result<(usize, bool)> {
    let ids: HashSet<_> = chosen.iter().map(|message| message.message_id).collect();
    let receive = async |top: usize| match tx.receive(queue).conversation(handle).top(top as u64).await {
        Ok(batch) => Ok(batch),
        // It has ended meanwhile.
        Err(error) if error.code() == Code::CONVERSATION_NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    };
    let ends = |message: &Message| message.is_end_dialog() || message.is_error();
    let mut top = chosen.len();
    while top > 0 {
        tx.savepoint(BEFORE_RECEIVE).await?;
        let Some(batch) = receive(top).await? else { return Ok((0, false)) };
        let run = batch.iter().take_while(|message| ids.contains(&message.message_id)).count();
        if run == batch.len() {
            let Some(last) = batch.iter().position(ends) else { return Ok((run, false)) };
            // The end of the conversation removes what is left of it.
            let (mut received, mut may_end) = (run, true);
            while may_end && let Some(rest) = receive(if takes_all { 1000 } else { 2 }).await? {
                may_end = takes_all || rest.iter().all(ends);
                received += if takes_all { rest.len() } else { 0 };
            }
            if may_end {
                return Ok((received, true));
            }
            top = last;
        } else {
            top = run;
        }
        tx.rollback_to(BEFORE_RECEIVE).await?;
    }
    Ok((0, false))
}

/// Whether the removal of this message ends its conversation.
fn is_last(message: &PeekedMessage) -> bool {
    [system::END_DIALOG, system::ERROR].contains(&&*message.message_type_name)
}

type MessagesOfConversations = BTreeMap<ConversationHandle, Vec<PeekedMessage>>;

fn by_conversation(messages: Vec<PeekedMessage>) -> MessagesOfConversations {
    let mut by_conversation = MessagesOfConversations::new();
    for message in messages {
        by_conversation.entry(message.conversation_handle).or_default().push(message);
    }
    by_conversation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestBroker;

    async fn broker() -> TestBroker {
        let broker = TestBroker::in_memory().await.unwrap();
        let definitions = "CREATE MESSAGE TYPE keep; CREATE CONTRACT c ([DEFAULT] SENT BY ANY, keep SENT BY ANY);
            CREATE QUEUE asks; CREATE QUEUE work; CREATE SERVICE client ON QUEUE asks;
            CREATE SERVICE worker ON QUEUE work (c)";
        broker.execute(definitions).await.unwrap();
        broker
    }

    async fn dialog(broker: &Broker, message_types: &[&str]) -> ConversationHandle {
        let dialog = broker.begin_dialog("client", "worker").contract("c").await.unwrap();
        for message_type in message_types {
            broker.send(dialog, *message_type, "x").await.unwrap();
        }
        dialog
    }

    async fn received(broker: &Broker, top: u64) -> Vec<String> {
        let batch = broker.receive("work").top(top).await.unwrap();
        batch.iter().flatten().map(|message| message.message_type_name.to_string()).collect()
    }

    #[tokio::test]
    async fn a_purge_finds_what_stands_first_in_however_many_reads() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        // Some have more messages behind the chosen ones than a read gives.
        let conversations: [&[&str]; 4] = [
            &["DEFAULT", "keep", "keep", "keep", "keep", "keep", "keep", "keep", "DEFAULT"],
            &["keep", "DEFAULT", "keep", "keep", "keep", "keep"],
            &["DEFAULT", "DEFAULT", "DEFAULT"],
            &["DEFAULT", "DEFAULT", "keep"],
        ];
        for message_types in conversations {
            dialog(&broker, message_types).await;
        }
        let filter = MessageFilter { message_type: Some("DEFAULT".to_owned()), ..MessageFilter::default() };
        let chosen = broker.messages(Some("work"), &filter, None, MOST_MESSAGES, 0).await.unwrap();
        assert_eq!(chosen.len(), 8);
        for read_at_once in [0, 9, 16, 17, READ_AT_ONCE] {
            let chosen = by_conversation(chosen.clone());
            let (leading, _) = broker.leading("work", chosen, read_at_once).await.unwrap();
            let mut numbers: Vec<usize> = leading.values().map(Vec::len).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, [0, 1, 2, 3], "{read_at_once}");
        }
        let found = broker.purgeable("work", &filter).await.unwrap();
        assert_eq!((found.messages.len(), found.left, found.has_more), (6, 2, false));
    }

    #[tokio::test]
    async fn a_purge_reads_on_past_what_stands_behind_others_and_says_if_there_is_more() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        dialog(&broker, &["keep", "DEFAULT", "DEFAULT", "DEFAULT", "DEFAULT", "DEFAULT"]).await;
        let second = dialog(&broker, &["DEFAULT"]).await;
        let filter = MessageFilter { message_type: Some("DEFAULT".to_owned()), ..MessageFilter::default() };
        let found = broker.purgeable_at_once("work", &filter, 2).await.unwrap();
        let sides = broker.conversations(&ConversationFilter::default(), 9).await.unwrap();
        let id = |handle| sides.iter().find(|side| side.conversation_handle == handle).unwrap().conversation_id;
        assert_eq!(
            found.messages.iter().map(|message| id(message.conversation_handle)).collect::<Vec<_>>(),
            [id(second)]
        );
        assert_eq!((found.left, found.has_more), (5, false));
        let found = broker.purgeable_at_once("work", &MessageFilter::default(), 4).await.unwrap();
        assert_eq!((found.messages.len(), found.left, found.has_more), (4, 0, true));
        let found = broker.purgeable_at_once("work", &MessageFilter::default(), 7).await.unwrap();
        assert_eq!((found.messages.len(), found.left, found.has_more), (7, 0, false));
    }

    #[tokio::test]
    async fn a_purge_removes_no_message_that_came_into_the_place_of_a_chosen_one() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        let only = MessageFilter { message_type: Some("DEFAULT".into()), ..MessageFilter::default() };
        dialog(&broker, &["DEFAULT", "DEFAULT", "keep"]).await;
        let found = broker.purgeable_at_once("work", &only, MOST_MESSAGES).await.unwrap();
        assert_eq!((found.messages.len(), found.left), (2, 0));
        // Another receiver.
        assert_eq!(received(&broker, 1).await, ["DEFAULT"]);
        let mut purged = Purged::default();
        broker.purge_found_counting("work", found, &mut purged).await.unwrap();
        assert_eq!((purged.messages, purged.ended, purged.left), (1, 0, 0), "{purged:?}");
        assert_eq!(received(&broker, 9).await, ["keep"]);

        let broken = dialog(&broker, &["DEFAULT"]).await;
        let found = broker.purgeable_at_once("work", &only, MOST_MESSAGES).await.unwrap();
        assert_eq!(found.messages.len(), 1);
        broker.end_with_error(broken, 1, "it is too late").await.unwrap();
        let mut purged = Purged::default();
        broker.purge_found_counting("work", found, &mut purged).await.unwrap();
        assert_eq!((purged.messages, purged.ended, purged.left), (0, 0, 1), "{purged:?}");
        assert_eq!(received(&broker, 9).await, [system::ERROR, "DEFAULT"]);
    }

    /// The purge of an Error ended its conversation, and what stood behind it was gone.
    #[tokio::test]
    async fn a_purge_ends_no_conversation_that_has_messages_left() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        let of_type = |name: &str| MessageFilter { message_type: Some(name.into()), ..MessageFilter::default() };
        let purge = async |filter: MessageFilter, most| {
            let found = broker.purgeable_at_once("work", &filter, most).await.unwrap();
            let (chosen, mut purged) = (found.messages.len() as u64, Purged::default());
            broker.purge_found_counting("work", found, &mut purged).await.unwrap();
            (chosen, purged.messages, purged.ended, purged.left)
        };
        let broken = dialog(&broker, &["DEFAULT", "keep"]).await;
        broker.end_with_error(broken, 1, "why").await.unwrap();
        assert_eq!(purge(of_type(system::ERROR), 9).await, (0, 0, 0, 1));
        // It is chosen when it stands alone, and another one has come behind it when its turn comes.
        let found = broker.purgeable_at_once("work", &MessageFilter::default(), 9).await.unwrap();
        let only_error = Purgeable { messages: found.messages[..1].to_vec(), ..Purgeable::default() };
        let mut purged = Purged::default();
        broker.purge_found_counting("work", only_error, &mut purged).await.unwrap();
        assert_eq!((purged.messages, purged.ended, purged.left), (0, 0, 1));
        assert_eq!(received(&broker, 9).await, [system::ERROR, "DEFAULT", "keep"]);

        // All are meant, and the read gave only the first ones: the end would remove the others anyway.
        let broken = dialog(&broker, &["DEFAULT", "DEFAULT", "keep"]).await;
        broker.end_with_error(broken, 1, "why").await.unwrap();
        assert_eq!(purge(MessageFilter::default(), 2).await, (2, 4, 1, 0));
        let broken = dialog(&broker, &["DEFAULT", "DEFAULT", "keep"]).await;
        broker.end_with_error(broken, 1, "why").await.unwrap();
        let of_service = MessageFilter { service: Some("worker".into()), ..MessageFilter::default() };
        assert_eq!(purge(of_service, 2).await, (2, 4, 1, 0), "the filter means all of it");
        // Behind it stands only what says the same.
        let both = dialog(&broker, &["DEFAULT"]).await;
        broker.end(both).await.unwrap();
        assert_eq!(received(&broker, 1).await, ["DEFAULT"]);
        broker.execute("ALTER DATABASE CURRENT SET ERROR_BROKER_CONVERSATIONS").await.unwrap();
        assert_eq!(purge(of_type(system::ERROR), 9).await, (1, 1, 1, 0));
        assert!(received(&broker, 9).await.is_empty());
    }

    /// Five seconds for each of its conversations were 83 minutes for a thousand.
    #[tokio::test(start_paused = true)]
    async fn a_group_that_a_session_holds_is_waited_for_once() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        for _ in 0..8 {
            dialog(&broker, &["DEFAULT"]).await;
        }
        let workers = ConversationFilter { service: Some("worker".into()), ..ConversationFilter::default() };
        let sides = broker.conversations(&workers, 9).await.unwrap();
        let (held, others) = (sides[0].conversation_group_id, &sides[1..7]);
        for side in others {
            broker.move_conversation(side.conversation_handle, held).await.unwrap();
        }
        let sides = broker.conversations(&workers, 9).await.unwrap();
        let tx = broker.begin().await.unwrap();
        tx.send(sides[0].conversation_handle, "DEFAULT", "x").await.unwrap();
        let (begun, mut done) = (tokio::time::Instant::now(), Changed::default());
        broker.end_sides(&sides, None, EndForm::Plain, &mut done).await.unwrap();
        // The clock of the test moves when this thread waits for another, so that the free one may look held.
        assert!(done.held >= 7 && done.changed + done.held == 8, "{done:?}");
        assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn an_end_of_many_passes_over_sides_that_have_ended_and_those_that_have_changed_since_they_were_found() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        for _ in 0..3 {
            dialog(&broker, &["DEFAULT"]).await;
        }
        let of = |service: &str, id| ConversationFilter { service: Some(service.into()), id, ..Default::default() };
        let end_client_of = async |side: &ConversationSide| {
            let clients = broker.conversations(&of("client", Some(side.conversation_id.0)), 1).await.unwrap();
            broker.end(clients[0].conversation_handle).await.unwrap();
        };
        let workers = of("worker", None);
        let sides = broker.conversations(&workers, 9).await.unwrap();
        broker.end(sides[0].conversation_handle).await.unwrap();
        end_client_of(&sides[0]).await;
        let conversing = ConversationFilter { state: Some(ConversationState::Conversing), ..workers.clone() };
        let found = broker.conversations(&conversing, 9).await.unwrap();
        assert_eq!(found.len(), 2);
        end_client_of(&found[0]).await;
        let mut done = Changed::default();
        broker.end_sides(&found, conversing.state, EndForm::Plain, &mut done).await.unwrap();
        assert_eq!(done, Changed { changed: 1, gone: 1, ..Changed::default() });
        // One was closed before, and one has just ended.
        let done = broker.end_conversations(&workers, EndForm::Plain).await.unwrap();
        assert_eq!(done, Changed { changed: 1, ..Changed::default() });
        // Those that have ended stand before one that has not.
        let young = dialog(&broker, &["DEFAULT"]).await;
        let (sides, has_more) = broker.sides_to_change(&ConversationFilter::default(), false, 1).await.unwrap();
        assert!(sides.len() == 1 && has_more, "{sides:?}");
        let all = broker.conversations(&ConversationFilter::default(), 99).await.unwrap();
        let (sides, has_more) = broker.sides_to_change(&of("worker", None), false, 1).await.unwrap();
        let own = all.iter().find(|side| side.conversation_handle == young).unwrap();
        assert_eq!(sides.iter().map(|side| side.conversation_id).collect::<Vec<_>>(), [own.conversation_id]);
        assert!(!has_more);
        let mut done = Changed::default();
        broker.end_sides(&found, None, EndForm::Plain, &mut done).await.unwrap();
        assert_eq!(done, Changed { gone: 2, ..Changed::default() });
    }
}
