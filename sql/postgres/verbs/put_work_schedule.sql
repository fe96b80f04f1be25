-- Writes a work schedule, new or not, with the time that it fires next, or removes one.
-- Takes: the columns of work_schedule; or the schedule_id
-- Gives: nothing; on_work_schedule_altered: notices
-- Errors: 60005
-- Locks: the row
-- Called by: dialoq_admin (put_work_schedule, delete_work_schedule, on_work_schedule_altered)
CREATE FUNCTION dialoq.put_work_schedule(
    p_schedule_id integer, p_name text, p_folded_name text, p_queue_id integer, p_is_enabled boolean, p_cron text,
    p_time_zone text, p_missed text, p_job_type text, p_job_key text, p_level integer, p_body text, p_next_at timestamptz
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    IF p_folded_name IS DISTINCT FROM lower(p_name COLLATE "C") THEN
        PERFORM dialoq.fail(60005, format('the folded name of work schedule ''%s'' is ''%s''; it must be ''%s''', p_name,
            p_folded_name, lower(p_name COLLATE "C")));
    END IF;
    INSERT INTO dialoq.work_schedule AS s (
        schedule_id, name, folded_name, queue_id, is_enabled, cron, time_zone, missed, job_type, job_key, level, body, next_at
    ) VALUES (
        p_schedule_id, p_name, p_folded_name, p_queue_id, p_is_enabled, p_cron, p_time_zone, p_missed, p_job_type, p_job_key,
        p_level, p_body, p_next_at
    ) ON CONFLICT (schedule_id) DO UPDATE SET
        is_enabled = excluded.is_enabled, cron = excluded.cron, time_zone = excluded.time_zone, missed = excluded.missed,
        job_type = excluded.job_type, job_key = excluded.job_key, level = excluded.level, body = excluded.body,
        next_at = excluded.next_at, version = s.version + 1;
EXCEPTION WHEN data_exception OR integrity_constraint_violation THEN
    PERFORM dialoq.refuse_row('put_work_schedule', SQLERRM);
END
$$;

CREATE FUNCTION dialoq.delete_work_schedule(p_schedule_id integer)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    DELETE FROM dialoq.work_schedule AS s WHERE s.schedule_id = p_schedule_id;
END
$$;

-- Tells every process when the schedule fires next.
CREATE FUNCTION dialoq.on_work_schedule_altered(p_schedule_id integer)
RETURNS TABLE (notices text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    RETURN QUERY
    SELECT dialoq.publish_notices(dialoq.due_notice(s.next_at))
    FROM dialoq.work_schedule AS s WHERE s.schedule_id = p_schedule_id AND s.next_at IS NOT NULL;
END
$$;
