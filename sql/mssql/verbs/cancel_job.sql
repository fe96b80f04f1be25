-- CANCEL: a job leaves its queue without being done. The reader of a leased job learns it from its next report.
-- Takes: the job; of a job that a look at its queue found, the token that it had and, if it matters, the name of its state
-- Gives: notices
-- Errors: 60040, 60042, 60043
-- Locks: the job, without waiting
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.cancel_job
    @job_id bigint, @seen_token bigint = NULL, @seen_state nvarchar(4000) = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @queue_id int, @state smallint, @due_at datetime2(6), @now datetime2(6);
    -- <transaction>
    EXEC dialoq.lock_seen_job @job_id, @seen_token, @seen_state, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    SET @now = dialoq.current_time_utc();
    EXEC dialoq.finish_job @job_id, 5, NULL, @now, @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO
