-- Unique jobs: at most one job of a name in a queue, until the job is finished or the name's window is over.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: names, without waiting

-- The job that has a name. A job that is there is found without a lock: another transaction may have asked for it too. If no job
-- has the name, it is this transaction's to give, to its end.
-- Takes: the queue, the name, the time
-- Gives: has_job, whether a job has it; the job, NULL if it is finished and its window is not over
-- Errors: 60043 if another transaction is pushing a job of that name, or finishing the one that has it and the server keeps
--     no version of the row that could be read (READ_COMMITTED_SNAPSHOT OFF)
CREATE PROCEDURE dialoq.job_of_name
    @queue_id int, @unique_key nvarchar(256), @now datetime2(6), @has_job bit OUTPUT, @job_id bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048), @is_locked bit, @is_known bit;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':unique:', @queue_id, N':',
        CAST(CAST(HASHBYTES('SHA2_256', @unique_key) AS varbinary(16)) AS uniqueidentifier));
    EXEC dialoq.read_name @queue_id, @unique_key, @now, @is_known OUTPUT, @has_job OUTPUT, @job_id OUTPUT;
    IF @is_known = 1 AND @has_job = 1 RETURN;
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
    IF @is_locked = 1
        EXEC dialoq.read_name @queue_id, @unique_key, @now, @is_known OUTPUT, @has_job OUTPUT, @job_id OUTPUT;
    IF @is_locked = 1 AND @is_known = 1 AND @has_job = 0 RETURN;
    -- This transaction may stay open, and pushes of the name would be refused meanwhile, also after the end of the job that has it.
    IF @is_locked = 1 EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Transaction', @DbPrincipal = N'dialoq_user';
    IF @is_locked = 1 AND @is_known = 1 RETURN;
    SET @text = dialoq.throw_text(CONCAT(N'a job with the unique key ''', @unique_key, N''' is being pushed or finished in work queue ''',
        (SELECT w.name FROM dialoq.work_queue AS w WHERE w.queue_id = @queue_id), N''''));
    THROW 60043, @text, 1;
END
GO

-- Reads the row of a name as it is committed, without waiting. is_known is 0 if another transaction removes it.
CREATE PROCEDURE dialoq.read_name
    @queue_id int, @unique_key nvarchar(256), @now datetime2(6), @is_known bit OUTPUT, @has_job bit OUTPUT, @job_id bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    DECLARE @found bigint, @until datetime2(6);
    SET @is_known = 1;
    SET @has_job = 0;
    SET @job_id = NULL;
    BEGIN TRY
        SELECT @found = u.job_id, @until = u.until_at
        FROM dialoq.unique_job AS u
        WHERE u.queue_id = @queue_id AND u.unique_key = @unique_key AND u.key_bytes = DATALENGTH(@unique_key);
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @is_known = 0;
    END CATCH
    IF @found IS NULL OR @until <= @now RETURN;
    SET @has_job = 1;
    BEGIN TRY
        SELECT @job_id = j.job_id FROM dialoq.job AS j WHERE j.job_id = @found;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        -- Another transaction changes the job, so there is one.
        SET @job_id = @found;
    END CATCH
    -- Finished between the two reads, and the name went with it.
    IF @until IS NULL AND @job_id IS NULL SET @has_job = 0;
END
GO

-- Forgets names whose windows are over. A push that meets one first replaces it.
CREATE PROCEDURE dialoq.forget_unique_jobs
    @now datetime2(6), @top int
AS
BEGIN
    SET NOCOUNT ON;
    DELETE TOP (@top) FROM u
    FROM dialoq.unique_job AS u WITH (ROWLOCK, READPAST, INDEX (unique_job_until), FORCESEEK)
    WHERE u.until_at <= @now;
END
GO
