-- TAKE: jobs that are ready, to a reader. Never waits for a job. A job without a lease is completed by the commit of the transaction
-- that takes it, and a rollback gives it back as if it had not been taken. claim_jobs is for the transactions of Dialoq's
-- clients: a short transaction on another connection takes the jobs, so that the attempt counts although the transaction
-- that holds them is rolled back or dies.
-- Takes: the queue; how many at most, 1 to 10000; the type (NULL: any); bounds of the level, and whether age counts and not
--     level, in a queue of ORDER = PRIORITY; whether the jobs are leased (default: no; they are then completed by the commit),
--     and for how long in milliseconds (NULL: LEASE_MS of the queue; refused without a lease); the reader's name; claim_jobs: first the process and the transaction that hold the jobs, and the last token
--     that the transaction has got: jobs that it holds under later ones were claimed by a call whose answer was lost
-- Gives: the jobs in the order of their queue, notices in the first; claim_jobs: one row with notices only if it has given jobs back
--     and none is taken
-- Errors: 60002, 60005, 60043
-- Locks: the jobs, without waiting; in a queue with limits, the takes of other sessions, waiting two seconds at most
-- For: plain SQL (take_jobs)
-- Called by: dialoq_user (take_jobs, claim_jobs)
CREATE PROCEDURE dialoq.take_jobs
    @queue nvarchar(4000), @job_count bigint = 1, @job_type nvarchar(4000) = NULL, @lowest int = NULL, @highest int = NULL,
    @oldest bit = 0, @has_lease bit = 0, @lease_ms bigint = NULL, @taken_by nvarchar(4000) = NULL
AS
BEGIN
    -- <settings>
    -- Columns of the result: job_id, token, queue, job_type, job_key, level, attempt, pushed_at, pushed_by, lease_until,
    -- last_error, body, notices.
    EXEC dialoq.take_ready_jobs @queue, @job_count, @job_type, @lowest, @highest, @oldest, @has_lease, @lease_ms, @taken_by,
        NULL, NULL, NULL;
END
GO

CREATE PROCEDURE dialoq.claim_jobs
    @process uniqueidentifier, @holder uniqueidentifier, @last_token bigint, @queue nvarchar(4000), @job_count bigint,
    @job_type nvarchar(4000), @lowest int, @highest int, @oldest bit, @has_lease bit, @lease_ms bigint, @taken_by nvarchar(4000)
AS
BEGIN
    -- <settings>
    IF @process IS NULL OR @holder IS NULL
        THROW 60005, N'the process or the transaction that holds the jobs is NULL; give their ids', 1;
    IF @@TRANCOUNT > 0
        THROW 60005, N'claim_jobs was called in a transaction; its claim must not be undone with other work; call it outside', 1;
    SET @last_token = COALESCE(@last_token, 0);
    EXEC dialoq.take_ready_jobs @queue, @job_count, @job_type, @lowest, @highest, @oldest, @has_lease, @lease_ms, @taken_by,
        @process, @holder, @last_token;
END
GO
