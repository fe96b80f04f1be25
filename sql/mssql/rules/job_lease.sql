-- Who holds a job: a lease, or a transaction. A transaction of a Dialoq client holds the jobs whose column holder has its
-- id: its process took them in a short transaction of its own, so that the attempt counts even if the process dies.
-- Each transaction that changes a job holds the application lock 'dialoq:', the database, ':job:' and the job's number to its
-- end, and takes it without waiting; only a take in a transaction of its own, which is short, goes without. So no verb waits
-- for a transaction of a caller, and a verb distinguishes a job that another transaction has changed from one that is not
-- there, with READ_COMMITTED_SNAPSHOT ON and OFF.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: see each procedure
-- Locks: jobs, without waiting

-- Locks a job, if no other transaction holds it.
CREATE PROCEDURE dialoq.try_lock_job
    @job_id bigint, @is_locked bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':job:', @job_id);
    EXEC dialoq.try_lock @resource, N'Exclusive', @is_locked OUTPUT;
END
GO

-- Frees a job that the caller has locked and not changed. Babelfish keeps the lock to the end of the transaction.
CREATE PROCEDURE dialoq.unlock_job
    @job_id bigint
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':job:', @job_id);
    EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Transaction', @DbPrincipal = N'dialoq_user';
END
GO

-- Whether a job is there, as it is committed. Without READ_COMMITTED_SNAPSHOT a row that another transaction has changed counts as
-- there: nothing says what becomes of it.
CREATE PROCEDURE dialoq.find_committed_job
    @job_id bigint, @is_there bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    SET @is_there = 0;
    BEGIN TRY
        IF EXISTS (SELECT 1 FROM dialoq.job AS j WHERE j.job_id = @job_id) SET @is_there = 1;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @is_there = 1;
    END CATCH
END
GO

-- Refuses a verb on a job, and locks nothing. The transaction that holds jobs has the lock 'dialoq:holder:' and its id
-- (own_jobs).
-- Takes: the job; the token of its taking and the time, if it is to be reported on (NULL: it is not)
-- Gives: its row, without the texts and the body
-- Errors: 60040, 60043; with a token 60041, 60042
CREATE PROCEDURE dialoq.check_job
    @job_id bigint, @token bigint, @now datetime2(6), @queue_id int OUTPUT, @state smallint OUTPUT, @due_at datetime2(6) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048), @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':job:', @job_id);
    DECLARE @is_held bit = 0, @is_there bit = 1, @tries int = 0, @last_token bigint, @holder uniqueidentifier;
    SET @queue_id = NULL;
    WHILE @queue_id IS NULL AND @is_held = 0 AND @is_there = 1 AND @tries < 3
    BEGIN
        SET @tries = @tries + 1;
        -- READPAST passes over a row that another transaction has changed, or has not committed yet.
        SELECT @queue_id = j.queue_id, @state = j.state, @due_at = j.due_at, @last_token = j.token, @holder = j.holder
        FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST) WHERE j.job_id = @job_id;
        IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 0 SET @is_held = 1;
        -- A take in a transaction of its own has changed the row, and has no application lock.
        IF @queue_id IS NULL AND @is_held = 0 EXEC dialoq.find_committed_job @job_id, @is_there OUTPUT;
    END
    IF @queue_id IS NULL AND @is_held = 0 AND @is_there = 1 SET @is_held = 1;
    IF @queue_id IS NULL AND @is_held = 0
    BEGIN
        SET @text = CONCAT(N'job ', @job_id, N' was not found: it was never pushed, or it is finished');
        THROW 60040, @text, 1;
    END
    IF @holder IS NOT NULL
        AND APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:holder:', @holder), N'Transaction') <> N'Exclusive'
        SET @is_held = 1;
    IF @is_held = 1
    BEGIN
        SET @text = CONCAT(N'job ', @job_id, N' is held by an open transaction');
        THROW 60043, @text, 1;
    END
    IF @now IS NULL RETURN;
    IF @last_token = 0 OR @token IS NULL OR @last_token <> @token
    BEGIN
        IF @last_token = 0
            SET @text = CONCAT(N'job ', @job_id, N' is not held with token ', @token, N': no reader has taken it yet');
        ELSE
            SET @text = CONCAT(N'the taking of job ', @job_id, N' with token ', @token,
                N' is over, or never was: the latest has another');
        THROW 60042, @text, 1;
    END
    IF @state <> 2
    BEGIN
        SET @text = CONCAT(N'job ', @job_id, N' is not taken: its attempt was reported, or has failed');
        THROW 60041, @text, 1;
    END
    -- A job that this transaction has reported on is locked by it, and its lease does not end before the transaction does.
    IF @holder IS NULL AND @due_at <= @now AND APPLOCK_MODE(N'dialoq_user', @resource, N'Transaction') <> N'Exclusive'
    BEGIN
        SET @text = CONCAT(N'the taking of job ', @job_id, N' with token ', @token, N' is over: its lease is over');
        THROW 60042, @text, 1;
    END
END
GO

-- Locks a job that the caller may change. A refusal leaves no lock: another session's take would pass the job over.
-- Takes, Gives, Errors: as check_job
CREATE PROCEDURE dialoq.lock_job
    @job_id bigint, @token bigint, @now datetime2(6), @queue_id int OUTPUT, @state smallint OUTPUT, @due_at datetime2(6) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048), @is_locked bit;
    EXEC dialoq.check_job @job_id, @token, @now, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    EXEC dialoq.try_lock_job @job_id, @is_locked OUTPUT;
    IF @is_locked = 0
    BEGIN
        SET @text = CONCAT(N'job ', @job_id, N' is held by an open transaction');
        THROW 60043, @text, 1;
    END
    BEGIN TRY
        -- Another transaction may have changed it before this one had the lock. A ready job may be on its way to a reader: its
        -- row is locked too, for which the COMMIT of that take is waited for.
        IF @now IS NULL UPDATE dialoq.job SET state = state WHERE job_id = @job_id;
        EXEC dialoq.check_job @job_id, @token, @now, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    END TRY
    BEGIN CATCH
        IF XACT_STATE() = 1 EXEC dialoq.unlock_job @job_id;
        THROW;
    END CATCH
END
GO

-- Locks a job that the caller may change, if it is still as a look at its queue found it.
-- Takes: the job; the token that it had (NULL: it may have changed); the name of its state (NULL: any)
-- Gives, Errors: as lock_job, and 60042
CREATE PROCEDURE dialoq.lock_seen_job
    @job_id bigint, @seen_token bigint, @seen_state nvarchar(4000), @queue_id int OUTPUT, @state smallint OUTPUT,
    @due_at datetime2(6) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048), @now datetime2(6) = dialoq.current_time_utc();
    EXEC dialoq.lock_job @job_id, NULL, NULL, @queue_id OUTPUT, @state OUTPUT, @due_at OUTPUT;
    IF @seen_token IS NULL AND @seen_state IS NULL OR EXISTS (
        SELECT 1
        FROM dialoq.job AS j
        WHERE j.job_id = @job_id AND (@seen_token IS NULL OR j.token = @seen_token)
            AND (@seen_state IS NULL OR @seen_state = CASE
                WHEN j.state = 0 AND j.due_at > @now THEN N'scheduled'
                WHEN j.state IN (0, 1) THEN N'ready'
                WHEN j.state = 2 AND j.due_at <= @now THEN N'lost'
                WHEN j.state = 2 THEN N'taken'
                ELSE N'dead' END))
        RETURN;
    EXEC dialoq.unlock_job @job_id;
    SET @text = CONCAT(N'job ', @job_id, N' has changed since it was looked at; look again');
    THROW 60042, @text, 1;
END
GO

-- Runs one job that is due: a scheduled one becomes ready, a lease that is over is a failed attempt. A job that another
-- transaction holds is passed over: no lease ends under a transaction that reports on its job. A job whose row makes this fail
-- is dead.
-- Gives: is_locked, 0 if it was passed over, NULL if an error that passes (is_passing_error) keeps it from being done, and failure says
--     why; notices, added to @notices
-- Errors: those that leave the transaction unusable
CREATE PROCEDURE dialoq.run_due_job
    @job_id bigint, @now datetime2(6), @is_locked bit OUTPUT, @notices nvarchar(max) OUTPUT, @failure nvarchar(2048) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @queue_id int, @state smallint, @error_number int, @error_message nvarchar(4000), @is_passing bit;
    SAVE TRANSACTION dialoq_step;
    BEGIN TRY
        EXEC dialoq.try_lock_job @job_id, @is_locked OUTPUT;
        IF @is_locked = 1
            SELECT @queue_id = j.queue_id, @state = j.state
            FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST)
            WHERE j.job_id = @job_id AND j.due_at <= @now AND j.holder IS NULL;
        IF @state = 2
            EXEC dialoq.fail_attempt @job_id, N'its lease was over', NULL, 0, @now, @state OUTPUT, @notices OUTPUT;
        ELSE IF @state = 0
        BEGIN
            UPDATE dialoq.job SET state = 1, due_at = NULL WHERE job_id = @job_id;
            SET @notices = CONCAT(@notices, N' q:', @queue_id);
        END
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @error_message = ERROR_MESSAGE();
        SET @is_passing = dialoq.is_passing_error(@error_number, ERROR_SEVERITY());
        IF XACT_STATE() <> 1 THROW;
        ROLLBACK TRANSACTION dialoq_step;
        SET @is_locked = CASE @is_passing WHEN 0 THEN 1 END;
        IF @is_passing = 1 SET @failure = CONCAT(N'error ', @error_number, N': ', LEFT(@error_message, 2000));
        ELSE EXEC dialoq.bury_job @job_id, @error_message;
    END CATCH
END
GO

-- Whether the server and no row is at fault, so that the same step may go well soon: a deadlock, a lock that was not granted in time,
-- rows that moved under a read of uncommitted ones (601), a row without a version (3958, 3960, 3966, 3967), and from severity 17 on a
-- lack of space, memory or locks.
CREATE FUNCTION dialoq.is_passing_error(@error_number int, @severity int) RETURNS bit AS
BEGIN
    RETURN CASE WHEN @severity >= 17 OR @error_number IN (601, 1205, 1222, 3958, 3960, 3966, 3967, 51205) THEN 1 ELSE 0 END;
END
GO

-- A job whose row is damaged is dead.
CREATE PROCEDURE dialoq.bury_job
    @job_id bigint, @why nvarchar(4000)
AS
BEGIN
    SET NOCOUNT ON;
    UPDATE dialoq.job WITH (ROWLOCK, READPAST)
    SET state = 3, due_at = NULL, process = NULL, holder = NULL,
        last_error = CONCAT(N'its row is damaged: ', LEFT(@why, 2000))
    WHERE job_id = @job_id;
END
GO

-- The next job of a process that has ended: its transactions are gone, or will not commit, because the commit finds its jobs no
-- longer held. The jobs of processes that live are not read.
-- Takes: the process, the transaction and the token after which to look, which move on
-- Gives: the job; NULL if there is none
CREATE PROCEDURE dialoq.next_job_of_dead_process
    @process uniqueidentifier OUTPUT, @holder uniqueidentifier OUTPUT, @token bigint OUTPUT, @job_id bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @next uniqueidentifier, @is_dead bit;
    SET @job_id = NULL;
    IF @holder IS NOT NULL
        SELECT TOP (1) @job_id = j.job_id, @token = j.token, @holder = j.holder
        FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_holder), FORCESEEK)
        WHERE j.process = @process AND (j.holder > @holder OR j.holder = @holder AND j.token > @token)
        ORDER BY j.holder, j.token;
    WHILE @job_id IS NULL
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = j.process
        FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_holder))
        WHERE j.process IS NOT NULL AND (@process IS NULL OR j.process > @process) ORDER BY j.process;
        IF @next IS NULL BREAK;
        SET @process = @next;
        SET @is_dead = APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:process:', LOWER(CAST(@process AS nvarchar(36)))), N'Exclusive',
            N'Transaction');
        IF @is_dead = 1
            SELECT TOP (1) @job_id = j.job_id, @token = j.token, @holder = j.holder
            FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST, INDEX (job_holder), FORCESEEK)
            WHERE j.process = @process
            ORDER BY j.holder, j.token;
    END
END
GO

-- Fails the attempt at a job whose process has ended. A job whose row makes this fail is dead.
-- Gives: is_failed, as is_locked of run_due_job; notices, added to @notices; failure
-- Errors: those that leave the transaction unusable
CREATE PROCEDURE dialoq.fail_job_of_dead_process
    @job_id bigint, @process uniqueidentifier, @token bigint, @now datetime2(6), @is_failed bit OUTPUT,
    @notices nvarchar(max) OUTPUT, @failure nvarchar(2048) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @state smallint, @is_locked bit, @error_number int, @error_message nvarchar(4000), @is_passing bit;
    SET @is_failed = 0;
    SAVE TRANSACTION dialoq_step;
    BEGIN TRY
        EXEC dialoq.try_lock_job @job_id, @is_locked OUTPUT;
        IF @is_locked = 1 AND EXISTS (
            SELECT 1 FROM dialoq.job AS j WITH (READCOMMITTEDLOCK, READPAST)
            WHERE j.job_id = @job_id AND j.process = @process AND j.token = @token)
        BEGIN
            EXEC dialoq.fail_attempt @job_id, N'its reader ended before its transaction did', NULL, 0, @now, @state OUTPUT,
                @notices OUTPUT;
            SET @is_failed = 1;
        END
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @error_message = ERROR_MESSAGE();
        SET @is_passing = dialoq.is_passing_error(@error_number, ERROR_SEVERITY());
        IF XACT_STATE() <> 1 THROW;
        ROLLBACK TRANSACTION dialoq_step;
        SET @is_failed = CASE @is_passing WHEN 0 THEN 1 END;
        IF @is_passing = 1 SET @failure = CONCAT(N'error ', @error_number, N': ', LEFT(@error_message, 2000));
        ELSE EXEC dialoq.bury_job @job_id, @error_message;
    END CATCH
END
GO
