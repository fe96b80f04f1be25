-- Until when no further transaction receives from a queue, because a definition waits for its conversations.
ALTER TABLE dialoq.service_queue ADD receives_held_until datetime2(6) NULL;
GO
