-- SEND of a text or JSON, for plain SQL: the body is its UTF-8.
-- Takes: the handle, the message type (NULL is DEFAULT), the text
-- Gives: message_id, notices
-- Errors: 58426, 58428, 58429, 58431, 58432, 58434, 58459, 59618, 60026
-- Locks: the conversation's group, waiting
-- For: plain SQL (send_text)
-- Called by: dialoq_user
CREATE PROCEDURE dialoq.send_text
    @conversation_handle uniqueidentifier, @message_type_name nvarchar(4000), @message_body nvarchar(max)
AS
BEGIN
    -- <settings>
    DECLARE @bytes varbinary(max) = dialoq.utf8(@message_body);
    EXEC dialoq.send @conversation_handle, @message_type_name, @bytes;
END
GO
