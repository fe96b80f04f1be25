-- What the smaller verbs on one conversation have in common.
-- Takes: the handle; the error if this side has ended, and the verb it names
-- Gives: the endpoint, its group locked; words for others
CREATE OR REPLACE FUNCTION dialoq.lock_open(p_handle uuid, p_error integer, p_statement text, OUT endpoint_id bigint, OUT said text)
LANGUAGE plpgsql AS $$
DECLARE
    v_state text;
BEGIN
    SELECT l.endpoint_id, l.said INTO lock_open.endpoint_id, lock_open.said FROM dialoq.lock_handle(p_handle, true) AS l;
    IF lock_open.endpoint_id IS NULL THEN
        PERFORM dialoq.fail(8426, format(
            'conversation handle %s was not found: it was never begun here, or it has ended', p_handle));
    END IF;
    SELECT e.state INTO v_state FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = lock_open.endpoint_id;
    IF v_state IN ('DO', 'CD') THEN
        PERFORM dialoq.fail(p_error, format('conversation %s is %s; %s needs one that this side has not ended',
            p_handle, dialoq.state_words(v_state), p_statement));
    END IF;
END $$;
