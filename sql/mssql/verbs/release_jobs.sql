-- What a client of Dialoq reports about the jobs that it has taken, besides the verbs of its caller: who reports, the end of
-- a transaction that holds jobs, and jobs that no reader has seen.
-- Takes: the process and the transaction that hold the jobs; own_jobs: nothing more; finish_held_jobs: its jobs that were not
--     reported; release_jobs: the tokens of those that are released, after the
--     first and up to the last, and whether that is a failed attempt;
--     return_jobs: jobs and the tokens of their takings; job_holders: the process alone
-- Gives: notices; release_jobs, return_jobs: has_more, whether another session has locked some of them; job_holders: holder, each
--     transaction of the process that holds jobs
-- Errors: 60005; finish_held_jobs: 60042 if it no longer holds them all, 51205 if another session holds one of them for 30 s
-- Locks: the jobs; finish_held_jobs waits for sessions that look at them
-- Called by: dialoq_user (own_jobs, finish_held_jobs, release_jobs, return_jobs, job_holders)

-- The rest of this transaction may change the jobs of that holder. An application lock says so, because it ends with the
-- transaction, or with a savepoint that is undone.
CREATE PROCEDURE dialoq.own_jobs
    @holder uniqueidentifier
AS
BEGIN
    -- <settings>
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:holder:', @holder), @is_locked bit;
    IF @holder IS NULL THROW 60005, N'the id of the transaction is NULL; give one', 1;
    IF @@TRANCOUNT = 0
        THROW 60005, N'own_jobs was called outside a transaction, and has an effect to the end of one only; call it inside', 1;
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 0
        THROW 60005, N'another transaction has shown itself under this id; each takes one of its own', 1;
END
GO

-- The last call of a transaction before its COMMIT: its jobs are done, but those that it has leased.
CREATE PROCEDURE dialoq.finish_held_jobs
    @process uniqueidentifier, @holder uniqueidentifier, @job_ids dialoq.job_id_rows READONLY
AS
BEGIN
    -- <settings>
    SET LOCK_TIMEOUT 30000;
    DECLARE @notices nvarchar(max), @now datetime2(6), @item int = -1, @next int, @job_id bigint, @count int = 0, @left int = 0;
    DECLARE @due_at datetime2(6), @resource nvarchar(255), @got int, @text nvarchar(2048);
    -- <transaction>
    SET @now = dialoq.current_time_utc();
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = i.item, @job_id = i.job_id FROM @job_ids AS i WHERE i.item > @item ORDER BY i.item;
        IF @next IS NULL BREAK;
        SET @item = @next;
        SET @count = @count + 1;
        SET @resource = CONCAT(N'dialoq:', DB_ID(), N':job:', @job_id);
        EXEC @got = sp_getapplock
            @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 30000,
            @DbPrincipal = N'dialoq_user';
        IF @got < 0
            THROW 51205, N'another session holds a job of the transaction and does not end; roll back and run it again', 1;
        IF EXISTS (
            SELECT 1 FROM dialoq.job AS j
            WHERE j.job_id = @job_id AND j.process = @process AND j.holder = @holder AND j.state = 2)
            SET @left = @left + 1;
    END
    IF @left < @count
    BEGIN
        SET @text = CONCAT(N'the transaction no longer holds all jobs that it took: its process counted as ended, and the ',
            N'attempts as failed; ', @left, N' of ', @count, N' are left');
        THROW 60042, @text, 1;
    END
    SET @item = -1;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = i.item, @job_id = i.job_id FROM @job_ids AS i WHERE i.item > @item ORDER BY i.item;
        IF @next IS NULL BREAK;
        SET @item = @next;
        SELECT @due_at = j.due_at FROM dialoq.job AS j WHERE j.job_id = @job_id;
        IF @due_at IS NULL EXEC dialoq.finish_job @job_id, 4, NULL, @now, @notices OUTPUT;
        ELSE
        BEGIN
            UPDATE dialoq.job SET process = NULL, holder = NULL WHERE job_id = @job_id;
            IF @due_at < DATEADD(minute, 1, @now) SET @notices = CONCAT(@notices, dialoq.due_notice(@due_at));
        END
    END
    -- </transaction>
    SELECT dialoq.distinct_notices(@notices) AS notices;
END
GO

-- Gives back the jobs of a transaction that was rolled back, or whose savepoint was: there it is no attempt.
CREATE PROCEDURE dialoq.release_jobs
    @process uniqueidentifier, @holder uniqueidentifier, @after_token bigint, @last_token bigint, @is_attempt bit
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @has_more bit;
    EXEC dialoq.release_held @process, @holder, @after_token, @last_token, @is_attempt, @has_more OUTPUT, @notices OUTPUT;
    SELECT @has_more AS has_more, dialoq.distinct_notices(@notices) AS notices;
END
GO

-- The same for other procedures.
CREATE PROCEDURE dialoq.release_held
    @process uniqueidentifier, @holder uniqueidentifier, @after_token bigint, @last_token bigint, @is_attempt bit,
    @has_more bit OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @now datetime2(6), @token bigint = @after_token, @job_id bigint, @is_locked bit, @state smallint;
    -- <transaction>
    SET @now = dialoq.current_time_utc();
    WHILE 1 = 1
    BEGIN
        SET @job_id = NULL;
        SELECT TOP (1) @job_id = j.job_id, @token = j.token
        FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_holder), FORCESEEK)
        WHERE j.process = @process AND j.holder = @holder AND j.token > @token AND j.token <= @last_token ORDER BY j.token;
        IF @job_id IS NULL BREAK;
        EXEC dialoq.try_lock_job @job_id, @is_locked OUTPUT;
        IF @is_locked = 0 OR NOT EXISTS (
            SELECT 1 FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST)
            WHERE j.job_id = @job_id AND j.holder = @holder AND j.token = @token)
            CONTINUE;
        IF @is_attempt = 1
            EXEC dialoq.fail_attempt @job_id, N'its transaction was rolled back', NULL, 0, @now, @state OUTPUT, @notices OUTPUT;
        ELSE EXEC dialoq.return_job @job_id, @notices OUTPUT;
    END
    SET @has_more = 0;
    IF EXISTS (
        SELECT 1
        FROM dialoq.job AS j WITH (READUNCOMMITTED, INDEX (job_holder), FORCESEEK)
        WHERE j.process = @process AND j.holder = @holder AND j.token > @after_token AND j.token <= @last_token)
        SET @has_more = 1;
    -- </transaction>
END
GO

-- Gives back leased jobs whose reader went away before it saw them.
CREATE PROCEDURE dialoq.return_jobs
    @jobs dialoq.job_rows READONLY
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @item int = -1, @next int, @job_id bigint, @token bigint, @is_locked bit, @has_more bit;
    -- <transaction>
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = i.item, @job_id = i.job_id, @token = i.token FROM @jobs AS i WHERE i.item > @item ORDER BY i.item;
        IF @next IS NULL BREAK;
        SET @item = @next;
        IF NOT EXISTS (
            SELECT 1 FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST)
            WHERE j.job_id = @job_id AND j.token = @token AND j.state = 2 AND j.holder IS NULL)
            CONTINUE;
        EXEC dialoq.try_lock_job @job_id, @is_locked OUTPUT;
        IF @is_locked = 1 AND EXISTS (
            SELECT 1 FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST)
            WHERE j.job_id = @job_id AND j.token = @token AND j.state = 2 AND j.holder IS NULL)
            EXEC dialoq.return_job @job_id, @notices OUTPUT;
    END
    SET @has_more = 0;
    IF EXISTS (
        SELECT 1
        FROM @jobs AS i
        JOIN dialoq.job AS j WITH (READUNCOMMITTED, FORCESEEK) ON j.job_id = i.job_id
        WHERE j.token = i.token AND j.state = 2 AND j.holder IS NULL)
        SET @has_more = 1;
    -- </transaction>
    SELECT @has_more AS has_more, dialoq.distinct_notices(@notices) AS notices;
END
GO

-- The transactions of a process that hold jobs. A claim whose call was lost may commit after its transaction has ended; then
-- only the process itself knows that no transaction of it holds the jobs.
CREATE PROCEDURE dialoq.job_holders
    @process uniqueidentifier
AS
BEGIN
    -- <settings>
    IF @process IS NULL THROW 60005, N'the id of the process is NULL; give one', 1;
    SELECT DISTINCT j.holder
    FROM dialoq.job AS j WITH (READUNCOMMITTED, INDEX (job_holder), FORCESEEK)
    WHERE j.process = @process AND j.holder IS NOT NULL;
END
GO
