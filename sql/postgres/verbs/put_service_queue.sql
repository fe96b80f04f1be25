-- Writes a queue, new or not, or removes one.
-- Takes: the columns of service_queue; or the queue_id
-- Gives: nothing
-- Errors: 60005
-- Locks: the row
-- Called by: dialoq_admin (put_service_queue, delete_service_queue)
CREATE FUNCTION dialoq.put_service_queue(
    p_queue_id integer, p_name text, p_folded_name text, p_is_receive_enabled boolean, p_is_enqueue_enabled boolean,
    p_is_retention_enabled boolean, p_is_poison_message_handling_enabled boolean,
    p_is_poison_quarantine_enabled boolean, p_is_activation_enabled boolean, p_activation_procedure text,
    p_max_queue_readers integer, p_execute_as text, p_execute_as_user text, p_retry_max_attempts integer,
    p_retry_delay_ms bigint, p_retry_factor_percent bigint, p_retry_max_delay_ms bigint, p_retry_jitter_percent bigint,
    p_retry_then text, p_off_since timestamptz, p_off_by text, p_off_reason text
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    IF p_folded_name IS DISTINCT FROM lower(p_name COLLATE "C") THEN
        PERFORM dialoq.fail(60005, format('the folded name of queue ''%s'' is ''%s''; it must be ''%s''', p_name,
            p_folded_name, lower(p_name COLLATE "C")));
    END IF;
    INSERT INTO dialoq.service_queue AS q (
        queue_id, name, folded_name, is_receive_enabled, is_enqueue_enabled, is_retention_enabled,
        is_poison_message_handling_enabled, is_poison_quarantine_enabled, is_activation_enabled,
        activation_procedure, max_queue_readers, execute_as, execute_as_user, retry_max_attempts, retry_delay_ms,
        retry_factor_percent, retry_max_delay_ms, retry_jitter_percent, retry_then, off_since, off_by,
        off_reason
    ) VALUES (
        p_queue_id, p_name, p_folded_name, p_is_receive_enabled, p_is_enqueue_enabled, p_is_retention_enabled,
        p_is_poison_message_handling_enabled, p_is_poison_quarantine_enabled, p_is_activation_enabled,
        p_activation_procedure, p_max_queue_readers, p_execute_as, p_execute_as_user, p_retry_max_attempts, p_retry_delay_ms,
        p_retry_factor_percent, p_retry_max_delay_ms, p_retry_jitter_percent, p_retry_then, p_off_since,
        p_off_by, p_off_reason
    ) ON CONFLICT (queue_id) DO UPDATE SET
        name = excluded.name, folded_name = excluded.folded_name, is_receive_enabled = excluded.is_receive_enabled,
        is_enqueue_enabled = excluded.is_enqueue_enabled, is_retention_enabled = excluded.is_retention_enabled,
        is_poison_message_handling_enabled = excluded.is_poison_message_handling_enabled,
        is_poison_quarantine_enabled = excluded.is_poison_quarantine_enabled,
        is_activation_enabled = excluded.is_activation_enabled, activation_procedure = excluded.activation_procedure,
        max_queue_readers = excluded.max_queue_readers, execute_as = excluded.execute_as,
        execute_as_user = excluded.execute_as_user, retry_max_attempts = excluded.retry_max_attempts,
        retry_delay_ms = excluded.retry_delay_ms, retry_factor_percent = excluded.retry_factor_percent,
        retry_max_delay_ms = excluded.retry_max_delay_ms, retry_jitter_percent = excluded.retry_jitter_percent,
        retry_then = excluded.retry_then, off_since = excluded.off_since, off_by = excluded.off_by,
        off_reason = excluded.off_reason;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_service_queue', SQLERRM);
END
$$;

CREATE FUNCTION dialoq.delete_service_queue(p_queue_id integer)
RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    DELETE FROM dialoq.service_queue WHERE queue_id = p_queue_id;
$$;
