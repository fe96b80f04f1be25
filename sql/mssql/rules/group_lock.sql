-- Locks of conversation groups: sp_getapplock over 'dialoq:group:' and the group's id, held to the end of the transaction. If
-- the transaction uses savepoints, the session's context has 'dialoq.session_locks' = 1: the locks then belong to the
-- session, because a rollback to a savepoint must keep them, and unlock_session frees them.
-- Each lock is tested before it is requested, because Babelfish answers a failed request badly. A resource name that holds no
-- GUID names the database, because Babelfish shares application locks between databases. All locks have the principal
-- dialoq_user: only members of that role and owners of the database can hold them, while any user can hold a lock of the
-- principal public.
-- Takes: see each procedure
-- Gives: see each procedure
-- Errors: 51205: SQL Server ended the wait as a deadlock, or a definition waited longer than 250 ms (define_begin); roll back and
--     run the transaction again
-- Locks: the groups named
-- Called by: dialoq_user (unlock_session)

-- Takes an application lock to the end of the transaction, unless another transaction holds it.
CREATE PROCEDURE dialoq.try_lock
    @resource nvarchar(255), @mode nvarchar(32), @is_locked bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @got int = -1;
    IF APPLOCK_TEST(N'dialoq_user', @resource, @mode, N'Transaction') = 1
        EXEC @got = sp_getapplock
            @Resource = @resource, @LockMode = @mode, @LockOwner = N'Transaction', @LockTimeout = 0,
            @DbPrincipal = N'dialoq_user';
    SET @is_locked = CASE WHEN @got >= 0 THEN 1 ELSE 0 END;
END
GO

-- Locks a group. is_locked: whether this transaction holds it now. is_new: whether it did not hold it before.
CREATE PROCEDURE dialoq.lock_group
    @group uniqueidentifier, @wait bit, @is_locked bit OUTPUT, @is_new bit = NULL OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:group:', @group);
    DECLARE @got int, @count int, @key nvarchar(128), @text nvarchar(2048), @wait_ms int = -1;
    SET @is_new = 0;
    SET @is_locked = 1;
    IF APPLOCK_MODE(N'dialoq_user', @resource, N'Transaction') = N'Exclusive'
        OR APPLOCK_MODE(N'dialoq_user', @resource, N'Session') = N'Exclusive'
        RETURN;
    SET @is_locked = 0;
    DECLARE @is_session bit = CASE WHEN CAST(SESSION_CONTEXT(N'dialoq.session_locks') AS int) = 1 THEN 1 ELSE 0 END;
    DECLARE @owner nvarchar(32) = CASE @is_session WHEN 1 THEN N'Session' ELSE N'Transaction' END;
    IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 1
        EXEC @got = sp_getapplock
            @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = @owner, @LockTimeout = 0,
            @DbPrincipal = N'dialoq_user';
    IF (@got IS NULL OR @got < 0) AND @wait = 1
    BEGIN
        IF APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':definer'), N'Transaction') = N'Exclusive'
            SET @wait_ms = 250;
        EXEC @got = sp_getapplock
            @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = @owner, @LockTimeout = @wait_ms,
            @DbPrincipal = N'dialoq_user';
    END
    IF @got >= 0
    BEGIN
        SET @is_locked = 1;
        SET @is_new = 1;
        IF @is_session = 1
        BEGIN
            SET @count = COALESCE(CAST(SESSION_CONTEXT(N'dialoq.locks') AS int), 0) + 1;
            SET @key = CONCAT(N'dialoq.lock.', @count);
            -- The id and not the name of the lock: a session's context holds 1 MB. If it is full, the lock is given back:
            -- unlock_session frees only locks that the context names.
            BEGIN TRY
                EXEC sp_set_session_context @key, @group;
                EXEC sp_set_session_context N'dialoq.locks', @count;
            END TRY
            BEGIN CATCH
                EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Session', @DbPrincipal = N'dialoq_user';
                THROW;
            END CATCH
        END
        RETURN;
    END
    IF @wait = 1
    BEGIN
        IF @wait_ms > 0
            SET @text = CONCAT(N'another transaction holds conversation group ', dialoq.id_text(@group),
                N', and other definitions must not wait for it; run the definition again');
        ELSE
            SET @text = dialoq.throw_text(CONCAT(N'the transaction waited for conversation group ', dialoq.id_text(@group),
                N', whose holder waits for one of this transaction''s: a deadlock, which lasts until this transaction is ',
                N'rolled back; roll back and run it again'));
        THROW 51205, @text, 1;
    END
END
GO

-- Frees a group that lock_group has just locked (is_new = 1) and whose conversations this transaction has not changed. Changes of
-- ready_group may be there: their own locks last to the end of the transaction. Babelfish frees only locks of the session.
CREATE PROCEDURE dialoq.unlock_group
    @group uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:group:', @group), @count int, @key nvarchar(128);
    IF COALESCE(CAST(SESSION_CONTEXT(N'dialoq.session_locks') AS int), 0) = 0
    BEGIN
        IF APPLOCK_MODE(N'dialoq_user', @resource, N'Transaction') = N'Exclusive'
            EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Transaction', @DbPrincipal = N'dialoq_user';
        RETURN;
    END
    IF APPLOCK_MODE(N'dialoq_user', @resource, N'Session') = N'Exclusive'
        EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Session', @DbPrincipal = N'dialoq_user';
    SET @count = COALESCE(CAST(SESSION_CONTEXT(N'dialoq.locks') AS int), 0);
    SET @key = CONCAT(N'dialoq.lock.', @count);
    -- Otherwise each RECEIVE of a long transaction could add an entry to the context, which has a limit.
    IF CAST(SESSION_CONTEXT(@key) AS uniqueidentifier) = @group
    BEGIN
        EXEC sp_set_session_context @key, NULL;
        SET @count = @count - 1;
        EXEC sp_set_session_context N'dialoq.locks', @count;
    END
END
GO

-- Waits until no other session holds a group. The group is not locked afterwards, unless this transaction held it before. Babelfish
-- keeps the lock of a group that was waited for to the end of the transaction.
-- Errors: as lock_group
CREATE PROCEDURE dialoq.wait_until_free
    @group uniqueidentifier
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @resource nvarchar(255) = CONCAT(N'dialoq:group:', @group), @is_locked bit, @is_new bit;
    IF APPLOCK_TEST(N'dialoq_user', @resource, N'Exclusive', N'Transaction') = 1 RETURN;
    EXEC dialoq.lock_group @group, 1, @is_locked OUTPUT, @is_new OUTPUT;
    IF @is_new = 1 AND APPLOCK_MODE(N'dialoq_user', @resource, N'Transaction') = N'Exclusive'
        EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Transaction', @DbPrincipal = N'dialoq_user';
END
GO

-- Frees the locks that savepoints made the session's; call it after the end of the transaction.
CREATE PROCEDURE dialoq.unlock_session
AS
BEGIN
    -- <settings>
    DECLARE @count int = COALESCE(CAST(SESSION_CONTEXT(N'dialoq.locks') AS int), 0);
    DECLARE @key nvarchar(128), @resource nvarchar(255);
    WHILE @count > 0
    BEGIN
        SET @key = CONCAT(N'dialoq.lock.', @count);
        SET @resource = CONCAT(N'dialoq:group:', CAST(SESSION_CONTEXT(@key) AS uniqueidentifier));
        IF APPLOCK_MODE(N'dialoq_user', @resource, N'Session') <> N'NoLock'
            EXEC sp_releaseapplock @Resource = @resource, @LockOwner = N'Session', @DbPrincipal = N'dialoq_user';
        EXEC sp_set_session_context @key, NULL;
        SET @count = @count - 1;
    END
    EXEC sp_set_session_context N'dialoq.locks', 0;
    EXEC sp_set_session_context N'dialoq.session_locks', 0;
END
GO

-- The group of an endpoint; NULL if the endpoint does not exist. The transaction that changes the row holds the group, so the
-- row is not waited for, with one exception: with `@wait` a row that is being deleted is waited for as long as lock_group
-- waits, because only the end of that transaction decides. Without `@wait` is_held is 1 if the row is being deleted and the
-- server keeps no version of it that could be read.
-- Errors: 51205
CREATE PROCEDURE dialoq.find_group
    @endpoint_id bigint, @wait bit, @group uniqueidentifier OUTPUT, @is_held bit = NULL OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    SET @group = NULL;
    SET @is_held = 0;
    SELECT @group = e.conversation_group_id
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) WHERE e.endpoint_id = @endpoint_id;
    IF @group IS NULL
        SELECT @group = e.conversation_group_id
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
    IF @group IS NOT NULL RETURN;
    IF @wait = 1
        AND APPLOCK_MODE(N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':definer'), N'Transaction') <> N'Exclusive'
    BEGIN
        SELECT @group = e.conversation_group_id
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
        RETURN;
    END
    IF @wait = 1 SET LOCK_TIMEOUT 250;
    ELSE SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    BEGIN TRY
        SELECT @group = e.conversation_group_id
        FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @is_held = 1;
        IF @wait = 0 RETURN;
        SET @text = dialoq.throw_text(CONCAT(N'another transaction is just ending the conversation of endpoint ', @endpoint_id,
            N', and other definitions must not wait for it; run the definition again'));
        THROW 51205, @text, 1;
    END CATCH
    SET LOCK_TIMEOUT -1;
END
GO

-- Locks the group of an endpoint and applies what is pending. is_locked: 1 if the endpoint exists and is locked, 0 if it does
-- not exist, NULL if `@wait` is 0 and another transaction holds the group.
CREATE PROCEDURE dialoq.lock_endpoint
    @endpoint_id bigint, @wait bit, @is_locked bit OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @group uniqueidentifier, @after uniqueidentifier, @got bit, @is_held bit;
    EXEC dialoq.find_group @endpoint_id, @wait, @group OUTPUT, @is_held OUTPUT;
    WHILE 1 = 1
    BEGIN
        IF @group IS NULL
        BEGIN
            SET @is_locked = CASE @is_held WHEN 0 THEN 0 END;
            RETURN;
        END
        EXEC dialoq.lock_group @group, @wait, @got OUTPUT;
        IF @got = 0
        BEGIN
            SET @is_locked = NULL;
            RETURN;
        END
        -- The endpoint may have ended or moved before this transaction got the lock.
        EXEC dialoq.find_group @endpoint_id, @wait, @after OUTPUT, @is_held OUTPUT;
        IF @after = @group BREAK;
        SET @group = @after;
    END
    SET @is_locked = 1;
    EXEC dialoq.apply_pending @endpoint_id, @notices OUTPUT;
    IF NOT EXISTS (SELECT 1 FROM dialoq.conversation_endpoint AS e WHERE e.endpoint_id = @endpoint_id)
        SET @is_locked = 0;
END
GO

-- The endpoint of a handle that an application may name, as it is committed, without waiting; NULL if there is none, -1 if
-- another transaction writes its row and the server keeps no version of it that could be read.
CREATE PROCEDURE dialoq.find_handle
    @conversation_handle uniqueidentifier, @endpoint_id bigint OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    SET @endpoint_id = NULL;
    BEGIN TRY
        SELECT @endpoint_id = e.endpoint_id
        FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_handle), FORCESEEK)
        WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @endpoint_id = -1;
    END CATCH
END
GO

-- The endpoint of a handle that an application may name, its group locked; NULL if there is none, -1 if `@wait` is 0 and
-- another transaction holds it.
CREATE PROCEDURE dialoq.lock_handle
    @conversation_handle uniqueidentifier, @wait bit, @endpoint_id bigint OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_locked bit;
    SET @endpoint_id = NULL;
    SELECT @endpoint_id = e.endpoint_id
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
    WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0;
    -- A row that another transaction inserts does not exist here. One that it removes does: that may roll back.
    IF @endpoint_id IS NULL EXEC dialoq.find_handle @conversation_handle, @endpoint_id OUTPUT;
    IF @endpoint_id = -1 AND @wait = 1
    BEGIN
        SET @endpoint_id = NULL;
        SELECT @endpoint_id = e.endpoint_id
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
        WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0;
        IF @endpoint_id IS NULL
            SELECT @endpoint_id = e.endpoint_id
            FROM dialoq.conversation_endpoint AS e WITH (INDEX (conversation_endpoint_handle), FORCESEEK)
            WHERE e.conversation_handle = @conversation_handle AND e.is_system = 0;
    END
    IF @endpoint_id IS NULL OR @endpoint_id = -1 RETURN;
    EXEC dialoq.lock_endpoint @endpoint_id, @wait, @is_locked OUTPUT, @notices OUTPUT;
    IF @is_locked IS NULL SET @endpoint_id = -1;
    IF @is_locked = 0 SET @endpoint_id = NULL;
END
GO

-- The same with a wait for the lock, and 8426 if there is no endpoint.
CREATE PROCEDURE dialoq.lock_open
    @conversation_handle uniqueidentifier, @endpoint_id bigint OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    EXEC dialoq.lock_handle @conversation_handle, 1, @endpoint_id OUTPUT, @notices OUTPUT;
    IF @endpoint_id IS NULL
    BEGIN
        SET @text = dialoq.unknown_handle_text(@conversation_handle);
        THROW 58426, @text, 1;
    END
END
GO

-- Locks the group of a conversation that this side has not ended, waiting.
-- Errors: 58426, and the one given
CREATE PROCEDURE dialoq.lock_unended
    @conversation_handle uniqueidentifier, @error_number int, @statement nvarchar(64), @endpoint_id bigint OUTPUT,
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    EXEC dialoq.lock_handle @conversation_handle, 0, @endpoint_id OUTPUT, @notices OUTPUT;
    IF @endpoint_id IS NULL OR @endpoint_id = -1
    BEGIN
        EXEC dialoq.check_not_ended @conversation_handle, @error_number, @statement;
        EXEC dialoq.lock_open @conversation_handle, @endpoint_id OUTPUT, @notices OUTPUT;
    END
    EXEC dialoq.check_not_ended @conversation_handle, @error_number, @statement;
END
GO
