-- What definitions and tick have in common: looking at endpoints once more.
-- Takes: see each procedure
-- Gives: words for others, added to notices
-- Errors: see each procedure
-- Locks: see each procedure

-- Refuses a name that ends in a space: no index of SQL Server tells it from the name without.
-- Errors: 60003
IF OBJECT_ID(N'dialoq.check_name') IS NOT NULL DROP PROCEDURE dialoq.check_name
GO
CREATE PROCEDURE dialoq.check_name
    @name nvarchar(4000)
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @text nvarchar(2048);
    IF RIGHT(@name COLLATE Latin1_General_100_BIN2, 1) <> N' ' RETURN;
    SET @text = dialoq.throw_text(CONCAT(N'the name ''', @name, N''' is empty or ends in a space, and SQL Server compares names without spaces at ',
        N'their end; take another'));
    THROW 60003, @text, 1;
END
GO

-- The words of who holds a lock of Dialoq's that was not had in time: his session, if this user may see the server's
-- state, else the query that names it.
IF OBJECT_ID(N'dialoq.find_holder') IS NOT NULL DROP PROCEDURE dialoq.find_holder
GO
CREATE PROCEDURE dialoq.find_holder
    @resource nvarchar(255), @holder nvarchar(1000) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @session int, @pattern nvarchar(300) = CONCAT(N'%', @resource, N'%');
    SET @holder = CONCAT(N'another session; SELECT request_session_id FROM sys.dm_tran_locks WHERE resource_type = ',
        N'''APPLICATION'' AND resource_description LIKE ''', @pattern, N''' names it');
    IF SERVERPROPERTY('Babelfish') IS NOT NULL RETURN;
    IF HAS_PERMS_BY_NAME(NULL, NULL, N'VIEW SERVER STATE') = 1
        EXEC sp_executesql N'SELECT TOP (1) @session = l.request_session_id FROM sys.dm_tran_locks AS l
            WHERE l.resource_type = ''APPLICATION'' AND l.request_status = ''GRANT'' AND l.resource_database_id = DB_ID()
                AND l.resource_description LIKE @pattern',
            N'@pattern nvarchar(300), @session int OUTPUT', @pattern = @pattern, @session = @session OUTPUT;
    IF @session IS NOT NULL SET @holder = CONCAT(N'session ', @session);
END
GO

-- Lets one transaction change definitions at a time, until its end; waits for it, 30 seconds at most.
-- Errors: 51205, 60018
IF OBJECT_ID(N'dialoq.lock_definitions') IS NOT NULL DROP PROCEDURE dialoq.lock_definitions
GO
CREATE PROCEDURE dialoq.lock_definitions
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @got int, @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':define');
    DECLARE @text nvarchar(2048), @holder nvarchar(1000);
    IF APPLOCK_MODE(N'dialoq_user', @resource, N'Transaction') = N'Exclusive' RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 30000,
        @DbPrincipal = N'dialoq_user';
    IF @got >= 0 RETURN;
    IF @got <> -1
        THROW 51205, N'the transaction waited for a change of definitions: a deadlock; roll back and run it again', 1;
    EXEC dialoq.find_holder @resource, @holder OUTPUT;
    SET @text = dialoq.throw_text(CONCAT(N'definitions could not be locked within 30 s: ', @holder,
        N' changes them; end its transaction, then run the definition again'));
    THROW 60018, @text, 1;
END
GO

-- Locks the definitions unless another transaction changes them for longer than a moment; is_locked says whether it did.
IF OBJECT_ID(N'dialoq.try_lock_definitions') IS NOT NULL DROP PROCEDURE dialoq.try_lock_definitions
GO
CREATE PROCEDURE dialoq.try_lock_definitions
    @is_locked bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @got int, @resource nvarchar(255) = CONCAT(N'dialoq:', DB_ID(), N':define');
    SET @is_locked = 1;
    IF APPLOCK_MODE(N'dialoq_user', @resource, N'Transaction') = N'Exclusive' RETURN;
    EXEC @got = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 250,
        @DbPrincipal = N'dialoq_user';
    IF @got < 0 SET @is_locked = 0;
END
GO

-- Delivers a row of the transmission queue, or without one writes why an endpoint's messages wait, in a savepoint of its own: one
-- that fails is left to tick, which tries again. One that leaves the transaction unusable is thrown, named: the transaction is
-- that of the definition, so nothing can go on in it.
-- Locks: the group, without waiting; if another transaction holds it, the endpoint is left to tick
IF OBJECT_ID(N'dialoq.try_revisit') IS NOT NULL DROP PROCEDURE dialoq.try_revisit
GO
CREATE PROCEDURE dialoq.try_revisit
    @endpoint_id bigint, @transmission_id bigint, @reason nvarchar(256), @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @is_locked bit, @may_go_on bit, @conversation_id uniqueidentifier, @is_initiator bit, @text nvarchar(2048);
    DECLARE @handle uniqueidentifier, @error_number int;
    SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator, @handle = e.conversation_handle
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
    SAVE TRANSACTION dialoq_revisit;
    BEGIN TRY
        EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @notices OUTPUT;
        IF @is_locked = 1 AND @transmission_id IS NOT NULL
            EXEC dialoq.deliver @transmission_id, @may_go_on OUTPUT, @notices OUTPUT;
        IF @is_locked = 1 AND @transmission_id IS NULL
            EXEC dialoq.hold_outbox @endpoint_id, @reason;
    END TRY
    BEGIN CATCH
        SET @error_number = ERROR_NUMBER();
        SET @text = dialoq.throw_text(CONCAT(N'conversation ', dialoq.id_text(@handle),
            N' keeps the definition from taking effect (error ', @error_number, N': ', LEFT(ERROR_MESSAGE(), 1000),
            N'); end it WITH CLEANUP, then run the definition again'));
        IF @error_number IN (1205, 51205) THROW;
        IF XACT_STATE() <> 1 THROW 60018, @text, 1;
        ROLLBACK TRANSACTION dialoq_revisit;
        SET @is_locked = NULL;
    END CATCH
    IF @is_locked IS NULL AND @conversation_id IS NOT NULL
        EXEC dialoq.request_recheck @endpoint_id, @conversation_id, @is_initiator;
END
GO

-- Looks at everything that waits after definitions have changed: sends what can go, by level if HONOR_BROKER_PRIORITY is
-- ON, brings the reason of the rest up to date. Endpoints that another transaction holds are left to tick.
-- Locks: the groups of what can go or changes its reason, without waiting
IF OBJECT_ID(N'dialoq.revisit_outboxes') IS NOT NULL DROP PROCEDURE dialoq.revisit_outboxes
GO
CREATE PROCEDURE dialoq.revisit_outboxes
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @held TABLE (endpoint_id bigint NOT NULL PRIMARY KEY);
    DECLARE @order TABLE (place int IDENTITY(1, 1) PRIMARY KEY, transmission_id bigint NOT NULL, endpoint_id bigint NOT NULL);
    DECLARE @honor bit, @endpoint_id bigint = -1, @next bigint, @status nvarchar(256), @place int = 0, @id bigint;
    DECLARE @way nvarchar(10), @peer_id bigint, @service_id int, @reason nvarchar(256), @code int, @state nvarchar(2);
    SELECT @honor = b.is_honor_broker_priority_on FROM dialoq.broker AS b WHERE b.singleton = 1;
    -- One look for each endpoint; what stays as it is needs no lock.
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = t.endpoint_id, @status = t.status, @state = e.state
        FROM dialoq.transmission AS t WITH (READCOMMITTEDLOCK, READPAST)
        LEFT JOIN dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) ON e.endpoint_id = t.endpoint_id
        WHERE t.endpoint_id > @endpoint_id AND (e.state IS NULL OR e.state NOT IN (N'DI', N'ER'))
        ORDER BY t.endpoint_id, t.transmission_id;
        IF @next IS NULL BREAK;
        SET @endpoint_id = @next;
        -- READPAST passes over the row of an endpoint on which another transaction sends. If nothing looked again, all that
        -- the endpoint has in the transmission queue would wait for its next SEND.
        IF @state IS NULL
        BEGIN
            INSERT INTO dialoq.recheck_queue (endpoint_id, conversation_id, is_initiator, recheck_at)
            SELECT e.endpoint_id, e.conversation_id, e.is_initiator, DATEADD(millisecond, 500, SYSUTCDATETIME())
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
            CONTINUE;
        END
        EXEC dialoq.route @endpoint_id, @way OUTPUT, @peer_id OUTPUT, @service_id OUTPUT, @reason OUTPUT, @code OUTPUT;
        IF @way <> N'delayed'
        BEGIN
            INSERT INTO @held (endpoint_id) VALUES (@endpoint_id);
            CONTINUE;
        END
        IF @reason = @status CONTINUE;
        EXEC dialoq.try_revisit @endpoint_id, NULL, @reason, @notices OUTPUT;
    END
    -- A message never goes before an earlier one of its conversation, whose level may be lower: reprioritise changes the
    -- level of later messages only.
    INSERT INTO @order (transmission_id, endpoint_id)
    SELECT o.transmission_id, o.endpoint_id
    FROM (
        SELECT t.transmission_id, t.endpoint_id,
            MAX(10 - t.priority) OVER (PARTITION BY t.endpoint_id ORDER BY t.transmission_id ROWS UNBOUNDED PRECEDING) AS rank_from_top
        FROM dialoq.transmission AS t WITH (READCOMMITTEDLOCK, READPAST) JOIN @held AS h ON h.endpoint_id = t.endpoint_id
    ) AS o
    ORDER BY CASE @honor WHEN 1 THEN o.rank_from_top ELSE 0 END, o.transmission_id;
    WHILE 1 = 1
    BEGIN
        SET @id = NULL;
        SELECT TOP (1) @place = o.place, @id = o.transmission_id, @endpoint_id = o.endpoint_id
        FROM @order AS o WHERE o.place > @place ORDER BY o.place;
        IF @id IS NULL BREAK;
        EXEC dialoq.try_revisit @endpoint_id, @id, NULL, @notices OUTPUT;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
END
GO

-- Whether a conversation has its other endpoint; 1 too while a transaction makes or removes it, which may have sent to this
-- side before. Waits for no row: one that cannot be read is there.
IF OBJECT_ID(N'dialoq.has_peer') IS NOT NULL DROP PROCEDURE dialoq.has_peer
GO
CREATE PROCEDURE dialoq.has_peer
    @conversation_id uniqueidentifier, @is_initiator bit, @is_there bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    SET LOCK_TIMEOUT 0;
    SET XACT_ABORT OFF;
    DECLARE @other bit = CASE @is_initiator WHEN 1 THEN 0 ELSE 1 END;
    SET @is_there = 1;
    IF EXISTS (
        SELECT 1 FROM dialoq.conversation_endpoint AS p WITH (READUNCOMMITTED)
        WHERE p.conversation_id = @conversation_id AND p.is_initiator = @other)
        RETURN;
    BEGIN TRY
        IF NOT EXISTS (
            SELECT 1 FROM dialoq.conversation_endpoint AS p WITH (INDEX (conversation_endpoint_peer), FORCESEEK)
            WHERE p.conversation_id = @conversation_id AND p.is_initiator = @other)
            SET @is_there = 0;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
    END CATCH
END
GO

-- The look that unsettle asks for: removes what reached an endpoint that is gone, brings one that is there up to date,
-- sends what can go, and puts its group's rows right. is_done: whether it is done; not while another transaction holds
-- its group, or the peer's, whose transaction may have told it something that nobody sees yet, or changes definitions.
IF OBJECT_ID(N'dialoq.recheck') IS NOT NULL DROP PROCEDURE dialoq.recheck
GO
CREATE PROCEDURE dialoq.recheck
    @endpoint_id bigint, @conversation_id uniqueidentifier, @is_initiator bit, @is_settled bit OUTPUT,
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @peer_id bigint, @state nvarchar(2), @group uniqueidentifier, @service_id int, @is_system bit;
    DECLARE @is_locked bit, @is_ready bit, @queue_id int, @is_there bit;
    SET @is_settled = 0;
    IF APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:', DB_ID(), N':define'), N'Shared', N'Transaction') = 0 RETURN;
    IF @endpoint_id = 0
    BEGIN
        EXEC dialoq.recheck_definitions @is_initiator, @is_settled OUTPUT, @notices OUTPUT;
        RETURN;
    END
    SELECT @peer_id = p.endpoint_id, @group = p.conversation_group_id
    FROM dialoq.conversation_endpoint AS p WITH (READCOMMITTEDLOCK, READPAST)
    WHERE p.conversation_id = @conversation_id AND p.is_initiator = CASE @is_initiator WHEN 1 THEN 0 ELSE 1 END;
    IF @peer_id IS NULL
    BEGIN
        EXEC dialoq.has_peer @conversation_id, @is_initiator, @is_there OUTPUT;
        IF @is_there = 1 RETURN;
    END
    IF @peer_id IS NOT NULL
        AND APPLOCK_TEST(N'dialoq_user', CONCAT(N'dialoq:group:', @group), N'Exclusive', N'Transaction') = 0
        RETURN;
    EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @notices OUTPUT;
    IF @is_locked IS NULL RETURN;
    SET @is_settled = 1;
    IF @is_locked = 0
    BEGIN
        DELETE FROM dialoq.queue_message WITH (ROWLOCK, READPAST) WHERE endpoint_id = @endpoint_id;
        RETURN;
    END
    EXEC dialoq.redeliver @endpoint_id, @notices OUTPUT;
    SET @group = NULL;
    SELECT @group = e.conversation_group_id, @queue_id = s.queue_id
    FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.endpoint_id = @endpoint_id;
    IF @group IS NULL RETURN;
    EXEC dialoq.rebuild_ready_rows @group, @is_ready OUTPUT;
    IF @is_ready = 1 SET @notices = CONCAT(@notices, N' q:', @queue_id);
END
GO

-- Has tick look again at all that a change of definitions concerns: at once, in five seconds and in a minute, because
-- transactions that ran when it was committed may have gone by what was before. No right of a user's tells when the last
-- of them is over. The looks of an earlier definition that are still to come are later ones' too: the looks read all
-- endpoints, and the last one (is_initiator is 1) all messages, so ten definitions in a row have no more of them than one.
IF OBJECT_ID(N'dialoq.request_recheck_of_definitions') IS NOT NULL DROP PROCEDURE dialoq.request_recheck_of_definitions
GO
CREATE PROCEDURE dialoq.request_recheck_of_definitions
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @clock datetime2(6) = SYSUTCDATETIME();
    DECLARE @no_conversation uniqueidentifier = CAST(N'00000000-0000-0000-0000-000000000000' AS uniqueidentifier);
    DELETE FROM dialoq.recheck_queue WITH (ROWLOCK, READPAST) WHERE endpoint_id = 0;
    INSERT INTO dialoq.recheck_queue (endpoint_id, conversation_id, is_initiator, recheck_at)
    SELECT 0, @no_conversation, l.is_last, DATEADD(second, l.wait_s, @clock)
    FROM (VALUES (0, 0), (5, 0), (60, 1)) AS l (wait_s, is_last);
END
GO

-- The second look at one endpoint of recheck_definitions, in a savepoint of its own: one that fails keeps no other from it.
IF OBJECT_ID(N'dialoq.try_recheck') IS NOT NULL DROP PROCEDURE dialoq.try_recheck
GO
CREATE PROCEDURE dialoq.try_recheck
    @endpoint_id bigint, @conversation_id uniqueidentifier, @is_initiator bit, @code int, @is_settled bit OUTPUT,
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @peer_id bigint, @state nvarchar(2), @group uniqueidentifier, @service_id int, @is_system bit, @is_locked bit;
    DECLARE @body varbinary(max), @far_body varbinary(max);
    SET @is_settled = 1;
    SAVE TRANSACTION dialoq_wrong;
    BEGIN TRY
        EXEC dialoq.find_peer @conversation_id, @is_initiator, @peer_id OUTPUT, @state OUTPUT, @group OUTPUT,
            @service_id OUTPUT, @is_system OUTPUT;
        IF @code = -8470
        BEGIN
            EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @notices OUTPUT;
            IF @is_locked IS NULL SET @is_settled = 0;
            IF @is_locked = 1
            BEGIN
                SET @body = dialoq.error_body(-8470, N'the remote service was dropped');
                IF @peer_id IS NOT NULL EXEC dialoq.add_error @peer_id, @body, @notices OUTPUT;
                EXEC dialoq.erase @endpoint_id, @notices OUTPUT;
            END
        END
        ELSE
        BEGIN
            -- One that was told already is not told again.
            SET @body = dialoq.error_body(@code, CASE @code
                WHEN -8487 THEN N'the contract of the conversation was dropped'
                ELSE N'the service was altered: it lost the contract' END);
            EXEC dialoq.add_error @endpoint_id, @body, @notices OUTPUT;
            SET @far_body = dialoq.error_body(-8469, N'the remote service was altered: it lost the contract');
            IF @code <> -8487 AND @peer_id IS NOT NULL EXEC dialoq.add_error @peer_id, @far_body, @notices OUTPUT;
        END
    END TRY
    BEGIN CATCH
        IF XACT_STATE() <> 1 OR ERROR_NUMBER() IN (1205, 51205) THROW;
        ROLLBACK TRANSACTION dialoq_wrong;
        SET @is_settled = 0;
    END CATCH
END
GO

-- The second look at a change of definitions: endpoints of a service that is gone, over a contract that is gone, at a
-- target that lost it, and in the last look messages of endpoints that are gone. At most 500 endpoints at a time.
IF OBJECT_ID(N'dialoq.recheck_definitions') IS NOT NULL DROP PROCEDURE dialoq.recheck_definitions
GO
CREATE PROCEDURE dialoq.recheck_definitions
    @is_last bit, @is_settled bit OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @wrong TABLE (
        row_number int IDENTITY(1, 1) PRIMARY KEY, endpoint_id bigint NOT NULL, conversation_id uniqueidentifier NOT NULL,
        is_initiator bit NOT NULL, code int NOT NULL
    );
    DECLARE @number int = 0, @id bigint, @conversation_id uniqueidentifier, @is_initiator bit, @code int;
    DECLARE @is_one_settled bit;
    SET @is_settled = 1;
    INSERT INTO @wrong (endpoint_id, conversation_id, is_initiator, code)
    SELECT TOP (500) e.endpoint_id, e.conversation_id, e.is_initiator,
        CASE WHEN s.service_id IS NULL THEN -8470 WHEN c.is_dropped = 1 THEN -8487 ELSE -8468 END
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
    LEFT JOIN dialoq.service AS s ON s.service_id = e.service_id
    LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
    LEFT JOIN dialoq.service_contract_usage AS u
        ON u.service_id = e.service_id AND u.service_contract_id = e.service_contract_id
    -- An endpoint that has its Error keeps its state until its group is locked. Without this condition each look would read the
    -- same 500 endpoints again, and never others.
    WHERE e.is_system = 0 AND (s.service_id IS NULL OR e.state IN (N'SO', N'CO', N'DI')
        AND (c.is_dropped = 1 OR e.is_initiator = 0 AND u.service_id IS NULL)
        AND NOT EXISTS (
            SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
            WHERE m.endpoint_id = e.endpoint_id AND m.delivery_class = 1))
    ORDER BY e.endpoint_id;
    WHILE 1 = 1
    BEGIN
        SET @id = NULL;
        SELECT TOP (1) @number = w.row_number, @id = w.endpoint_id, @conversation_id = w.conversation_id,
            @is_initiator = w.is_initiator, @code = w.code
        FROM @wrong AS w WHERE w.row_number > @number ORDER BY w.row_number;
        IF @id IS NULL BREAK;
        EXEC dialoq.try_recheck @id, @conversation_id, @is_initiator, @code, @is_one_settled OUTPUT, @notices OUTPUT;
        IF @is_one_settled = 0 SET @is_settled = 0;
    END
    IF @number >= 500 SET @is_settled = 0;
    IF @is_last = 0 RETURN;
    DECLARE @gone TABLE (endpoint_id bigint NOT NULL PRIMARY KEY);
    INSERT INTO @gone (endpoint_id)
    SELECT DISTINCT m.endpoint_id
    FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST)
    WHERE NOT EXISTS (
        SELECT 1 FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = m.endpoint_id);
    -- One that is just being removed may come back. If its row cannot be read without waiting, the look comes again.
    SET LOCK_TIMEOUT 0;
    BEGIN TRY
        DELETE FROM g
        FROM @gone AS g JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = g.endpoint_id;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() <> 1222 THROW;
        SET @is_settled = 0;
        RETURN;
    END CATCH
    SET LOCK_TIMEOUT -1;
    DELETE FROM m
    FROM @gone AS g
    JOIN dialoq.queue_message AS m WITH (ROWLOCK, READPAST, FORCESEEK) ON m.endpoint_id = g.endpoint_id
    OPTION (LOOP JOIN, FORCE ORDER);
END
GO

-- Locks the groups of endpoints, waiting, in the order that every verb uses, and applies what is pending on the endpoints.
IF OBJECT_ID(N'dialoq.lock_affected') IS NOT NULL DROP PROCEDURE dialoq.lock_affected
GO
CREATE PROCEDURE dialoq.lock_affected
    @service_id int, @contract_id int, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @order TABLE (place int IDENTITY(1, 1) PRIMARY KEY, endpoint_id bigint NOT NULL);
    DECLARE @place int = 0, @id bigint, @is_locked bit;
    INSERT INTO @order (endpoint_id)
    SELECT e.endpoint_id
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
    WHERE (@service_id IS NULL OR e.service_id = @service_id)
        AND (@contract_id IS NULL OR e.service_contract_id = @contract_id)
    ORDER BY e.conversation_group_id, e.endpoint_id;
    WHILE 1 = 1
    BEGIN
        SET @id = NULL;
        SELECT TOP (1) @place = o.place, @id = o.endpoint_id FROM @order AS o WHERE o.place > @place ORDER BY o.place;
        IF @id IS NULL BREAK;
        EXEC dialoq.lock_endpoint @id, 1, @is_locked OUTPUT, @notices OUTPUT;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
END
GO
