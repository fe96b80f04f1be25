-- Dead letters: messages that a retry policy has taken out of their queue.
-- Takes, Gives, Errors, Locks: see each function

-- Moves a message of a conversation into the dead letters: the one that is named, or if it is NULL the one that RECEIVE would give first.
-- The caller holds the group's lock.
CREATE OR REPLACE FUNCTION dialoq.bury(p_endpoint_id bigint, p_message bigint, p_attempts integer, p_reason text, p_now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_row tid := coalesce((
        SELECT m.ctid FROM generate_series(0, 2) AS k (delivery_class)
        JOIN dialoq.queue_message AS m
            ON m.endpoint_id = p_endpoint_id AND m.delivery_class = k.delivery_class AND m.queuing_order = p_message), (
        SELECT m.ctid FROM dialoq.queue_message AS m
        WHERE m.endpoint_id = p_endpoint_id ORDER BY m.delivery_class DESC, m.queuing_order LIMIT 1));
BEGIN
    WITH gone AS (
        DELETE FROM dialoq.queue_message AS m WHERE m.ctid = v_row RETURNING m.*
    )
    INSERT INTO dialoq.dead_letter (
        queuing_order, endpoint_id, delivery_class, sequence, queue_name, service_name, far_service_name, service_contract_name,
        conversation_handle, conversation_id, conversation_group_id, priority, attempts, died_at, reason,
        message_type_id, message_id, enqueued_at, body, trace)
    SELECT g.queuing_order, g.endpoint_id, g.delivery_class, g.sequence, coalesce(q.name, ''), s.name, e.far_service,
        coalesce(c.name, ''), e.conversation_handle, e.conversation_id, e.conversation_group_id, e.priority, p_attempts, p_now, left(p_reason, 1000),
        g.message_type_id, g.message_id, g.enqueued_at, g.body, g.trace
    FROM gone AS g
    JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = p_endpoint_id
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    LEFT JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id
    LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id;
    PERFORM dialoq.rebuild_ready_rows(e.conversation_group_id)
    FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = p_endpoint_id;
END $$;

-- Refuses a dead letter that is gone, or that another transaction is removing.
-- Errors: 60048, 60049
CREATE OR REPLACE FUNCTION dialoq.dead_letter_missing(p_dead_letter_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM dialoq.dead_letter AS d WHERE d.queuing_order = p_dead_letter_id) THEN
        PERFORM dialoq.fail(60049, format('dead letter %s is redriven or purged by another transaction; try again when that has ended',
            p_dead_letter_id));
    END IF;
    PERFORM dialoq.fail(60048, format('dead letter %s was not found; it was redriven or purged, or never was one',
        coalesce(p_dead_letter_id::text, 'NULL')));
END $$;

-- Refuses a dead letter whose conversation this side has ended.
-- Errors: 60050
CREATE OR REPLACE FUNCTION dialoq.dead_letter_ended(p_dead_letter_id bigint, p_handle uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dialoq.fail(60050, format('dead letter %s cannot be redriven: its conversation %s has ended; read its body and send it '
        'on a new conversation, or purge it', p_dead_letter_id, p_handle));
END $$;
