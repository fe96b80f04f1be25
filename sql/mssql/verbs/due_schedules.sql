-- The work schedules whose next time is over.
-- Takes: how many at most (NULL: 100), up to 10000
-- Gives: the columns of read_work_schedules, version and next_at
-- Errors: 1222 if another session keeps a row from being read for a second (READ_COMMITTED_SNAPSHOT OFF)
-- Locks: none
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.due_schedules
    @top int = 100
AS
BEGIN
    -- <settings>
    SET LOCK_TIMEOUT 1000;
    DECLARE @now datetime2(6) = dialoq.current_time_utc();
    SET @top = CASE WHEN @top < 0 THEN 0 WHEN @top > 10000 THEN 10000 ELSE COALESCE(@top, 100) END;
    SELECT TOP (@top)
        s.schedule_id, s.name, s.queue_id, s.is_enabled, s.cron, s.time_zone, s.missed, s.job_type, s.job_key, s.level, s.body,
        s.version, s.next_at
    FROM dialoq.work_schedule AS s WITH (READCOMMITTEDLOCK, READPAST)
    WHERE s.next_at <= @now
    ORDER BY s.next_at, s.schedule_id;
END
GO
