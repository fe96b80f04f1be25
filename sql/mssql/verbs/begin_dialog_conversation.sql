-- BEGIN DIALOG CONVERSATION: begins a conversation on the initiator's side; nothing is sent.
-- Takes: the two services, the broker instance (NULL, 'CURRENT DATABASE' or a GUID), the contract (NULL is DEFAULT), the
--     conversation or the group to be related to, the lifetime in seconds (NULL is the longest), the encryption option
--     (accepted, of no effect), and ids of the caller's choice (NULL: made here)
-- Gives: conversation_handle, conversation_group_id, conversation_id, notices
-- Errors: 58411, 58412, 58413, 58414, 58423, 58425, 58426, 59601, 59610, 60005
-- Locks: the group, waiting if it is one that there was
-- For: plain SQL
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.begin_dialog_conversation
    @from_service nvarchar(4000), @to_service nvarchar(4000), @broker_instance nvarchar(4000) = NULL,
    @contract nvarchar(4000) = NULL, @related_conversation uniqueidentifier = NULL, @related_group uniqueidentifier = NULL,
    @lifetime_seconds bigint = NULL, @encryption bit = 0, @conversation_handle uniqueidentifier = NULL,
    @conversation_id uniqueidentifier = NULL, @conversation_group_id uniqueidentifier = NULL
AS
BEGIN
    -- <settings>
    DECLARE @notices nvarchar(max), @text nvarchar(2048), @now datetime2(6), @guid uniqueidentifier, @service_id int;
    DECLARE @contract_id int, @instance nvarchar(128), @lifetime datetime2(6), @group uniqueidentifier, @length int;
    DECLARE @related_id bigint, @state nvarchar(2), @other_id int, @other nvarchar(256), @is_locked bit, @due datetime2(6);
    DECLARE @is_known bit, @rollbacks int = 0;
    -- <transaction>
    SELECT @now = COALESCE(b.manual_now, SYSUTCDATETIME()), @guid = b.service_broker_guid
    FROM dialoq.broker AS b WHERE b.singleton = 1;
    SET @contract = COALESCE(@contract, N'DEFAULT');
    SET @lifetime_seconds = COALESCE(@lifetime_seconds, 2147483647);
    SELECT @service_id = s.service_id FROM dialoq.service AS s WHERE s.name = @from_service AND DATALENGTH(s.name) = DATALENGTH(@from_service);
    IF @service_id IS NULL
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'service ''', @from_service, N''' was not found; names are compared byte by byte'));
        THROW 58423, @text, 1;
    END
    SELECT @contract_id = c.service_contract_id
    FROM dialoq.service_contract AS c WHERE c.name = @contract AND DATALENGTH(c.name) = DATALENGTH(@contract) AND c.is_dropped = 0;
    IF @contract_id IS NULL
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'contract ''', @contract, N''' was not found; names are compared byte by byte'));
        THROW 58425, @text, 1;
    END
    SET @length = dialoq.character_count(@to_service, 256);
    IF @length NOT BETWEEN 1 AND 256
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'the name of the TO SERVICE has ', @length, N' characters; it must have 1 to 256'));
        THROW 58412, @text, 1;
    END
    IF dialoq.fold_name(@broker_instance) COLLATE Latin1_General_100_BIN2 = N'current database'
        SET @instance = dialoq.id_text(@guid);
    ELSE IF @broker_instance IS NOT NULL
    BEGIN
        -- The cast takes the first 36 characters of a longer text. LEN leaves out spaces at the end. A character has two bytes on SQL Server,
        -- on Babelfish one.
        SET @instance = dialoq.id_text(CASE
            WHEN DATALENGTH(@broker_instance) = 36 * DATALENGTH(N'a')
                OR DATALENGTH(@broker_instance) = 38 * DATALENGTH(N'a') AND @broker_instance LIKE N'{%}'
            THEN TRY_CAST(@broker_instance AS uniqueidentifier) END);
        IF @instance IS NULL
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'''', @broker_instance, N''' is no broker instance; it must be a GUID, or ''CURRENT DATABASE'''));
            THROW 58413, @text, 1;
        END
    END
    IF @lifetime_seconds NOT BETWEEN 1 AND 2147483647
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'LIFETIME is ', @lifetime_seconds, N' seconds; it must be 1 to 2147483647'));
        THROW 58411, @text, 1;
    END
    IF @related_group = CAST(N'00000000-0000-0000-0000-000000000000' AS uniqueidentifier)
        AND @related_conversation IS NULL
        THROW 58414, N'the conversation group id is all zeros; give an id of your own, or none for a new one', 1;
    IF CAST(N'00000000-0000-0000-0000-000000000000' AS uniqueidentifier)
        IN (@conversation_handle, @conversation_id,
            CASE WHEN @related_conversation IS NULL AND @related_group IS NULL THEN @conversation_group_id END)
        THROW 60005, N'an id of the conversation is all zeros; give an id of your own, or none for a new one', 1;
    SET @group = @related_group;
    -- A refusal that no lock holder can change does not wait for the group. The checks are repeated under the lock.
    WHILE @related_conversation IS NOT NULL OR @related_group IS NOT NULL
    BEGIN
        IF @related_conversation IS NOT NULL
            SELECT @group = e.conversation_group_id, @state = e.state
            FROM dialoq.conversation_endpoint AS e WITH (READCOMMITTEDLOCK, READPAST)
            WHERE e.conversation_handle = @related_conversation AND e.is_system = 0;
        IF @related_conversation IS NOT NULL AND @group IS NULL
            SELECT @group = e.conversation_group_id
            FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
            WHERE e.conversation_handle = @related_conversation AND e.is_system = 0;
        IF @state IN (N'DO', N'CD')
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'conversation ', dialoq.id_text(@related_conversation),
                N' has ended; a new one cannot be related to it'));
            THROW 59601, @text, 1;
        END
        EXEC dialoq.find_group_service @group, @other_id OUTPUT, @is_known OUTPUT;
        IF @other_id <> @service_id
        BEGIN
            SELECT @other = s.name FROM dialoq.service AS s WHERE s.service_id = @other_id;
            SET @text = dialoq.throw_text(CONCAT(N'conversation group ', dialoq.id_text(@group), N' belongs to service ''',
                COALESCE(@other, N'another service'), N'''; a conversation FROM SERVICE ''', @from_service,
                N''' cannot join it'));
            THROW 59610, @text, 1;
        END
        IF @is_locked = 1 BREAK;
        IF @related_conversation IS NOT NULL
            EXEC dialoq.lock_open @related_conversation, @related_id OUTPUT, @notices OUTPUT;
        ELSE
            EXEC dialoq.lock_group @group, 1, @is_locked OUTPUT;
        SET @is_locked = 1;
    END
    IF @group IS NULL
    BEGIN
        -- A new group is unlocked, so this does not wait. A caller who wants to join a group that exists must name it as
        -- @related_group, which checks the service of its conversations.
        SET @group = COALESCE(@conversation_group_id, NEWID());
        EXEC dialoq.lock_group @group, 0, @is_locked OUTPUT;
        IF @conversation_group_id IS NOT NULL AND (@is_locked = 0 OR EXISTS (
            SELECT 1 FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.conversation_group_id = @group))
        BEGIN
            SET @text = dialoq.throw_text(CONCAT(N'conversation group ', dialoq.id_text(@group),
                N' is in use; name it as @related_group to join it, or give another id'));
            THROW 60005, @text, 1;
        END
    END
    -- An endpoint of that conversation may be all that is left of one that another user began.
    IF @conversation_id IS NOT NULL AND EXISTS (
        SELECT 1 FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED) WHERE e.conversation_id = @conversation_id)
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'conversation id ', dialoq.id_text(@conversation_id), N' is in use; give another, or none'));
        THROW 60005, @text, 1;
    END
    IF @conversation_handle IS NOT NULL AND EXISTS (
        SELECT 1 FROM dialoq.conversation_endpoint AS e WITH (READUNCOMMITTED)
        WHERE e.conversation_handle = @conversation_handle)
    BEGIN
        SET @text = dialoq.throw_text(CONCAT(N'conversation handle ', dialoq.id_text(@conversation_handle), N' is in use; give another, or none'));
        THROW 60005, @text, 1;
    END
    SET @conversation_handle = COALESCE(@conversation_handle, NEWID());
    SET @conversation_id = COALESCE(@conversation_id, NEWID());
    SET @lifetime = DATEADD(second, CAST(@lifetime_seconds AS int), @now);
    SET @due = dialoq.next_due(N'SO', @lifetime, NULL, NULL, NULL, @now);
    -- The count of rollbacks is that of the group.
    IF @related_conversation IS NOT NULL OR @related_group IS NOT NULL
        SELECT @rollbacks = COALESCE(MAX(o.rollbacks), 0)
        FROM dialoq.conversation_endpoint AS o WITH (INDEX (conversation_endpoint_group), FORCESEEK)
        WHERE o.conversation_group_id = @group;
    INSERT INTO dialoq.conversation_endpoint (
        conversation_handle, conversation_id, conversation_group_id, service_id, service_contract_id, is_initiator,
        far_service, far_broker_instance, state, priority, lifetime, send_sequence, receive_sequence, is_peer_known,
        is_system, is_quarantined, begun_at, due_at, rollbacks
    ) VALUES (
        @conversation_handle, @conversation_id, @group, @service_id, @contract_id, 1, @to_service, @instance, N'SO',
        dialoq.level_for(@contract_id, @service_id, @to_service), @lifetime, 0, 0, 0, 0, 0, @now, @due, @rollbacks
    );
    SET @notices = CONCAT(@notices, dialoq.due_notice(@due));
    -- </transaction>
    SELECT @conversation_handle AS conversation_handle, @group AS conversation_group_id, @conversation_id AS conversation_id,
        dialoq.distinct_notices(@notices) AS notices;
END
GO
