//! Calls of many callers at once: one batch on a server, one group commit or few in the embedded store.
//!
//! Where the order of the callers is free, the store's is found out and given to the core, and everything else must be the
//! same. These orders are free:
//!
//! - SENDs of one batch on different conversations: a server may deliver the plain ones first. Those of one conversation keep
//!   the order of their callers.
//! - RECEIVEs of one batch share out the groups of the best level, so that TOP callers of one group need not follow each other;
//!   without TOP each takes what the next RECEIVE would. After a batch in which every caller got messages of one level, the next
//!   batch may pass over what is older; and so may one of several callers for a group that was received from while a sender was open:
//!   DIFFERENCE(oldest-in-batches).

use crate::run::{Run, same, shown};
use crate::steps::{Form, Op, QUEUES, SESSIONS};
use dialoq::act::Perform;
use dialoq::internals::core::Effects;
use dialoq::protocol::{Message, Outcome, ReceiveFrom, Verb};
use dialoq::{ConversationHandle, Error, GroupId};
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::task::Poll;

type Done = Result<Outcome, Error>;

impl Run {
    /// Several verbs in one call. What a server shows a transaction of its own work before the commit, and the core after it,
    /// is left out: DIFFERENCE(reads-committed).
    pub(crate) async fn unit(&mut self, ops: &[Op]) -> Result<(), String> {
        let (mut model_unit, mut unit, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut done_with, mut has_sent, mut may_have_emptied) = (Vec::new(), false, false);
        for op in ops {
            let named = self.named(op);
            if self.store().is_server() {
                let receives = matches!(op, Op::Receive { .. } | Op::GetGroup { .. });
                if receives && has_sent || named.iter().any(|handle| done_with.contains(handle)) {
                    continue;
                }
                // Conversations of a group are received in the order of their handles, and a server names targets by chance.
                if let Op::Move { conversation, .. } = op
                    && !self.begun.contains_key(&self.known.handle(*conversation))
                {
                    continue;
                }
                // A group whose only conversation has ended or moved is new at once, and may be another service's.
                if may_have_emptied && matches!(op, Op::Dialog { group: Some(_), .. }) {
                    continue;
                }
                may_have_emptied |= matches!(op, Op::End { .. } | Op::Move { .. });
                // A new level or group shows at once, too.
                has_sent |= matches!(op, Op::Reprioritise { .. } | Op::Move { .. } | Op::Release { .. });
                if matches!(op, Op::Send { .. } | Op::SendEach(_) | Op::End { .. }) {
                    has_sent = true;
                    done_with.extend(self.both_sides(&named));
                }
            }
            let number = self.ledger.next_number();
            model_unit.push(self.model_known.verb(op, number));
            unit.push(self.known.verb(op, number));
            numbers.push(number);
        }
        let now = self.now();
        let model = match self.model.submit(model_unit, now).transpose() {
            // It would wait for an open transaction, and this run has no other session to end that.
            None => return Ok(()),
            Some(model) => model,
        };
        let store = self.broker.submit(unit.clone()).await;
        match (model, store) {
            (Ok(model), Ok(store)) => {
                for (((verb, number), model), store) in unit.iter().zip(numbers).zip(model).zip(store) {
                    if let Outcome::Began { handle, group, .. } = &store {
                        self.begun.insert(*handle, SESSIONS);
                        self.begun_in.insert(*handle, *group);
                    }
                    self.agree(verb, number, &Ok(model), &Ok(store)).map_err(|why| format!("in a unit: {why}"))?;
                }
                Ok(())
            }
            (model, store) => {
                let whole = |outcome: Result<Vec<Outcome>, Error>| match outcome {
                    Ok(outcomes) => format!("{outcomes:?}"),
                    Err(error) => format!("error {}", error.code()),
                };
                same(&whole(model), &whole(store)).map_err(|why| format!("the unit {unit:?}: {why}"))
            }
        }
    }

    /// All verbs at once, in the order in which their callers come.
    async fn at_once(&self, verbs: &[Verb]) -> Vec<Done> {
        if self.store().is_server() {
            self.gathering.wait_for(verbs.len());
        }
        let mut works: Vec<_> = verbs.iter().map(|verb| Some(self.broker.perform(verb.clone()))).collect();
        let mut done: Vec<Option<Done>> = verbs.iter().map(|_| None).collect();
        poll_fn(|context| {
            for (work, done) in works.iter_mut().zip(&mut done) {
                if let Some(future) = work
                    && let Poll::Ready(outcome) = future.as_mut().poll(context)
                {
                    *done = Some(outcome);
                    *work = None;
                }
            }
            if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        done.into_iter().flatten().collect()
    }

    /// These conversations and their peers, as far as this side has seen them: what breaks one breaks the other.
    pub(crate) fn both_sides(&self, handles: &[ConversationHandle]) -> Vec<ConversationHandle> {
        let conversation = |handle: &ConversationHandle| {
            let place = self.known.handles.iter().position(|known| known == handle)?;
            let handle = self.model_known.handles.get(place)?;
            Some(self.model.endpoints().find(|row| row.handle == *handle)?.conversation_id)
        };
        let meant: Vec<_> = handles.iter().filter_map(conversation).collect();
        let is_meant = |handle: &&ConversationHandle| {
            handles.contains(handle) || conversation(handle).is_some_and(|id| meant.contains(&id))
        };
        self.known.handles.iter().filter(is_meant).copied().collect()
    }

    /// The outcome that the core would give now, without its effects. `None` if it would wait.
    fn probe(&mut self, verb: Verb) -> Option<Done> {
        let now = self.now();
        let mut session = self.model.core.begin();
        let outcome = self.model.execute(&mut session, verb, now).transpose();
        self.model.core.abandon(session, &mut Effects::default());
        outcome
    }

    /// Does it in the core.
    fn submit(&mut self, verb: Verb) -> Result<Done, String> {
        let now = self.now();
        match self.model.submit(vec![verb], now).transpose() {
            Some(outcome) => Ok(outcome.map(|mut outcomes| outcomes.remove(0))),
            None => Err("the core would wait for a group that the store did not wait for".to_owned()),
        }
    }

    /// Both sides say the same, and learn it.
    fn agree(&mut self, verb: &Verb, number: u64, model: &Done, store: &Done) -> Result<(), String> {
        same(&shown(&mut self.model_names, model), &shown(&mut self.names, store))
            .map_err(|why| format!("{verb:?}: {why}"))?;
        self.model_known.learn(model);
        self.known.learn(store);
        self.enter(SESSIONS, verb, number, store)
    }

    pub(crate) async fn sends(&mut self, sends: &[(usize, usize)]) -> Result<(), String> {
        let (mut model_verbs, mut verbs, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let mut sides = HashMap::new();
        for (place, message_type) in sends {
            let op = Op::Send { first: *place, second: None, message_type: *message_type };
            let number = self.ledger.next_number();
            let (model_verb, verb) = (self.model_known.verb(&op, number), self.known.verb(&op, number));
            // What one side sends may break the conversation for the other, and no outcome shows which of them was first.
            let Verb::Send { handles, .. } = &model_verb else { unreachable!("it is a SEND") };
            let row = self.model.endpoints().find(|row| row.handle == handles[0]);
            let side = row.map(|row| (row.conversation_id, row.is_initiator));
            if side.is_some_and(|(id, is_initiator)| *sides.entry(id).or_insert(is_initiator) != is_initiator) {
                continue;
            }
            if self.probe(model_verb.clone()).is_some() {
                model_verbs.push(model_verb);
                verbs.push(verb);
                numbers.push(number);
            }
        }
        if verbs.len() < 2 {
            return Ok(());
        }
        let before = self.orders_above(0).await?.keys().next_back().copied().unwrap_or_default();
        let outcomes = self.at_once(&verbs).await;
        let mut arrived: HashMap<Key, i64> = HashMap::new();
        for (order, key) in self.orders_above(before).await? {
            arrived.entry(key).or_insert(order);
        }
        // A SEND that put nothing into a queue follows the one before it on its conversation.
        let mut last: HashMap<String, i64> = HashMap::new();
        let mut order: Vec<(i64, usize)> = Vec::new();
        for (place, (verb, number)) in verbs.iter().zip(&numbers).enumerate() {
            let Verb::Send { handles, .. } = verb else { unreachable!("it is a SEND") };
            let handle = handles[0].to_string();
            // The Error on a conversation is not of a SEND that was refused.
            let breaks = || arrived.get(&Key::Error(handle.clone())).filter(|_| outcomes[place].is_ok());
            let found = arrived.get(&Key::Body(*number)).or_else(breaks);
            let at = found.copied().unwrap_or_default().max(last.get(&handle).copied().unwrap_or_default());
            last.insert(handle, at);
            order.push((at, place));
        }
        order.sort_unstable();
        for (_, place) in order {
            let model = self.submit(model_verbs[place].clone())?;
            self.agree(&verbs[place], numbers[place], &model, &outcomes[place])
                .map_err(|why| format!("of {} SENDs at once that of caller {place}: {why}", verbs.len()))?;
        }
        Ok(())
    }

    pub(crate) async fn begins(&mut self, begins: &[(usize, usize)]) -> Result<(), String> {
        let ops: Vec<Op> = begins
            .iter()
            .map(|(from, to)| Op::Dialog { from: *from, to: *to, related: None, group: None, lifetime: None })
            .collect();
        let model_verbs: Vec<Verb> = ops.iter().map(|op| self.model_known.verb(op, 0)).collect();
        let verbs: Vec<Verb> = ops.iter().map(|op| self.known.verb(op, 0)).collect();
        let outcomes = self.at_once(&verbs).await;
        for (place, outcome) in outcomes.iter().enumerate() {
            let model = self.submit(model_verbs[place].clone())?;
            self.agree(&verbs[place], 0, &model, outcome)
                .map_err(|why| format!("of {} BEGINs at once that of caller {place}: {why}", verbs.len()))?;
            if let Ok(Outcome::Began { handle, group, .. }) = outcome {
                self.begun.insert(*handle, SESSIONS);
                self.begun_in.insert(*handle, *group);
            }
        }
        Ok(())
    }

    pub(crate) async fn ends(&mut self, ends: &[usize]) -> Result<(), String> {
        let (mut model_verbs, mut verbs, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        for place in ends {
            let op = Op::End { conversation: *place, form: Form::Plain };
            let (model_verb, verb) = (self.model_known.verb(&op, 0), self.known.verb(&op, 0));
            // No outcome shows which of the two sides was first.
            let handle = self.known.handle(*place);
            if self.both_sides(&[handle]).iter().any(|side| handles.contains(side)) {
                continue;
            }
            if self.probe(model_verb.clone()).is_some() {
                model_verbs.push(model_verb);
                verbs.push(verb);
                handles.push(handle);
            }
        }
        if verbs.len() < 2 {
            return Ok(());
        }
        // The conversations of both sides, some of which this side has not seen.
        let failed = |error: Error| format!("{error:?}");
        let endpoints =
            format!("SELECT conversation_handle, conversation_id FROM {}", self.store().view("conversation_endpoints"));
        let mut conversations = HashMap::new();
        for row in &self.broker.query(endpoints, ()).await.map_err(failed)?.rows {
            let of = |column| row.get::<String>(column).map(|id| id.to_lowercase()).map_err(failed);
            conversations.insert(of("conversation_handle")?, of("conversation_id")?);
        }
        let before = self.orders_above(0).await?.keys().next_back().copied().unwrap_or_default();
        let outcomes = self.at_once(&verbs).await;
        let mut arrived = HashMap::new();
        for (order, key) in self.orders_above(before).await? {
            if let Key::Error(handle) = key
                && let Some(conversation) = conversations.get(&handle.to_lowercase())
            {
                arrived.insert(conversation.clone(), order);
            }
        }
        let at =
            |place: &usize| conversations.get(&handles[*place].to_string()).and_then(|id| arrived.get(id)).copied();
        let mut order: Vec<usize> = (0..verbs.len()).collect();
        order.sort_by_key(|place| at(place).unwrap_or_default());
        for place in order {
            let model = self.submit(model_verbs[place].clone())?;
            self.agree(&verbs[place], 0, &model, &outcomes[place])
                .map_err(|why| format!("of {} ENDs at once that of caller {place}: {why}", verbs.len()))?;
        }
        Ok(())
    }

    /// What waits in queues from that number on: what was sent, and errors at the conversations they came to.
    async fn orders_above(&self, order: i64) -> Result<BTreeMap<i64, Key>, String> {
        let text = self.store().sql(&format!(
            "SELECT queuing_order, conversation_handle, message_type_name, message_body FROM {} \
             WHERE status = 1 AND queuing_order > ?1",
            self.store().queue_messages()
        ));
        let failed = |error: Error| format!("{error:?}");
        let mut found = BTreeMap::new();
        for row in &self.broker.query(text, (order,)).await.map_err(failed)?.rows {
            let body = row.get::<Option<Vec<u8>>>("message_body").map_err(failed)?.unwrap_or_default();
            let key = match String::from_utf8_lossy(&body).parse() {
                Ok(number) => Key::Body(number),
                Err(_) => Key::Error(row.get::<String>("conversation_handle").map_err(failed)?),
            };
            found.insert(row.get::<i64>("queuing_order").map_err(failed)?, key);
        }
        Ok(found)
    }

    pub(crate) async fn receives(&mut self, queue: usize, tops: &[Option<u8>]) -> Result<(), String> {
        let receive = |top: Option<u64>, from| Verb::Receive { queue: QUEUES[queue].into(), top, from };
        let tops: Vec<Option<u64>> = tops.iter().map(|top| top.map(u64::from)).collect();
        let verbs: Vec<Verb> = tops.iter().map(|top| receive(*top, ReceiveFrom::Any)).collect();
        let outcomes = self.at_once(&verbs).await;
        let had_trail = std::mem::replace(&mut self.has_trail[queue], keeps_trail(&outcomes))
            || verbs.len() > 1 && !self.received_beside_sender.is_empty();
        let is_in_order = !self.store().is_server() || !had_trail && tops.iter().all(Option::is_none);
        if is_in_order || outcomes.iter().any(Result::is_err) {
            for (place, (verb, outcome)) in verbs.iter().zip(&outcomes).enumerate() {
                let model = self.submit(verb.clone())?;
                self.agree(verb, 0, &model, outcome)
                    .map_err(|why| format!("of {} RECEIVEs at once that of caller {place}: {why}", verbs.len()))?;
            }
            return Ok(());
        }
        let best = self.probe(receive(None, ReceiveFrom::Any)).and_then(|best| group(&best));
        let mut given: Vec<GroupId> = Vec::new();
        let mut lowest = 10;
        let mut left: Vec<usize> = (0..verbs.len()).filter(|place| group(&outcomes[*place]).is_some()).collect();
        while !left.is_empty() {
            let before = left.len();
            for place in std::mem::take(&mut left) {
                match self.group_that_gives(&outcomes[place], tops[place], queue) {
                    None => left.push(place),
                    Some(found) => {
                        let model = self.submit(receive(tops[place], ReceiveFrom::Group(found)))?;
                        self.agree(&verbs[place], 0, &model, &outcomes[place])?;
                        given.push(found);
                        if let Ok(Outcome::Received(messages)) = &outcomes[place] {
                            lowest = messages.iter().map(|message| message.priority).fold(lowest, u8::min);
                        }
                    }
                }
            }
            if left.len() == before {
                let shown = shown(&mut self.names.clone(), &outcomes[left[0]]);
                return Err(format!(
                    "of {} RECEIVEs at once, {tops:?}, no group of the core gives\n  {shown}",
                    verbs.len()
                ));
            }
        }
        let has_nothing = |place: &usize| tops[*place] != Some(0) && group(&outcomes[*place]).is_none();
        if (0..verbs.len()).any(|place| has_nothing(&place))
            && let Some(left) = self.probe(receive(None, ReceiveFrom::Any)).filter(|left| group(left).is_some())
        {
            let left = shown(&mut self.model_names.clone(), &left);
            return Err(format!(
                "of {} RECEIVEs at once, {tops:?}, one came back empty; the core still has\n  {left}",
                verbs.len()
            ));
        }
        if let Some(best) = best.filter(|best| !had_trail && !given.is_empty() && !given.contains(best)) {
            return Err(format!("of {} RECEIVEs at once, {tops:?}, none took of the best group {best}", verbs.len()));
        }
        let above = ReceiveFrom::Levels { lowest: lowest + 1, highest: 10 };
        if lowest < 10
            && !given.is_empty()
            && let Some(better) = self.probe(receive(None, above)).and_then(|better| group(&better))
            && !given.contains(&better)
        {
            return Err(format!(
                "RECEIVEs at once took of level {lowest} and passed over {better}, which is of a better one"
            ));
        }
        Ok(())
    }

    /// The core's group that gives just these messages now.
    fn group_that_gives(&mut self, outcome: &Done, top: Option<u64>, queue: usize) -> Option<GroupId> {
        let wanted = shown(&mut self.names.clone(), outcome);
        let waiting: Vec<u64> = self.model.messages().map(|row| row.endpoint_id).collect();
        let mut groups: Vec<GroupId> =
            self.model.endpoints().filter(|row| waiting.contains(&row.endpoint_id)).map(|row| row.group).collect();
        groups.sort_unstable_by_key(|group| group.0);
        groups.dedup();
        groups.into_iter().find(|group| {
            let verb = Verb::Receive { queue: QUEUES[queue].into(), top, from: ReceiveFrom::Group(*group) };
            self.probe(verb).is_some_and(|model| shown(&mut self.model_names.clone(), &model) == wanted)
        })
    }
}

/// Refused because the conversation has ended, or is gone: on a server it goes when it is ended, in the core with the commit.
pub(crate) fn is_over(outcome: &Done) -> bool {
    outcome.as_ref().is_err_and(|error| [8426, 8429, 8458].contains(&error.code().0))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Body(u64),
    Error(String),
}

fn messages(outcome: &Done) -> &[Message] {
    match outcome {
        Ok(Outcome::Received(messages)) => messages,
        _ => &[],
    }
}

/// The group that a RECEIVE took from.
fn group(outcome: &Done) -> Option<GroupId> {
    messages(outcome).first().map(|message| message.conversation_group_id)
}

/// Whether the next batch begins where this one did: every caller got something, all of one level.
fn keeps_trail(outcomes: &[Done]) -> bool {
    let mut levels: Vec<u8> = outcomes.iter().flat_map(messages).map(|message| message.priority).collect();
    levels.dedup();
    outcomes.iter().all(|outcome| group(outcome).is_some()) && levels.len() == 1
}
