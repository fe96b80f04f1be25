//! BEGIN DIALOG CONVERSATION (`docs/semantics.md`, "A conversation's life").

use super::check::check_service_name;
use super::endpoint::{Endpoint, NONE, RareFields};
use super::execute::{Checked, lock};
use super::queuing_orders::QueuingOrders;
use super::session::{Op, Session};
use super::state::Core;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, ConversationId, GroupId};
use crate::protocol::{Addressee, BeginDialog, ConversationState, Outcome, Relation, system};
use crate::time::Timestamp;
use std::sync::Arc;
use uuid::Uuid;

/// The longest LIFETIME and TIMEOUT, in seconds: about 68 years.
pub(super) const LONGEST_SECONDS: i64 = 2_147_483_647;

impl Core {
    pub(super) fn begin_dialog(
        &mut self,
        session: &mut Session,
        dialog: BeginDialog,
        now: Timestamp,
    ) -> Checked<Outcome> {
        let service_id =
            self.lookup.service(&dialog.from_service).ok_or_else(|| Error::service_not_found(&dialog.from_service))?;
        let service = self.catalog.services.get(&service_id);
        let queue_id = service.ok_or_else(|| Error::service_not_found(&dialog.from_service))?.queue_id;
        let contract = dialog.contract.as_deref().unwrap_or(system::DEFAULT);
        let contract_id = self.lookup.contract(contract).ok_or_else(|| Error::contract_not_found(contract))?;
        check_service_name(&dialog.to_service)?;
        let far_broker_instance = self.broker_instance(&dialog.addressee)?;
        let lifetime = dialog.lifetime_seconds.unwrap_or(LONGEST_SECONDS);
        if !(1..=LONGEST_SECONDS).contains(&lifetime) {
            return Err(Error::new(
                Code::LIFETIME_OUT_OF_RANGE,
                format!("LIFETIME is {lifetime} seconds; it must be 1 to {LONGEST_SECONDS}"),
            ));
        }
        let group = match dialog.related {
            Relation::None => {
                let id = self.ids.next_id();
                self.group_place(id, service_id, queue_id)
            }
            Relation::Conversation(handle) => {
                let related = self.find_for(session, handle).ok_or_else(|| Error::conversation_not_found(handle))?;
                let endpoint = &self.endpoints[related];
                if endpoint.state.is_ended() || session.has_ended(related, endpoint) {
                    return Err(Error::new(
                        Code::RELATION_IMPOSSIBLE,
                        format!("conversation {handle} has ended; a new one cannot be related to it"),
                    ));
                }
                session.group_of(related, endpoint)
            }
            Relation::Group(GroupId(id)) if id.is_nil() => {
                return Err(Error::new(
                    Code::BAD_GROUP_ID,
                    "the conversation group id is all zeros; give an id of your own, or none for a new one",
                ));
            }
            Relation::Group(GroupId(id)) => self.group_place(id, service_id, queue_id),
        };
        // A refusal that no lock can change does not wait for one. A group that only another session sees may still
        // vanish.
        if self.has_visible_member(session, group) {
            self.check_group_of_service(group, service_id, &dialog.from_service)?;
        }
        lock!(self, session, group);
        // A savepoint may have undone the BEGIN that made the group: it has no conversation, so it is of no service.
        let locked = &mut self.groups[group];
        if locked.members.is_empty() {
            (locked.service_id, locked.queue_id) = (service_id, queue_id);
        }
        self.check_group_of_service(group, service_id, &dialog.from_service)?;
        let priority = self.catalog.level_for(contract_id, service_id, &dialog.to_service);
        let handle = self.ids.next_id();
        let conversation_id = self.ids.next_id();
        let endpoint = Endpoint {
            handle,
            conversation_id,
            endpoint_id: self.take_endpoint_id(),
            begun_at: now,
            lifetime: now.after_seconds(lifetime),
            due: 0,
            send_sequence: 0,
            receive_sequence: 0,
            rows: QueuingOrders::default(),
            rare_fields: far_broker_instance
                .map(|instance| Box::new(RareFields { far_broker_instance: Some(instance), ..RareFields::default() })),
            group,
            peer: NONE,
            service_id,
            contract_id,
            far_service: self.names.place(&dialog.to_service),
            state: ConversationState::StartedOutbound,
            priority,
            is_initiator: true,
            is_uncommitted: true,
            is_peer_known: false,
            has_retained: false,
            is_quarantined: false,
            is_system: false,
            is_dirty: false,
            is_stored: false,
        };
        let place = self.add_endpoint(endpoint);
        session.record(Op::Begin { endpoint: place });
        Ok(Ok(Outcome::Began {
            handle: ConversationHandle(handle),
            group: GroupId(self.groups[group].id),
            conversation_id: ConversationId(conversation_id),
        }))
    }

    fn check_group_of_service(&self, group: u32, service_id: i32, from_service: &str) -> Result<()> {
        let (id, other) = (self.groups[group].id, self.groups[group].service_id);
        if other == service_id {
            return Ok(());
        }
        let other = self.catalog.services.get(&other).map_or("another service", |service| &service.name);
        Err(Error::new(
            Code::GROUP_OF_OTHER_SERVICE,
            format!(
                "conversation group {id} belongs to service '{other}'; a conversation FROM SERVICE '{from_service}' \
                 cannot join it"
            ),
        ))
    }

    pub(super) fn take_endpoint_id(&mut self) -> u64 {
        let id = self.next_endpoint_id;
        self.next_endpoint_id += 1;
        id
    }

    pub(super) fn apply_begin(&mut self, place: u32, now: Timestamp) {
        self.endpoints[place].is_uncommitted = false;
        self.mark_dirty(place);
        self.reschedule(place, now);
    }

    fn broker_instance(&self, addressee: &Addressee) -> Result<Option<Arc<str>>> {
        match addressee {
            Addressee::Anywhere => Ok(None),
            Addressee::CurrentDatabase => Ok(Some(self.catalog.settings.broker_guid.to_string().into())),
            Addressee::Instance(text) if text.eq_ignore_ascii_case("CURRENT DATABASE") => {
                self.broker_instance(&Addressee::CurrentDatabase)
            }
            Addressee::Instance(text) => match Uuid::parse_str(text) {
                Ok(guid) => Ok(Some(guid.to_string().into())),
                Err(_) => Err(Error::new(
                    Code::BAD_BROKER_INSTANCE,
                    format!("'{text}' is no broker instance; it must be a GUID, or 'CURRENT DATABASE'"),
                )),
            },
        }
    }
}
