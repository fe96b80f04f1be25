-- What definitions and tick have in common: looking at endpoints once more.
-- Takes: see each procedure
-- Gives: words for others, added to said
-- Errors: see each procedure
-- Locks: see each procedure

-- Lets one transaction change definitions at a time, until its end; waits for it.
-- Errors: 51205
IF OBJECT_ID(N'dialoq.lock_definitions') IS NOT NULL DROP PROCEDURE dialoq.lock_definitions
GO
CREATE PROCEDURE dialoq.lock_definitions
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @got int;
    IF APPLOCK_MODE(N'public', N'dialoq:define', N'Transaction') = N'Exclusive' RETURN;
    EXEC @got = sp_getapplock
        @Resource = N'dialoq:define', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
    IF @got < 0
        THROW 51205, N'the transaction was chosen as a deadlock victim: it waited for a change of definitions; run it again', 1;
END
GO

-- Looks at everything that waits after definitions have changed: sends what can go, by level if HONOR_BROKER_PRIORITY is
-- ON, brings the reason of the rest up to date. Endpoints that another transaction holds are left to tick.
-- Locks: the groups of what can go or changes its reason, without waiting
IF OBJECT_ID(N'dialoq.revisit_outboxes') IS NOT NULL DROP PROCEDURE dialoq.revisit_outboxes
GO
CREATE PROCEDURE dialoq.revisit_outboxes
    @said nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @held TABLE (endpoint_id bigint NOT NULL PRIMARY KEY);
    DECLARE @order TABLE (place int IDENTITY(1, 1) PRIMARY KEY, transmission_id bigint NOT NULL, endpoint_id bigint NOT NULL);
    DECLARE @honor bit, @endpoint_id bigint = -1, @next bigint, @status nvarchar(256), @place int = 0, @id bigint;
    DECLARE @way nvarchar(10), @peer_id bigint, @service_id int, @reason nvarchar(256), @code int, @is_locked bit;
    DECLARE @conversation_id uniqueidentifier, @is_initiator bit, @may_go_on bit;
    SELECT @honor = b.is_honor_broker_priority_on FROM dialoq.broker AS b WHERE b.singleton = 1;
    -- One look for each endpoint; what stays as it is needs no lock.
    WHILE 1 = 1
    BEGIN
        SET @next = NULL;
        SELECT TOP (1) @next = t.endpoint_id, @status = t.status
        FROM dialoq.transmission AS t WITH (READCOMMITTEDLOCK, READPAST)
        JOIN dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST) ON e.endpoint_id = t.endpoint_id
        WHERE t.endpoint_id > @endpoint_id AND e.state NOT IN (N'DI', N'ER')
        ORDER BY t.endpoint_id, t.transmission_id;
        IF @next IS NULL BREAK;
        SET @endpoint_id = @next;
        EXEC dialoq.route @endpoint_id, @way OUTPUT, @peer_id OUTPUT, @service_id OUTPUT, @reason OUTPUT, @code OUTPUT;
        IF @way <> N'delayed'
        BEGIN
            INSERT INTO @held (endpoint_id) VALUES (@endpoint_id);
            CONTINUE;
        END
        IF @reason = @status CONTINUE;
        EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @said OUTPUT;
        IF @is_locked = 1 EXEC dialoq.hold_outbox @endpoint_id, @reason;
        IF @is_locked IS NULL
        BEGIN
            SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
            EXEC dialoq.unsettle @endpoint_id, @conversation_id, @is_initiator, @said OUTPUT;
        END
    END
    INSERT INTO @order (transmission_id, endpoint_id)
    SELECT t.transmission_id, t.endpoint_id
    FROM dialoq.transmission AS t WITH (READCOMMITTEDLOCK, READPAST) JOIN @held AS h ON h.endpoint_id = t.endpoint_id
    ORDER BY CASE @honor WHEN 1 THEN 10 - t.priority ELSE 0 END, t.transmission_id;
    WHILE 1 = 1
    BEGIN
        SET @id = NULL;
        SELECT TOP (1) @place = o.place, @id = o.transmission_id, @endpoint_id = o.endpoint_id
        FROM @order AS o WHERE o.place > @place ORDER BY o.place;
        IF @id IS NULL BREAK;
        EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @said OUTPUT;
        IF @is_locked = 1
            EXEC dialoq.deliver @id, @may_go_on OUTPUT, @said OUTPUT;
        IF @is_locked IS NULL
        BEGIN
            SELECT @conversation_id = e.conversation_id, @is_initiator = e.is_initiator
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.endpoint_id = @endpoint_id;
            EXEC dialoq.unsettle @endpoint_id, @conversation_id, @is_initiator, @said OUTPUT;
        END
        IF LEN(@said) > 1000 SET @said = N' ' + dialoq.words(@said);
    END
END
GO

-- The look that unsettle asks for: removes what reached an endpoint that is gone, brings one that is there up to date,
-- sends what can go, and puts its group's rows right. is_settled: whether it is done; not while another transaction holds
-- its group, or the peer's, whose transaction may have told it something that nobody sees yet, or changes definitions.
IF OBJECT_ID(N'dialoq.settle') IS NOT NULL DROP PROCEDURE dialoq.settle
GO
CREATE PROCEDURE dialoq.settle
    @endpoint_id bigint, @conversation_id uniqueidentifier, @is_initiator bit, @is_settled bit OUTPUT,
    @said nvarchar(max) OUTPUT
AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @peer_id bigint, @state nvarchar(2), @group uniqueidentifier, @service_id int, @is_system bit;
    DECLARE @is_locked bit, @is_ready bit, @queue_id int;
    SET @is_settled = 0;
    IF APPLOCK_TEST(N'public', N'dialoq:define', N'Shared', N'Transaction') = 0 RETURN;
    SELECT @peer_id = p.endpoint_id, @group = p.conversation_group_id
    FROM dialoq.conversation_endpoint AS p WITH (READCOMMITTEDLOCK, READPAST)
    WHERE p.conversation_id = @conversation_id AND p.is_initiator = CASE @is_initiator WHEN 1 THEN 0 ELSE 1 END;
    IF @peer_id IS NULL AND EXISTS (
        SELECT 1 FROM dialoq.conversation_endpoint AS p WITH (READUNCOMMITTED)
        WHERE p.conversation_id = @conversation_id AND p.is_initiator = CASE @is_initiator WHEN 1 THEN 0 ELSE 1 END)
        RETURN;
    IF @peer_id IS NOT NULL
        AND APPLOCK_TEST(N'public', CONCAT(N'dialoq:group:', @group), N'Exclusive', N'Transaction') = 0
        RETURN;
    EXEC dialoq.lock_endpoint @endpoint_id, 0, @is_locked OUTPUT, @said OUTPUT;
    IF @is_locked IS NULL RETURN;
    SET @is_settled = 1;
    IF @is_locked = 0
    BEGIN
        DELETE FROM dialoq.queue_message WITH (ROWLOCK, READPAST) WHERE endpoint_id = @endpoint_id;
        RETURN;
    END
    EXEC dialoq.redeliver @endpoint_id, @said OUTPUT;
    SET @group = NULL;
    SELECT @group = e.conversation_group_id, @queue_id = s.queue_id
    FROM dialoq.conversation_endpoint AS e JOIN dialoq.service AS s ON s.service_id = e.service_id
    WHERE e.endpoint_id = @endpoint_id;
    IF @group IS NULL RETURN;
    EXEC dialoq.put_right @group, @is_ready OUTPUT;
    IF @is_ready = 1 SET @said = CONCAT(@said, N' q:', @queue_id);
END
GO

-- Locks the groups of endpoints in one order for all, waiting, and takes note of what the endpoints were told.
IF OBJECT_ID(N'dialoq.lock_affected') IS NOT NULL DROP PROCEDURE dialoq.lock_affected
GO
CREATE PROCEDURE dialoq.lock_affected
    @service_id int, @contract_id int, @said nvarchar(max) OUTPUT
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
        EXEC dialoq.lock_endpoint @id, 1, @is_locked OUTPUT, @said OUTPUT;
        IF LEN(@said) > 1000 SET @said = N' ' + dialoq.words(@said);
    END
END
GO
