-- Writes an event notification, new or not, or removes one. The routines of definition_effects.sql begin and end its conversation.
-- Takes: the columns of event_notification; or the event_notification_id
-- Gives: nothing
-- Errors: none of its own
-- Locks: the row
-- Called by: dialoq_admin (put_event_notification, delete_event_notification)
CREATE PROCEDURE dialoq.put_event_notification
    @event_notification_id int, @name nvarchar(256), @queue_id int, @event nvarchar(64), @service nvarchar(512),
    @conversation_handle uniqueidentifier
AS
BEGIN
    -- <definition>
    UPDATE dialoq.event_notification SET
        name = @name, queue_id = @queue_id, event = @event, service = @service,
        conversation_handle = @conversation_handle
    WHERE event_notification_id = @event_notification_id;
    IF @@ROWCOUNT = 0
        INSERT INTO dialoq.event_notification (
            event_notification_id, name, queue_id, event, service, conversation_handle
        ) VALUES (
            @event_notification_id, @name, @queue_id, @event, @service, @conversation_handle
        );
    -- </definition>
END
GO
CREATE PROCEDURE dialoq.delete_event_notification
    @event_notification_id int
AS
BEGIN
    -- <definition>
    DELETE FROM dialoq.event_notification WHERE event_notification_id = @event_notification_id;
    -- </definition>
END
GO
