-- EXTEND: prolongs the lease of a taken job. A job that a transaction holds has none, and needs none.
-- Takes: the job and the token of its taking; milliseconds from now (NULL: LEASE_MS of the queue)
-- Gives: notices
-- Errors: 60005, 60040, 60041, 60042, 60043
-- Locks: the job, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.extend_job
    @job_id bigint, @token bigint, @lease_ms bigint = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @queue_id int, @state smallint, @due_at datetime2(6), @now datetime2(6);
    EXEC dialoq.check_delay N'a lease in milliseconds', @lease_ms, 1;
    -- <transaction>
    SET @now = dialoq.current_time_utc();
    EXEC dialoq.lock_job @job_id, @token, @now, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    IF @due_at IS NOT NULL
    BEGIN
        IF @lease_ms IS NULL
            SELECT @lease_ms = w.lease_ms FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id;
        SET @due_at = dialoq.add_us(@now, 1000 * COALESCE(@lease_ms, 60000));
        UPDATE dialoq.job SET due_at = @due_at WHERE job_id = @job_id;
        -- Every process looks for what is due once a minute.
        IF @due_at < DATEADD(minute, 1, @now) SET @notices = dialoq.due_notice(@due_at);
    END
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
