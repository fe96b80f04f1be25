-- Puts a dead letter back into its queue, at its old place in its conversation: it is received before the messages that came after
-- it and still wait. Not in Service Broker.
-- Takes: the dead letter
-- Gives: notices
-- Errors: 60048, 60049, 60050
-- Locks: the conversation's group, waiting; then the dead letter, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.redrive_dead_letter(p_dead_letter_id bigint)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    d record;
    v_lock record;
    v_queue_id integer;
    v_group uuid;
    v_is_free boolean;
    v_notices text;
BEGIN
    PERFORM dialoq.check_isolation();
    SELECT l.endpoint_id, l.conversation_handle INTO d FROM dialoq.dead_letter AS l WHERE l.queuing_order = p_dead_letter_id;
    IF NOT FOUND THEN
        PERFORM dialoq.dead_letter_missing(p_dead_letter_id);
    END IF;
    -- Before the wait for the lock, and under the lock.
    FOR v_attempt IN 1..2 LOOP
        IF NOT EXISTS (
            SELECT FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = d.endpoint_id AND e.state NOT IN ('DO', 'CD'))
        THEN
            PERFORM dialoq.dead_letter_ended(p_dead_letter_id, d.conversation_handle);
        END IF;
        IF v_attempt = 1 THEN
            -- After a savepoint the lock of the group would outlive the refusal.
            BEGIN
                PERFORM FROM dialoq.dead_letter AS l WHERE l.queuing_order = p_dead_letter_id FOR UPDATE SKIP LOCKED;
                v_is_free := FOUND;
                RAISE EXCEPTION USING ERRCODE = 'SB000', MESSAGE = 'it was only asked for';
            EXCEPTION WHEN SQLSTATE 'SB000' THEN
                NULL;
            END;
            IF NOT v_is_free THEN
                PERFORM dialoq.dead_letter_missing(p_dead_letter_id);
            END IF;
            SELECT * INTO v_lock FROM dialoq.lock_endpoint(d.endpoint_id, true);
            v_notices := v_lock.notices;
        END IF;
    END LOOP;
    WITH gone AS (
        DELETE FROM dialoq.dead_letter AS l
        WHERE l.queuing_order = (
            SELECT o.queuing_order FROM dialoq.dead_letter AS o WHERE o.queuing_order = p_dead_letter_id FOR UPDATE SKIP LOCKED)
        RETURNING l.*
    )
    INSERT INTO dialoq.queue_message (
        queuing_order, endpoint_id, delivery_class, sequence, message_type_id, message_id, enqueued_at, body, trace)
    OVERRIDING SYSTEM VALUE
    SELECT g.queuing_order, g.endpoint_id, g.delivery_class, g.sequence, g.message_type_id, g.message_id, g.enqueued_at, g.body, g.trace
    FROM gone AS g;
    IF NOT FOUND THEN
        PERFORM dialoq.dead_letter_missing(p_dead_letter_id);
    END IF;
    -- It has all its attempts, also if the message that was first before it has failed meanwhile.
    UPDATE dialoq.conversation_endpoint AS e SET rollbacks = 0
    FROM dialoq.conversation_endpoint AS o
    WHERE o.endpoint_id = d.endpoint_id AND e.conversation_group_id = o.conversation_group_id AND e.rollbacks <> 0;
    -- Those in the group that are still to be counted were before.
    PERFORM dialoq.forget_attempts(e.conversation_group_id) FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = d.endpoint_id;
    SELECT s.queue_id, e.conversation_group_id INTO v_queue_id, v_group
    FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.endpoint_id = d.endpoint_id;
    PERFORM dialoq.rebuild_ready_rows(v_group);
    RETURN QUERY SELECT dialoq.publish_notices(concat_ws(' ', v_notices, 'q:' || v_queue_id::text));
END $$;
