-- Messages that a retry policy has taken out of their queue. Names and ids are those of the moment of death: the objects may be gone.
CREATE TABLE dialoq.dead_letter (
    queuing_order bigint PRIMARY KEY,
    endpoint_id bigint NOT NULL,
    delivery_class smallint NOT NULL,
    sequence bigint NOT NULL,
    queue_name text NOT NULL,
    service_name text NOT NULL,
    far_service_name text NOT NULL,
    service_contract_name text NOT NULL,
    conversation_handle uuid NOT NULL,
    conversation_id uuid NOT NULL,
    conversation_group_id uuid NOT NULL,
    priority smallint NOT NULL,
    attempts integer NOT NULL,
    died_at timestamptz NOT NULL,
    reason text,
    message_type_id integer NOT NULL,
    message_id uuid NOT NULL,
    enqueued_at timestamptz NOT NULL,
    body bytea,
    trace text
);
ALTER TABLE dialoq.dead_letter ALTER COLUMN body SET STORAGE EXTERNAL;
