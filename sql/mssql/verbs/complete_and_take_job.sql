-- COMPLETE and TAKE in one: a leased job is done, and its reader gets the next ones. Both are done or none, by one commit.
-- Takes: the job, the token of its taking and the result, as complete_job; the queue, how many at most, the type, the length of the
--     leases and the reader's name, as take_jobs with leases
-- Gives: the jobs as take_jobs
-- Errors: 58459, 60002, 60005, 60040, 60041, 60042, 60043: then the job is not completed
-- Locks: as complete_job, then as take_jobs
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.complete_and_take_job
    @job_id bigint, @token bigint, @result varbinary(max), @queue nvarchar(4000), @job_count bigint = 1,
    @job_type nvarchar(4000) = NULL, @lease_ms bigint = NULL, @taken_by nvarchar(4000) = NULL
AS
BEGIN
    -- <settings>
    -- For clients, which make two calls of this: other processes look for what a limit lets go.
    DECLARE @notices nvarchar(max);
    -- <transaction>
    -- If the take is refused in a transaction of the caller, the completion is undone too.
    IF @is_own = 0 SAVE TRANSACTION dialoq_completion;
    BEGIN TRY
        EXEC dialoq.complete_taken_job @job_id, @token, @result, @notices OUTPUT;
        -- Columns of the result: job_id, token, queue, job_type, job_key, level, attempt, pushed_at, pushed_by, lease_until,
        -- last_error, body, notices.
        EXEC dialoq.take_ready_jobs @queue, @job_count, @job_type, NULL, NULL, 0, 1, @lease_ms, @taken_by, NULL, NULL, NULL;
    END TRY
    BEGIN CATCH
        IF @is_own = 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION dialoq_completion;
        THROW;
    END CATCH
    -- </transaction>
END
GO
