-- Posts QUEUE_ACTIVATION to the notifications of a queue: it has messages and no receiver. For queue monitors.
-- Takes: the queue
-- Gives: notices
-- Errors: 60002
-- Locks: the groups of the notifications' conversations, waiting
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.post_queue_activation(p_queue text)
RETURNS TABLE (notices text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
    v_queue_id integer;
BEGIN
    PERFORM dialoq.check_isolation();
    SELECT q.queue_id INTO v_queue_id FROM dialoq.service_queue AS q WHERE q.folded_name = lower(p_queue COLLATE "C");
    IF NOT FOUND THEN
        PERFORM dialoq.fail(60002, format('queue ''%s'' was not found', p_queue));
    END IF;
    RETURN QUERY SELECT dialoq.publish_notices(dialoq.post_event(v_queue_id, 'QUEUE_ACTIVATION'));
END $$;
