-- COMPLETE: a taken job is done.
-- Takes: the job and the token of its taking; the result, kept with its history (NULL: none)
-- Gives: notices
-- Errors: 58459, 60040, 60041, 60042, 60043
-- Locks: the job, without waiting
-- For: plain SQL
-- Called by: dialoq_user (complete_job)
CREATE PROCEDURE dialoq.complete_job
    @job_id bigint, @token bigint, @result varbinary(max) = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max);
    -- <transaction>
    EXEC dialoq.complete_taken_job @job_id, @token, @result, @notices OUTPUT;
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO

-- The same in the caller's transaction, without a result of its own.
CREATE PROCEDURE dialoq.complete_taken_job
    @job_id bigint, @token bigint, @result varbinary(max), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int, @state smallint, @due_at datetime2(6), @now datetime2(6) = dialoq.current_time_utc();
    IF @result IS NOT NULL
    BEGIN
        -- A refusal of the result leaves no lock.
        EXEC dialoq.check_job @job_id, @token, @now, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
        EXEC dialoq.check_bytes N'the result of a job', @result;
    END
    EXEC dialoq.lock_job @job_id, @token, @now, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    EXEC dialoq.finish_job @job_id, 4, @result, @now, @notices OUTPUT;
END
GO
