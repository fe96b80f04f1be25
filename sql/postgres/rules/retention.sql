-- RETENTION = ON: copies of the messages that a conversation has received (status 0) and sent (status 3).
-- Takes, Gives, Errors, Locks: see each function

-- Keeps a copy of messages that a RECEIVE is about to delete.
CREATE OR REPLACE FUNCTION dialoq.retain_received(p_rows tid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dialoq.retained_message (
        endpoint_id, queuing_order, status, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
    SELECT m.endpoint_id, m.queuing_order, 0, m.delivery_class, m.sequence, m.message_type_id, m.message_id, m.enqueued_at,
        m.body, m.trace
    FROM dialoq.queue_message AS m WHERE m.ctid = ANY (p_rows);
END $$;

-- Keeps a copy of a message that an endpoint sends.
CREATE OR REPLACE FUNCTION dialoq.retain_sent(
    p_endpoint_id bigint, p_sequence bigint, p_message_type_id integer, p_message_id uuid, p_now timestamptz, p_body bytea,
    p_trace text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO dialoq.retained_message (
        endpoint_id, queuing_order, status, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
    VALUES (p_endpoint_id, nextval('dialoq.queue_message_queuing_order_seq'), 3, 0, p_sequence, p_message_type_id,
        p_message_id, p_now, p_body, p_trace);
END $$;
