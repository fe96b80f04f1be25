-- The first message that the transaction had received, and its conversation. If the message is gone, another transaction has handled it
-- since.
ALTER TABLE dialoq.receive_attempt ADD endpoint_id bigint NULL;
ALTER TABLE dialoq.receive_attempt ADD first_order bigint NULL;
GO
