-- FAIL: an attempt at a taken job failed.
-- Takes: the job and the token of its taking; why, 3000 characters at most; the pause before the next attempt in milliseconds
--     (NULL: as the settings of the queue say); whether there is no next attempt
-- Gives: job_state, the state after it: scheduled, ready or dead; notices
-- Errors: 60005, 60040, 60041, 60042, 60043
-- Locks: the job, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.fail_job
    @job_id bigint, @token bigint, @reason nvarchar(max) = N'', @retry_in_ms bigint = NULL, @is_last bit = 0
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @queue_id int, @state smallint, @due_at datetime2(6), @now datetime2(6);
    EXEC dialoq.check_length N'the reason of a failure', @reason, 3000;
    EXEC dialoq.check_delay N'the delay of the next attempt in milliseconds', @retry_in_ms, 0;
    SET @reason = COALESCE(@reason, N'');
    -- <transaction>
    SET @now = dialoq.current_time_utc();
    EXEC dialoq.lock_job @job_id, @token, @now, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    EXEC dialoq.fail_attempt @job_id, @reason, @retry_in_ms, @is_last, @now, @state OUTPUT, @notices OUTPUT;
    -- </transaction>
    SELECT CASE @state WHEN 0 THEN N'scheduled' WHEN 1 THEN N'ready' ELSE N'dead' END AS job_state,
        dialoq.distinct_notices(@notices) AS notices;
END
GO
