-- Rechecks: tick checks an endpoint again because a concurrent transaction may have changed it, its peer or the definitions
-- without having seen this transaction.
-- Takes: see each procedure
-- Gives: notices, added to @notices
-- Errors: deadlocks, and errors that leave the transaction unusable
-- Locks: groups, without waiting

-- Requests a recheck of an endpoint: tick does it when no other transaction holds the group of the peer. Needs no lock.
CREATE PROCEDURE dialoq.request_recheck
    @endpoint_id bigint, @conversation_id uniqueidentifier, @is_initiator bit
AS
BEGIN
    SET NOCOUNT ON;
    INSERT INTO dialoq.recheck_queue (endpoint_id, conversation_id, is_initiator, recheck_at)
    VALUES (@endpoint_id, @conversation_id, @is_initiator, DATEADD(millisecond, 500, SYSUTCDATETIME()));
END
GO

-- Whether a conversation has its other endpoint; 1 too while a transaction makes or removes it, which may have sent to this
-- side before. Waits for no row: one that cannot be read is there.
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

-- Whether a recheck of an endpoint would announce or deliver a message now: one that is committed, and that no row of ready_group
-- leads to, or whose way is free.
CREATE PROCEDURE dialoq.hides_message
    @endpoint_id bigint, @is_there bit OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @way nvarchar(12), @peer_id bigint, @service_id int, @status nvarchar(256), @code int;
    SET @is_there = 0;
    IF EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.endpoint_id = @endpoint_id AND e.is_quarantined = 0 AND e.state NOT IN (N'DO', N'CD') AND s.queue_id <> 0
            AND EXISTS (
                SELECT 1 FROM dialoq.queue_message AS m WITH (READCOMMITTEDLOCK, READPAST) WHERE m.endpoint_id = e.endpoint_id)
            AND NOT EXISTS (
                SELECT 1 FROM dialoq.ready_group AS r WITH (READUNCOMMITTED)
                WHERE r.conversation_group_id = e.conversation_group_id AND r.queue_id = s.queue_id
                    AND r.rank_from_top = 10 - e.priority))
    BEGIN
        SET @is_there = 1;
        RETURN;
    END
    IF NOT EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        JOIN dialoq.transmission AS t WITH (READCOMMITTEDLOCK, READPAST) ON t.endpoint_id = e.endpoint_id
        WHERE e.endpoint_id = @endpoint_id AND e.state NOT IN (N'DI', N'ER'))
        RETURN;
    EXEC dialoq.route @endpoint_id, @way OUTPUT, @peer_id OUTPUT, @service_id OUTPUT, @status OUTPUT, @code OUTPUT;
    IF @way <> N'delayed' SET @is_there = 1;
END
GO

-- Rechecks an endpoint: removes messages of an endpoint that does not exist, applies what is pending, sends what can go, and
-- corrects the group's rows of ready_group. is_settled is 0 while another transaction holds its group or the peer's, or
-- changes definitions: it may have sent a message that is not committed yet. A message that is committed does not wait for the
-- transaction that holds the peer's group.
CREATE PROCEDURE dialoq.recheck
    @endpoint_id bigint, @conversation_id uniqueidentifier, @is_initiator bit, @is_settled bit OUTPUT,
    @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @peer_id bigint, @state nvarchar(2), @group uniqueidentifier, @service_id int, @is_system bit;
    DECLARE @is_locked bit, @is_ready bit, @queue_id int, @is_there bit, @is_peer_held bit = 0;
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
    BEGIN
        SET @is_peer_held = 1;
        EXEC dialoq.hides_message @endpoint_id, @is_there OUTPUT;
        IF @is_there = 0 RETURN;
    END
    EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @notices OUTPUT;
    IF @is_locked IS NULL RETURN;
    SET @is_settled = 1 - @is_peer_held;
    IF @is_locked = 0
    BEGIN
        DELETE FROM dialoq.queue_message WITH (ROWLOCK, READPAST) WHERE endpoint_id = @endpoint_id;
        -- The lock of the sender's group may be free a moment before that of its message, which READPAST then passes over.
        IF EXISTS (SELECT 1 FROM dialoq.queue_message AS m WITH (READUNCOMMITTED) WHERE m.endpoint_id = @endpoint_id)
            SET @is_settled = 0;
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

-- Requests rechecks of all endpoints that a change of definitions concerns: at once, after 5 s and after 60 s, because transactions that
-- ran at its commit may have read the old definitions, and a user has no right to see when the last of them ends. Each recheck
-- reads all endpoints, and the last one (is_initiator is 1) all messages, so the rechecks of an earlier definition are
-- replaced: ten definitions in a row have as many as one.
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

-- Rechecks one endpoint for recheck_definitions in a savepoint of its own, so a failure affects no other endpoint.
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
            -- An endpoint that has its Error gets no second one.
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

-- Corrects the rows of ready_group in a queue that their service has left: a transaction that sent before the service moved may
-- commit after it. is_settled is 0 if it is not done: another transaction holds such a row or its group, or more than 500 are
-- wrong.
CREATE PROCEDURE dialoq.recheck_moved_groups
    @is_settled bit OUTPUT, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @moved TABLE (row_number int IDENTITY(1, 1) PRIMARY KEY, group_id uniqueidentifier NOT NULL, queue_id int NOT NULL);
    DECLARE @number int = 0, @group uniqueidentifier, @queue_id int, @is_locked bit, @is_ready bit;
    SET @is_settled = 1;
    INSERT INTO @moved (group_id, queue_id)
    SELECT DISTINCT TOP (500) r.conversation_group_id, s.queue_id
    FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
    JOIN dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        ON e.conversation_group_id = r.conversation_group_id
    JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE s.queue_id <> r.queue_id;
    WHILE 1 = 1
    BEGIN
        SET @group = NULL;
        SELECT TOP (1) @number = m.row_number, @group = m.group_id, @queue_id = m.queue_id
        FROM @moved AS m WHERE m.row_number > @number ORDER BY m.row_number;
        IF @group IS NULL BREAK;
        EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
        IF @is_locked = 0 CONTINUE;
        EXEC dialoq.rebuild_ready_rows @group, @is_ready OUTPUT;
        IF @is_ready = 1 SET @notices = CONCAT(@notices, N' q:', @queue_id);
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
    IF EXISTS (
        SELECT 1
        FROM dialoq.ready_group AS r WITH (READUNCOMMITTED)
        JOIN dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) ON e.conversation_group_id = r.conversation_group_id
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE s.queue_id <> r.queue_id)
        SET @is_settled = 0;
END
GO

-- Rechecks a change of definitions: groups of a service that was moved, endpoints of a service that was dropped, over a contract
-- that was dropped, or at a target that lost its contract; in the last recheck also messages of endpoints that do not exist. At
-- most 500 endpoints at a time.
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
    EXEC dialoq.recheck_moved_groups @is_settled OUTPUT, @notices OUTPUT;
    INSERT INTO @wrong (endpoint_id, conversation_id, is_initiator, code)
    SELECT TOP (500) e.endpoint_id, e.conversation_id, e.is_initiator,
        CASE WHEN s.service_id IS NULL THEN -8470 WHEN c.is_dropped = 1 THEN -8487 ELSE -8468 END
    FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
    LEFT JOIN dialoq.service AS s ON s.service_id = e.service_id
    LEFT JOIN dialoq.service_contract AS c ON c.service_contract_id = e.service_contract_id
    LEFT JOIN dialoq.service_contract_usage AS u
        ON u.service_id = e.service_id AND u.service_contract_id = e.service_contract_id
    -- An endpoint that has its Error keeps its state until its group is locked. Without this condition each recheck would read
    -- the same 500 endpoints.
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
    -- Below 0 are dead letters.
    WHERE m.endpoint_id > 0 AND NOT EXISTS (
        SELECT 1 FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = m.endpoint_id);
    -- The transaction that deletes an endpoint may roll back. If the row cannot be read without waiting, the recheck is
    -- repeated.
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
