-- The work schedules whose next time is over.
-- Takes: how many at most (NULL: 100), up to 10000
-- Gives: the columns of read_work_schedules, version and next_at
-- Errors: none
-- Locks: none
-- Called by: dialoq_user
CREATE OR REPLACE FUNCTION dialoq.due_schedules(p_top integer DEFAULT 100)
RETURNS TABLE (
    schedule_id integer, name text, queue_id integer, is_enabled boolean, cron text, time_zone text, missed text, job_type text,
    job_key text, level integer, body text, version bigint, next_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        s.schedule_id, s.name, s.queue_id, s.is_enabled, s.cron, s.time_zone, s.missed, s.job_type, s.job_key, s.level::integer,
        s.body, s.version, s.next_at
    FROM dialoq.work_schedule AS s
    WHERE s.next_at <= dialoq.current_time_utc()
    ORDER BY s.next_at, s.schedule_id
    LIMIT least(greatest(coalesce(p_top, 100), 0), 10000);
END $$;
