-- The effects of definitions on open conversations, and the lock that lets one transaction change definitions at a time.
-- The client calls the on_* procedures between define_begin and define_end, after the rows of the definitions are written.
-- Takes: see each procedure
-- Gives: notices
-- Errors: 51205 if two transactions wait for each other's groups
-- Locks: the groups of conversations that are changed, waiting; an endpoint that only gets an Error is not locked. The reads after that
--     pass over the rows of other groups that are being changed, for which a scan would wait
-- Called by: dialoq_admin (on_contract_dropped, on_service_contracts_dropped, on_service_moved, on_service_dropped,
--     on_queue_dropped, on_queue_status_changed, on_new_broker, on_error_broker_conversations, on_notification_created,
--     on_notification_dropped)

-- The holder of a lock of Dialoq's that was not granted in time, as text: its session if this user may see the server's state,
-- else the query that names it.
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

-- Locks the definitions unless another transaction changes them for longer than 250 ms. is_locked: whether they are locked.
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

-- Locks the groups of endpoints, waiting, in the order that every verb uses, and applies what is pending on the endpoints.
-- Takes: the service and the contract (NULL: any); whether only those count whose first message may be making the other side
CREATE PROCEDURE dialoq.lock_affected
    @service_id int, @contract_id int, @is_first bit, @notices nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @order TABLE (
        place int IDENTITY(1, 1) PRIMARY KEY, endpoint_id bigint NOT NULL, group_id uniqueidentifier NOT NULL
    );
    DECLARE @place int = 0, @id bigint, @group uniqueidentifier, @last uniqueidentifier, @is_locked bit;
    INSERT INTO @order (endpoint_id, group_id)
    SELECT e.endpoint_id, e.conversation_group_id
    FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
    WHERE (@service_id IS NULL OR e.service_id = @service_id)
        AND (@contract_id IS NULL OR e.service_contract_id = @contract_id)
        AND (@is_first = 0 OR e.is_system = 0 AND e.is_initiator = 1 AND e.is_peer_known = 0 AND e.state IN (N'SO', N'CO'))
    ORDER BY e.conversation_group_id, e.endpoint_id;
    -- Groups that others hold are waited for first, one by one, while this transaction holds none. A client gives up its wait after
    -- 250 ms and tries again until the holder ends. On PostgreSQL it held all groups before that one meanwhile: they were free for
    -- 20 ms between two tries, and their messages came seconds late.
    WHILE 1 = 1
    BEGIN
        SET @group = NULL;
        SELECT TOP (1) @place = o.place, @group = o.group_id
        FROM @order AS o WHERE o.place > @place AND (@last IS NULL OR o.group_id <> @last) ORDER BY o.place;
        IF @group IS NULL BREAK;
        SET @last = @group;
        EXEC dialoq.wait_until_free @group;
    END
    SET @place = 0;
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

-- The contract was dropped: conversations over it break.
CREATE PROCEDURE dialoq.on_contract_dropped
    @contract_id int
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max), @id bigint = -1, @next bigint, @body varbinary(max), @peer_id bigint, @state nvarchar(2);
    DECLARE @group uniqueidentifier, @far_service int, @is_system bit, @conversation_id uniqueidentifier, @is_initiator bit;
    EXEC dialoq.lock_affected NULL, @contract_id, 0, @notices OUTPUT;
    SET @body = dialoq.error_body(-8487, N'the contract of the conversation was dropped');
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = e.endpoint_id
        FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        WHERE e.service_contract_id = @contract_id AND e.endpoint_id > @id ORDER BY e.endpoint_id;
        IF @next IS NULL BREAK;
        SET @id = @next;
        EXEC dialoq.add_error @id, @body, @notices OUTPUT;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
    EXEC dialoq.request_recheck_of_definitions;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- The service accepts these contracts no longer: conversations over them that it is the target of break, on both sides.
CREATE PROCEDURE dialoq.on_service_contracts_dropped
    @service_id int, @contracts dialoq.contract_id_rows READONLY
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max), @id bigint = -1, @next bigint, @body varbinary(max), @peer_id bigint, @state nvarchar(2);
    DECLARE @group uniqueidentifier, @far_service int, @is_system bit, @conversation_id uniqueidentifier, @is_initiator bit;
    DECLARE @far_body varbinary(max);
    SET @body = dialoq.error_body(-8468, N'the service was altered: it lost the contract');
    SET @far_body = dialoq.error_body(-8469, N'the remote service was altered: it lost the contract');
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = e.endpoint_id, @conversation_id = e.conversation_id
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
        WHERE e.is_initiator = 0 AND e.service_id = @service_id AND e.endpoint_id > @id
            AND e.service_contract_id IN (SELECT c.service_contract_id FROM @contracts AS c)
        ORDER BY e.endpoint_id;
        IF @next IS NULL BREAK;
        SET @id = @next;
        EXEC dialoq.add_error @id, @body, @notices OUTPUT;
        EXEC dialoq.find_peer @conversation_id, 0, @peer_id OUTPUT, @state OUTPUT, @group OUTPUT, @far_service OUTPUT,
            @is_system OUTPUT;
        IF @peer_id IS NOT NULL EXEC dialoq.add_error @peer_id, @far_body, @notices OUTPUT;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
    EXEC dialoq.request_recheck_of_definitions;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- The service was moved to another queue. Messages name endpoints, so only ready_group changes.
CREATE PROCEDURE dialoq.on_service_moved
    @service_id int, @from_queue_id int, @to_queue_id int
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max), @id bigint = -1, @next bigint, @body varbinary(max), @peer_id bigint, @state nvarchar(2);
    DECLARE @group uniqueidentifier, @far_service int, @is_system bit, @conversation_id uniqueidentifier, @is_initiator bit;
    EXEC dialoq.lock_affected @service_id, NULL, 0, @notices OUTPUT;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = e.endpoint_id, @group = e.conversation_group_id, @conversation_id = e.conversation_id,
            @is_initiator = e.is_initiator
        FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        WHERE e.service_id = @service_id AND e.endpoint_id > @id ORDER BY e.endpoint_id;
        IF @next IS NULL BREAK;
        SET @id = @next;
        EXEC dialoq.rebuild_ready_rows @group;
        -- A concurrent delivery may still announce its message in the old queue; tick checks the endpoint again.
        EXEC dialoq.request_recheck @id, @conversation_id, @is_initiator;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
    SET @notices = CONCAT(@notices, N' q:', @from_queue_id, N' q:', @to_queue_id);
    EXEC dialoq.request_recheck_of_definitions;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- The service was dropped: its conversations are erased, and their peers get an Error.
CREATE PROCEDURE dialoq.on_service_dropped
    @service_id int, @queue_id int
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max), @id bigint = -1, @next bigint, @body varbinary(max), @peer_id bigint, @state nvarchar(2);
    DECLARE @group uniqueidentifier, @far_service int, @is_system bit, @conversation_id uniqueidentifier, @is_initiator bit;
    EXEC dialoq.lock_affected @service_id, NULL, 0, @notices OUTPUT;
    SET @body = dialoq.error_body(-8470, N'the remote service was dropped');
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = e.endpoint_id, @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
        FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
        WHERE e.service_id = @service_id AND e.endpoint_id > @id ORDER BY e.endpoint_id;
        IF @next IS NULL BREAK;
        SET @id = @next;
        EXEC dialoq.find_peer @conversation_id, @is_initiator, @peer_id OUTPUT, @state OUTPUT, @group OUTPUT,
            @far_service OUTPUT, @is_system OUTPUT;
        IF @peer_id IS NOT NULL EXEC dialoq.add_error @peer_id, @body, @notices OUTPUT;
        EXEC dialoq.erase @id, @notices OUTPUT;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
    SET @notices = CONCAT(@notices, N' q:', @queue_id);
    EXEC dialoq.request_recheck_of_definitions;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- The queue was dropped; its notice wakes the receivers that wait in it. No service uses it, but a SEND that began before its service
-- moved may have announced its message to it; that row goes to the queue of the service. The recheck does the same for the rows of
-- transactions that are still open.
CREATE PROCEDURE dialoq.on_queue_dropped
    @queue_id int
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max);
    SELECT @notices = STRING_AGG(CAST(CONCAT(N' q:', m.queue_id) AS nvarchar(max)), N'')
    FROM (
        SELECT DISTINCT s.queue_id
        FROM dialoq.ready_group AS r WITH (READCOMMITTEDLOCK, READPAST)
        JOIN dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) ON e.conversation_group_id = r.conversation_group_id
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE r.queue_id = @queue_id
    ) AS m;
    UPDATE r SET queue_id = n.queue_id
    FROM dialoq.ready_group AS r WITH (ROWLOCK, READPAST, INDEX (ready_group_rank), FORCESEEK)
    CROSS APPLY (
        SELECT TOP (1) s.queue_id
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_group_id = r.conversation_group_id
    ) AS n
    WHERE r.queue_id = @queue_id AND n.queue_id <> @queue_id;
    DELETE FROM r
    FROM dialoq.ready_group AS r WITH (ROWLOCK, READPAST, INDEX (ready_group_rank), FORCESEEK)
    WHERE r.queue_id = @queue_id AND NOT EXISTS (
        SELECT 1
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
        JOIN dialoq.service AS s ON s.service_id = e.service_id
        WHERE e.conversation_group_id = r.conversation_group_id AND s.queue_id <> @queue_id);
    EXEC dialoq.forget_rollbacks @queue_id;
    SET @notices = CONCAT(@notices, N' q:', @queue_id);
    EXEC dialoq.request_recheck_of_definitions;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- The queue was enabled, which forgets its rollbacks, or disabled.
CREATE PROCEDURE dialoq.on_queue_status_changed
    @queue_id int, @is_enabled bit
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max) = CONCAT(N' q:', @queue_id);
    IF @is_enabled = 1
        EXEC dialoq.forget_rollbacks @queue_id;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- The database has a new broker: all conversations are erased without a message. Event notifications begin new ones.
CREATE PROCEDURE dialoq.on_new_broker
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max), @id int = -2147483648, @next int, @now datetime2(6) = SYSUTCDATETIME();
    EXEC dialoq.lock_affected NULL, NULL, 0, @notices OUTPUT;
    -- tick removes messages that arrive at one of them at this moment.
    INSERT INTO dialoq.recheck_queue (endpoint_id, conversation_id, is_initiator, recheck_at)
    SELECT e.endpoint_id, e.conversation_id, e.is_initiator, @now FROM dialoq.conversation_endpoint AS e;
    DELETE FROM dialoq.transmission;
    DELETE FROM dialoq.retained_message;
    -- Dead letters stay.
    DELETE FROM m
    FROM dialoq.queue_message AS m WITH (ROWLOCK, INDEX (queue_message_endpoint), FORCESEEK) WHERE m.endpoint_id > 0;
    DELETE FROM dialoq.ready_group;
    DELETE FROM dialoq.conversation_endpoint;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT @next = MIN(n.event_notification_id)
        FROM dialoq.event_notification AS n WHERE n.event_notification_id > @id;
        IF @next IS NULL BREAK;
        SET @id = @next;
        EXEC dialoq.begin_notification @id;
    END
    SELECT @notices = CONCAT(@notices, N' ', STRING_AGG(CAST(CONCAT(N'q:', q.queue_id) AS nvarchar(max)), N' '))
    FROM dialoq.service_queue AS q;
    EXEC dialoq.request_recheck_of_definitions;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- Every conversation breaks.
CREATE PROCEDURE dialoq.on_error_broker_conversations
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max), @id bigint = -1, @next bigint, @body varbinary(max), @peer_id bigint, @state nvarchar(2);
    DECLARE @group uniqueidentifier, @far_service int, @is_system bit, @conversation_id uniqueidentifier, @is_initiator bit;
    SET @body = dialoq.error_body(
        -9719, N'the conversations of this database were ended by ERROR_BROKER_CONVERSATIONS');
    -- An open SEND of one of these may be making the other side, which gets its Error too.
    EXEC dialoq.lock_affected NULL, NULL, 1, @notices OUTPUT;
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        -- READPAST would pass over every conversation on which a transaction sends at this moment.
        SELECT TOP (1) @next = e.endpoint_id
        FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
        WHERE e.is_system = 0 AND e.endpoint_id > @id ORDER BY e.endpoint_id;
        IF @next IS NULL BREAK;
        SET @id = @next;
        EXEC dialoq.add_error @id, @body, @notices OUTPUT;
        IF LEN(@notices) > 1000 SET @notices = N' ' + dialoq.distinct_notices(@notices);
    END
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- An event notification begins its conversation.
CREATE PROCEDURE dialoq.on_notification_created
    @event_notification_id int
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max);
    EXEC dialoq.begin_notification @event_notification_id;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO

-- An event notification ends its conversation.
CREATE PROCEDURE dialoq.on_notification_dropped
    @conversation_handle uniqueidentifier
AS
BEGIN
    -- <definition>
    DECLARE @notices nvarchar(max);
    EXEC dialoq.end_notification @conversation_handle, @notices OUTPUT;
    SELECT dialoq.distinct_notices(@notices) AS notices;
    -- </definition>
END
GO
